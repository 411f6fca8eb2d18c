#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/gemm/number_format.h"
#include "autograd/tensor.h"
#include "data/files/durable_file.h"
#include "data/files/input_file.h"

namespace focus {

/// How a file stores numbers. A tensor of `other` is listed and can be read raw, but not as
/// numbers.
using Dtype = NumberFormat;

struct TensorInfo {
  std::string name;
  std::vector<Index> shape;
  Dtype dtype = Dtype::f32;
  std::string stored_as;    // the file's own word for the type: "F32", "I64", "F8_E4M3"
  std::uint64_t bytes = 0;  // that it takes as it is stored
  std::uint64_t begin = 0;  // of TensorFiles: where they begin,
  std::size_t file = 0;     // and in which of the files

  /// The number of elements.
  Index size() const;
};

/// Whose names the tensors of a file have, and with them which order of numbers: those of the
/// Hugging Face folder, or GGUF's (layers/gguf_settings.h).
enum class TensorNaming { published, gguf };

/// A tensor's bytes as they are stored, little-endian, and what keeps them there.
struct TensorBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

/// Named tensors in a file or in several: what models are imported from.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  /// What there is, sorted by name.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// nullptr where there is no tensor of that name.
  const TensorInfo* find(std::string_view name) const;
  /// The path, for messages.
  const std::string& describe() const { return where_; }
  virtual TensorNaming naming() const { return TensorNaming::published; }
  /// The files that the tensors lie in.
  virtual std::vector<std::filesystem::path> files() const { return {}; }

  /// The bytes as they are stored, little-endian; `bytes` is resized to fit. Throws
  /// std::runtime_error for a name that is not there and for a file that cannot be read.
  void read_raw(std::string_view name, std::vector<std::byte>& bytes) const;
  /// The bytes where they lie in a file that is mapped, nothing read yet and nothing checked;
  /// nothing where they do not lie in one piece or at an odd address. They may outlive the source.
  std::optional<TensorBytes> map(std::string_view name) const { return map_bytes(at(name)); }
  /// Holds a tensor against the checksum that its file has of it. Throws std::runtime_error where
  /// it does not fit; does nothing without one.
  virtual void verify(std::string_view) const {}
  /// The tensor as Real. Throws std::runtime_error as read_raw does, and for a tensor that is
  /// stored as `other` or has more than five dimensions.
  Tensor read(std::string_view name) const;
  /// The bytes of a tensor of numbers, at an address that the size of a number divides: mapped
  /// where that can be, else read. Throws as read() does.
  TensorBytes bytes(std::string_view name) const;

 protected:
  explicit TensorSource(std::string where) : where_(std::move(where)) {}
  /// In any order, no two of one name.
  void set_tensors(std::vector<TensorInfo> tensors);

 private:
  virtual void read_bytes(const TensorInfo& info, std::span<std::byte> out) const = 0;
  virtual std::optional<TensorBytes> map_bytes(const TensorInfo&) const { return std::nullopt; }
  /// Throws for an unknown name.
  const TensorInfo& at(std::string_view name) const;
  /// Throws for an unknown name and for a tensor that holds no numbers.
  const TensorInfo& find_numbers(std::string_view name) const;

  std::string where_;
  std::vector<TensorInfo> tensors_;
};

/// Tensors that lie in one piece each in files, which are read with pread, where a file that
/// shrinks meanwhile is an error, or mapped (see MappedFile).
class TensorFiles : public TensorSource {
 public:
  std::vector<std::filesystem::path> files() const override;

 protected:
  struct Part {
    explicit Part(const std::filesystem::path& where) : path(where), file(where) {}
    const std::shared_ptr<const MappedFile>& map() const;

    std::filesystem::path path;
    InputFile file;

   private:
    mutable std::shared_ptr<const MappedFile> mapped_;  // once it was asked for
  };
  explicit TensorFiles(const std::filesystem::path& path) : TensorSource(path.string()) {}
  /// Opens a further file; TensorInfo::file counts them.
  const Part& open(const std::filesystem::path& path) {
    return *parts_.emplace_back(std::make_unique<const Part>(path));
  }

 private:
  void read_bytes(const TensorInfo& info, std::span<std::byte> out) const override;
  std::optional<TensorBytes> map_bytes(const TensorInfo& info) const override;

  std::vector<std::unique_ptr<const Part>> parts_;
};

/// The type that holds a Real without loss.
inline constexpr Dtype kRealDtype = kRealFormat;

/// Packed little-endian numbers as a tensor; `bytes` must fit shape and dtype.
Tensor to_tensor(std::span<const std::byte> bytes, Dtype dtype, const Shape& shape);

/// The inverse: numbers rounded to `dtype` (to nearest, ties to even; of blocks those of
/// block_rounding.h), little-endian; `bytes` is resized to fit.
void pack(std::span<const Real> numbers, Dtype dtype, std::vector<std::byte>& bytes);
/// Rounds numbers to what `dtype` holds.
void round_to(Dtype dtype, std::span<Real> numbers);

/// How many numbers are NaN or infinite.
Index count_nonfinite(std::span<const Real> numbers);
inline Index count_nonfinite(const Tensor& tensor) { return count_nonfinite(tensor.span()); }
/// Numbers of several tensors that are NaN or infinite, and the first tensor that holds one.
struct Nonfinite {
  Index count = 0;
  std::string first;
  void look_at(std::string_view name, std::span<const Real> numbers) {
    const Index bad = count_nonfinite(numbers);
    if (bad > 0 && count == 0) first = name;
    count += bad;
  }
};
/// Those of a source; tensors of types that are no numbers are passed over.
Nonfinite nonfinite_of(const TensorSource& source);
/// Throws std::runtime_error where one of a model's results is no number: "`where`: 3 of 64 `what`
/// are NaN or infinite; ...". Of such results nothing can be said.
void require_finite(std::span<const Real> results, std::string_view where, std::string_view what);

/// A tensor of a file that is to be written; `shape` in PyTorch's order.
struct AnnouncedTensor {
  std::string name;
  Shape shape;
  Dtype dtype = Dtype::f32;
};

/// Writes one file tensor by tensor, in the order announced; numbers are rounded to the type of
/// each. The file appears with commit(). Throws std::invalid_argument for a tensor that was not
/// announced so, std::runtime_error where the disk refuses.
class TensorFileWriter {
 public:
  /// The next tensor.
  void add(const std::string& name, const Tensor& tensor);
  /// True once all have been added.
  bool complete() const { return next_ == tensors_.size(); }

 protected:
  /// `head` precedes the tensors, each of which ends at a multiple of `alignment` bytes.
  TensorFileWriter(const std::filesystem::path& path, std::string_view head,
                   std::vector<AnnouncedTensor> tensors, std::size_t alignment);
  /// What `verify` throws of the file leaves none.
  void commit(const std::function<void(const std::filesystem::path&)>& verify);

 private:
  DurableFile file_;
  FileWriter writer_;
  std::vector<AnnouncedTensor> tensors_;
  std::size_t alignment_, next_ = 0;
};

/// Bytes from `bytes` to the next multiple of `alignment`.
inline std::size_t padding_after(std::size_t bytes, std::size_t alignment) {
  return (alignment - bytes % alignment) % alignment;
}

}  // namespace focus
