#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "autograd/tensor.h"
#include "data/tensors/tensor_source.h"

namespace focus {

/// The checkpoint container: an HDF5 file of groups, attributes and data sets, written once and
/// whole, with a checksum (XXH3-128) on every data set and one, `digest`, over all that is not
/// bulk data. Paths are absolute: "/", "/train", "/model/transformer/wte/weight".
inline constexpr std::int64_t kStoreVersion = 1;

using AttributeValue = std::variant<std::string, std::int64_t, std::uint64_t, double>;

/// "/model" and "transformer.wte.weight" -> "/model/transformer/wte/weight".
std::string store_path(std::string_view prefix, std::string_view tensor_name);

/// Initialises libhdf5, which crashes where it gets no memory for that, and holds memory back until
/// a store is written. A program that may take all the memory it is allowed calls this before it
/// takes any. Throws std::bad_alloc.
void prepare_stores();

/// Writes one store. Nothing appears at `target` before commit(); equal contents give equal bytes.
/// Groups are made as needed. Throws std::invalid_argument for a bad path, an object that is there
/// already or a call after commit(), std::runtime_error where the disk refuses.
class StoreWriter {
 public:
  /// `kind` says what the file is: "model", "adapter" or "training".
  StoreWriter(const std::filesystem::path& target, const std::string& kind);
  /// Without commit() nothing remains.
  ~StoreWriter();
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  /// A string holds at most 60,000 bytes, without NUL; longer ones go to text().
  void attribute(const std::string& group, const std::string& name, const AttributeValue& value);
  void text(const std::string& path, std::string_view bytes);
  /// Stored in the precision of Real: nothing is lost.
  void tensor(const std::string& path, const Tensor& tensor);
  /// Numbers as they are packed elsewhere; `bytes` must fit shape and dtype. A matrix in blocks is
  /// a data set of bytes [rows, bytes of a row] with the blocks' name as its attribute `dtype`.
  void tensor_raw(const std::string& path, std::span<const Index> shape, Dtype dtype,
                  std::span<const std::byte> bytes);
  /// Closes the file, brings it to the disk, reads it back and verifies every checksum, and only
  /// then moves it to its place.
  void commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads a store. The constructor checks the structure, without reading bulk data: that it is
/// ours and of this version, that it has no links, that types, layouts and sizes are
/// sound, that names and attributes agree with `digest`. Everything read
/// later is held against its checksum. Throws std::runtime_error: file, object, reason.
/// The HDF5 library itself is no match for a forged file: open files only from whom you trust.
class StoreReader {
 public:
  explicit StoreReader(const std::filesystem::path& path);

  /// "model", "adapter" or "training".
  std::string kind() const { return string_attribute("/", "kind"); }
  std::string describe() const;

  /// True for a group or a data set.
  bool has(std::string_view path) const;
  bool has_attribute(std::string_view object, std::string_view name) const;
  std::string string_attribute(std::string_view object, std::string_view name) const {
    return attribute<std::string>(object, name, "a string");
  }
  /// Either integer type, where the value fits.
  std::int64_t int_attribute(std::string_view object, std::string_view name) const {
    return attribute<std::int64_t>(object, name, "a whole number");
  }
  std::uint64_t uint_attribute(std::string_view object, std::string_view name) const {
    return attribute<std::uint64_t>(object, name, "a whole number from 0");
  }
  double double_attribute(std::string_view object, std::string_view name) const {
    return attribute<double>(object, name, "a number");
  }

  std::string text(std::string_view path) const;
  /// Any stored float type, as Real. Another shape than `expected` is refused before memory is
  /// taken for it.
  Tensor tensor(std::string_view path, const std::optional<Shape>& expected = {}) const;
  std::vector<Index> shape(std::string_view path) const;

  /// The names of what lies directly in a group, sorted.
  std::vector<std::string> list(std::string_view group) const;
  /// The paths of all data sets, sorted.
  std::vector<std::string> all_datasets() const;
  /// Reads all data and checks all checksums.
  void verify() const;

  /// The data sets under `prefix` as named tensors: "/model/transformer/wte/weight" under "/model"
  /// is "transformer.wte.weight". Outlives this reader.
  std::unique_ptr<TensorSource> source(std::string_view prefix) const;

  struct Impl;

 private:
  template <class Wanted>
  Wanted attribute(std::string_view object, std::string_view name, std::string_view wanted) const;

  std::shared_ptr<const Impl> impl_;
};

}  // namespace focus
