#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "autograd/base/check.h"
#include "data/files/checksum.h"
#include "data/files/durable_file.h"
#include "data/files/file_kind.h"
#include "data/files/input_file.h"
#include "data/tensors/store_scan.h"

namespace focus {
namespace fs = std::filesystem;

struct StoreReader::Impl {
  fs::path path;
  H5Handle file;
  StoreContents contents;
  mutable std::shared_ptr<const MappedFile> mapped;  // once it was asked for

  std::string name() const { return path.string(); }

  const StoredDataset& dataset(std::string_view object) const {
    const auto it = contents.datasets.find(std::string(object));
    if (it == contents.datasets.end()) fail("{}: there is no data set '{}'", name(), object);
    return it->second;
  }

  /// The attributes of a group.
  const auto& group(std::string_view object) const {
    const auto it = contents.groups.find(std::string(object));
    if (it == contents.groups.end()) fail("{}: there is no group '{}'", name(), object);
    return it->second;
  }

  /// The very file that is open: another may have its name by now.
  std::shared_ptr<const MappedFile> map_file() const {
    h5_prepare();
    int* descriptor = nullptr;
    if (H5Fget_vfd_handle(file, H5P_DEFAULT, reinterpret_cast<void**>(&descriptor)) < 0)
      h5_fail_reading(path, "/");
    hsize_t size = 0;
    if (H5Fget_filesize(file, &size) < 0) h5_fail_reading(path, "/");
    return std::make_shared<const MappedFile>(*descriptor, size, path);
  }

  /// The bytes where they lie, unchecked; nothing where they do not lie in one piece.
  std::optional<TensorBytes> map(std::string_view object) const {
    const StoredDataset& info = dataset(object);
    if (!info.offset) return std::nullopt;
    if (mapped == nullptr) mapped = map_file();
    if (*info.offset > mapped->bytes().size() || info.bytes > mapped->bytes().size() - *info.offset)
      fail("{}: the file became shorter while it was read; use another copy", name());
    return TensorBytes{mapped->bytes().subspan(*info.offset, info.bytes), mapped};
  }

  void check_sum(std::string_view object, std::span<const std::byte> bytes) const {
    if (xxh3_hex(bytes) != dataset(object).checksum)
      fail("{}: data set '{}' is damaged: it does not match its checksum; use another copy", name(),
           object);
  }

  void verify(std::string_view object) const {
    if (const auto there = map(object))
      check_sum(object, there->bytes);
    else
      read(object);
  }

  std::vector<std::byte> read(std::string_view object) const {
    std::vector<std::byte> bytes(dataset(object).bytes);
    read_into(object, bytes);
    return bytes;
  }

  void read_into(std::string_view object, std::span<std::byte> bytes) const {
    h5_prepare();
    const StoredDataset& info = dataset(object);
    check(bytes.size() == info.bytes, "{}: data set '{}' has {} bytes, not {}", name(), object,
          info.bytes, bytes.size());
    const H5Handle handle(H5Dopen2(file, std::string(object).c_str(), H5P_DEFAULT), H5Dclose);
    const H5Handle type(handle < 0 ? H5I_INVALID_HID : H5Dget_type(handle), H5Tclose);
    if (type < 0 || (!bytes.empty() &&
                     H5Dread(handle, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) < 0)) {
      const H5Error error = h5_error();
      if (error.system_error != 0) fail_reading("read", path, error.system_error);
      fail("{}: data set '{}' cannot be read: {}; use another copy", name(), object, error.reason);
    }
    check_sum(object, bytes);
  }
};

namespace {

/// Tensors of a store under the names that the datasets' paths spell.
class StoreSource : public TensorSource {
 public:
  StoreSource(std::shared_ptr<const StoreReader::Impl> store, std::string prefix)
      : TensorSource(store->name()), store_(std::move(store)), prefix_(std::move(prefix)) {
    std::vector<TensorInfo> tensors;
    for (const auto& [path, dataset] : store_->contents.datasets) {
      if (!path.starts_with(prefix_)) continue;
      std::string name = path.substr(prefix_.size());
      if (name.find('.') != std::string::npos)
        fail("{}: data set '{}': a '.' in the path of a tensor", store_->name(), path);
      std::ranges::replace(name, '/', '.');
      tensors.push_back(
          {name, dataset.shape, format_named(dataset.type), dataset.type, dataset.bytes});
    }
    set_tensors(std::move(tensors));
  }

  void verify(std::string_view name) const override { store_->verify(path_of(name)); }
  std::vector<fs::path> files() const override { return {store_->path}; }

 private:
  void read_bytes(const TensorInfo& info, std::span<std::byte> out) const override {
    store_->read_into(path_of(info.name), out);
  }
  std::optional<TensorBytes> map_bytes(const TensorInfo& info) const override {
    const std::string path = path_of(info.name);
    // Stores of before lie as the library put them.
    const std::uint64_t offset = store_->dataset(path).offset.value_or(1);
    return offset % alignment_of(info.dtype) == 0 ? store_->map(path) : std::nullopt;
  }
  std::string path_of(std::string_view name) const {
    return store_path(prefix_.substr(0, prefix_.size() - 1), name);
  }

  std::shared_ptr<const StoreReader::Impl> store_;
  std::string prefix_;  // ends in '/'
};

H5Handle open_store(const fs::path& path) {
  check_is_file(path);
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) fail_reading("read", path, error.value());
  const htri_t is_hdf5 = H5Fis_hdf5(path.c_str());
  if (is_hdf5 <= 0) {
    const H5Error reason = h5_error();
    if (is_hdf5 < 0 && reason.system_error != 0) fail_reading("read", path, reason.system_error);
    refuse_lfs_pointer(path);
    fail("{}: not an HDF5 file ({} bytes); give a checkpoint that focus wrote{}", path.string(),
         size, path.extension() == ".safetensors" ? ", or the folder of these weights" : "");
  }
  const H5Handle access = h5_file_access();  // to close it clears the error stack
  H5Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose);
  if (file < 0) {
    const H5Error reason = h5_error();
    const bool lock = reason.reason.find("lock") != std::string::npos;
    if (reason.system_error != 0 && !lock) fail_reading("read", path, reason.system_error);
    fail("{}: cannot be opened: {}; {}", path.string(), reason.reason,
         lock ? "another program writes to it, or the file system has no locks: in that case set "
                "HDF5_USE_FILE_LOCKING=FALSE"
              : "it is damaged or was cut short: use another copy");
  }
  return file;
}

}  // namespace

StoreReader::StoreReader(const fs::path& path) {
  h5_prepare();
  auto impl = std::make_shared<Impl>();
  impl->path = path;
  impl->file = open_store(path);
  impl->contents = scan_store(impl->file, path);
  impl_ = std::move(impl);
}

std::string StoreReader::describe() const { return impl_->name(); }

bool StoreReader::has(std::string_view path) const {
  const std::string key(path);
  return impl_->contents.datasets.contains(key) || impl_->contents.groups.contains(key);
}

bool StoreReader::has_attribute(std::string_view object, std::string_view name) const {
  const auto group = impl_->contents.groups.find(std::string(object));
  return group != impl_->contents.groups.end() && group->second.contains(std::string(name));
}

template <class Wanted>
Wanted StoreReader::attribute(std::string_view object, std::string_view name,
                              std::string_view wanted) const {
  const auto& group = impl_->group(object);
  const auto it = group.find(std::string(name));
  if (it == group.end()) fail("{}: group '{}' has no attribute '{}'", describe(), object, name);
  if (const auto* exact = std::get_if<Wanted>(&it->second)) return *exact;
  if constexpr (std::is_integral_v<Wanted>) {
    const auto* signed_number = std::get_if<std::int64_t>(&it->second);
    const auto* number = std::get_if<std::uint64_t>(&it->second);
    if (signed_number != nullptr && std::in_range<Wanted>(*signed_number))
      return static_cast<Wanted>(*signed_number);
    if (number != nullptr && std::in_range<Wanted>(*number)) return static_cast<Wanted>(*number);
  }
  fail("{}: attribute '{}' of group '{}' must be {}", describe(), name, object, wanted);
}
template std::string StoreReader::attribute(std::string_view, std::string_view,
                                            std::string_view) const;
template std::int64_t StoreReader::attribute(std::string_view, std::string_view,
                                             std::string_view) const;
template std::uint64_t StoreReader::attribute(std::string_view, std::string_view,
                                              std::string_view) const;
template double StoreReader::attribute(std::string_view, std::string_view, std::string_view) const;

std::string StoreReader::text(std::string_view path) const {
  const StoredDataset& info = impl_->dataset(path);
  if (info.type != "u8" || info.shape.size() != 1)
    fail("{}: data set '{}' must be a list of u8, but is [{}] of {}", describe(), path,
         fmt::join(info.shape, ", "), info.type);
  std::string text(info.bytes, '\0');
  impl_->read_into(path, std::as_writable_bytes(std::span(text)));
  return text;
}

std::vector<Index> StoreReader::shape(std::string_view path) const {
  return impl_->dataset(path).shape;
}

Tensor StoreReader::tensor(std::string_view path, const std::optional<Shape>& expected) const {
  const StoredDataset& info = impl_->dataset(path);
  const Dtype dtype = format_named(info.type);
  if (dtype == Dtype::other || info.shape.size() > 5) {
    fail("{}: data set '{}' is not a tensor: [{}] of {}", describe(), path,
         fmt::join(info.shape, ", "), info.type);
  }
  const Shape shape{std::span<const Index>(info.shape)};
  if (expected && !(shape == *expected)) {
    fail(
        "{}: tensor '{}' has shape {}, expected {}; the file belongs to a different model or "
        "config",
        describe(), path, shape, *expected);
  }
  return to_tensor(impl_->read(path), dtype, shape);
}

std::vector<std::string> StoreReader::list(std::string_view group) const {
  impl_->group(group);
  const std::string prefix = group == "/" ? "/" : std::string(group) + "/";
  std::set<std::string> names;
  const auto add = [&](const auto& objects) {
    for (auto it = objects.lower_bound(prefix);
         it != objects.end() && it->first.starts_with(prefix); ++it) {
      const std::string rest = it->first.substr(prefix.size());
      if (!rest.empty()) names.insert(rest.substr(0, rest.find('/')));
    }
  };
  add(impl_->contents.datasets);
  add(impl_->contents.groups);
  return {names.begin(), names.end()};
}

std::vector<std::string> StoreReader::all_datasets() const {
  std::vector<std::string> paths;
  for (const auto& entry : impl_->contents.datasets) paths.push_back(entry.first);
  return paths;
}

void StoreReader::verify() const {
  for (const auto& entry : impl_->contents.datasets) impl_->verify(entry.first);
}

std::unique_ptr<TensorSource> StoreReader::source(std::string_view prefix) const {
  impl_->group(prefix);
  return std::make_unique<StoreSource>(impl_, prefix == "/" ? "/" : std::string(prefix) + "/");
}

}  // namespace focus
