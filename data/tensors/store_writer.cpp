#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <bit>

#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "autograd/version.h"
#include "data/files/checksum.h"
#include "data/files/durable_file.h"
#include "data/tensors/store_scan.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

static_assert(std::endian::native == std::endian::little,
              "data sets are written in native byte order");

constexpr std::size_t kCompactBytes = 8 << 10;  // up to here inside the object's header
// All others begin at a page of the file, so that they can be mapped into memory: elsewhere numbers
// might lie across their own size.
constexpr std::size_t kAlignedBytes = kCompactBytes;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kMaxAttributeBytes = 60'000;  // an object header holds 64 KB

constexpr std::size_t kHeldBack = 8 << 20;  // libhdf5 takes some 2 MB for a file
std::optional<MemoryReserve>& held_back() {
  static std::optional<MemoryReserve> reserve;
  return reserve;
}

/// As long as it lives, what prepare_stores() holds back is free.
struct ReserveReleased {
  ReserveReleased() {
    if (held_back()) held_back()->release();
  }
  ~ReserveReleased() {
    if (held_back()) held_back()->retake();
  }
  ReserveReleased(const ReserveReleased&) = delete;
  ReserveReleased& operator=(const ReserveReleased&) = delete;
};

}  // namespace

std::string store_path(std::string_view prefix, std::string_view tensor_name) {
  std::string path = fmt::format("{}/{}", prefix, tensor_name);
  std::replace(path.begin() + static_cast<std::ptrdiff_t>(prefix.size()), path.end(), '.', '/');
  return path;
}

struct StoreWriter::Impl {
  explicit Impl(const fs::path& target) : durable(target) {}
  ~Impl() { abandon(); }

  ReserveReleased memory;
  DurableFile durable;
  H5Handle file;
  StoreContents contents = {.datasets = {}, .groups = {{"/", {}}}};

  std::string name() const { return durable.target().string(); }

  /// Lets all that is still to be written go nowhere. After a write that failed the library can
  /// neither close the file nor end the process in order (1.10 crashes), as long as its disk
  /// refuses what it holds in its caches.
  void abandon() const noexcept {
    int* descriptor = nullptr;
    if (file < 0 ||
        H5Fget_vfd_handle(file, H5P_DEFAULT, reinterpret_cast<void**>(&descriptor)) < 0) {
      return;
    }
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nowhere < 0) return;
    dup2(nowhere, *descriptor);
    close(nowhere);
  }

  /// Passes a result of the library on, or throws what its error stack says.
  template <class Result>
  Result want(Result result, std::string_view object) const {
    if (result < 0) {
      const H5Error error = h5_error();
      abandon();
      refuse(error, object);
    }
    return result;
  }
  [[noreturn]] void refuse(const H5Error& error, std::string_view object) const {
    if (error.system_error != 0) fail_writing("write", durable.target(), error.system_error);
    fail("cannot write {}: object '{}': {}", name(), object, error.reason);
  }
  H5Handle handle(hid_t id, H5Handle::Close close, std::string_view object) const {
    return {want(id, object), close};
  }

  void check_path(const std::string& path) const {
    check(file >= 0, "{}: written after commit", name());
    bool sound = path.size() > 1 && path[0] == '/' && path.back() != '/' &&
                 path.find('\0') == std::string::npos;
    for (std::size_t at = 0; sound && at != std::string::npos; at = path.find('/', at + 1)) {
      const std::string_view rest = std::string_view(path).substr(at + 1);
      const std::string_view part = rest.substr(0, rest.find('/'));
      sound = !part.empty() && part != "." && part != "..";
    }
    check(sound, "{}: '{}' is not a valid path; it must look like /group/name", name(), path);
  }

  void ensure_group(const std::string& path) {
    if (contents.groups.contains(path)) return;
    check_path(path);
    check(!contents.datasets.contains(path), "{}: '{}' is a data set and cannot be a group", name(),
          path);
    ensure_group(fs::path(path).parent_path());
    const H5Handle create = handle(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, path);
    want(H5Pset_obj_track_times(create, false), path);
    handle(H5Gcreate2(file, path.c_str(), H5P_DEFAULT, create, H5P_DEFAULT), H5Gclose, path);
    contents.groups[path];
  }

  // Strings have a fixed length: those of variable length lie outside the library's checksums.
  void put_attribute(hid_t object, const std::string& path, const std::string& key,
                     const AttributeValue& value) {
    const H5Handle space = handle(H5Screate(H5S_SCALAR), H5Sclose, path);
    const auto put = [&](hid_t type, const void* data) {
      const H5Handle attribute =
          handle(H5Acreate2(object, key.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                 fmt::format("{}@{}", path, key));
      want(H5Awrite(attribute, type, data), path);
    };
    if (const auto* text = std::get_if<std::string>(&value)) {
      const H5Handle type = handle(H5Tcopy(H5T_C_S1), H5Tclose, path);
      want(H5Tset_size(type, text->size() + 1), path);
      want(H5Tset_cset(type, H5T_CSET_UTF8), path);
      put(type, text->c_str());
    } else if (const auto* signed_number = std::get_if<std::int64_t>(&value)) {
      put(H5T_STD_I64LE, signed_number);
    } else if (const auto* number = std::get_if<std::uint64_t>(&value)) {
      put(H5T_STD_U64LE, number);
    } else {
      put(H5T_IEEE_F64LE, &std::get<double>(value));
    }
  }

  /// `shape` counts items of `type`; `digested` is the shape that the digest has.
  void put_dataset(const std::string& path, std::string_view type_name, hid_t type,
                   std::span<const Index> shape, std::span<const Index> digested,
                   std::span<const std::byte> bytes) {
    check_path(path);
    check(!contents.groups.contains(path) && !contents.datasets.contains(path),
          "{}: '{}' exists already", name(), path);
    ensure_group(fs::path(path).parent_path());

    const std::vector<hsize_t> dims(shape.begin(), shape.end());
    const H5Handle space =
        handle(dims.empty() ? H5Screate(H5S_SCALAR)
                            : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
               H5Sclose, path);
    const H5Handle create = handle(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, path);
    want(H5Pset_obj_track_times(create, false), path);
    // Larger ones lie in one piece; what the library's own checksums would find, xxh3 finds.
    if (bytes.size() <= kCompactBytes) want(H5Pset_layout(create, H5D_COMPACT), path);
    const H5Handle dataset =
        handle(H5Dcreate2(file, path.c_str(), type, space, H5P_DEFAULT, create, H5P_DEFAULT),
               H5Dclose, path);
    StoredDataset& stored = contents.datasets[path];
    const auto write = [&] {
      return H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data());
    };
    if (!bytes.empty() && write() < 0) {
      const H5Error error = h5_error();
      // Once more, to nowhere: what was given room and never written the library would cut off when
      // it closes the file, and nowhere cannot be cut.
      abandon();
      write();
      refuse(error, path);
    }
    stored = {.type = std::string(type_name),
              .shape = {digested.begin(), digested.end()},
              .bytes = bytes.size(),
              .checksum = xxh3_hex(bytes)};
    put_attribute(dataset, path, "xxh3", stored.checksum);
    // HDF5 has no name for them: 16-bit floats lie as 16-bit integers and blocks as bytes, with a
    // word that says which.
    if (type_name == "f16" || type_name == "bf16" || in_blocks(format_named(type_name))) {
      put_attribute(dataset, path, "dtype", std::string(type_name));
    }
    want(H5Dflush(dataset), path);  // here, because a close that fails cannot be mended
  }
};

void prepare_stores() {
  h5_prepare();
  if (!held_back()) held_back().emplace(kHeldBack);
}

StoreWriter::StoreWriter(const fs::path& target, const std::string& kind)
    : impl_(std::make_unique<Impl>(target)) {
  h5_prepare();
  const H5Handle create = impl_->handle(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "/");
  impl_->want(H5Pset_obj_track_times(create, false), "/");
  const H5Handle access = h5_file_access();
  impl_->want(H5Pset_alignment(access, kAlignedBytes, kPageBytes), "/");
  impl_->file = impl_->handle(
      H5Fcreate(impl_->durable.temporary().c_str(), H5F_ACC_EXCL, create, access), H5Fclose, "/");
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  attribute("/", "format", "focus");
  attribute("/", "format_version", kStoreVersion);
  attribute("/", "creator", "focus");
  attribute("/", "creator_version", FOCUS_VERSION);
  attribute("/", "hdf5_version", fmt::format("{}.{}.{}", major, minor, release));
  attribute("/", "kind", kind);
}

StoreWriter::~StoreWriter() = default;

void StoreWriter::attribute(const std::string& group, const std::string& name,
                            const AttributeValue& value) {
  check(impl_->file >= 0, "{}: written after commit", impl_->name());
  check(!name.empty() && name.find('\0') == std::string::npos && name != "digest",
        "{}: '{}' is not a valid attribute name", impl_->name(), name);
  if (const auto* text = std::get_if<std::string>(&value)) {
    check(text->find('\0') == std::string::npos, "{}: attribute '{}' of '{}' holds a NUL byte",
          impl_->name(), name, group);
    check(text->size() <= kMaxAttributeBytes,
          "{}: attribute '{}' of '{}' has {} bytes, at most {}; use text()", impl_->name(), name,
          group, text->size(), kMaxAttributeBytes);
  }
  impl_->ensure_group(group);
  const H5Handle object =
      impl_->handle(H5Gopen2(impl_->file, group.c_str(), H5P_DEFAULT), H5Gclose, group);
  check(H5Aexists(object, name.c_str()) == 0, "{}: attribute '{}' of '{}' exists already",
        impl_->name(), name, group);
  impl_->put_attribute(object, group, name, value);
  impl_->contents.groups[group][name] = value;
}

void StoreWriter::text(const std::string& path, std::string_view bytes) {
  const Index size = static_cast<Index>(bytes.size());
  const std::span<const Index> shape(&size, 1);
  impl_->put_dataset(path, "u8", H5T_STD_U8LE, shape, shape, std::as_bytes(std::span(bytes)));
}

void StoreWriter::tensor(const std::string& path, const Tensor& tensor) {
  check(tensor.defined(), "{}: tensor '{}' is undefined", impl_->name(), path);
  tensor_raw(path, tensor.shape().dims(), kRealDtype, std::as_bytes(tensor.span()));
}

void StoreWriter::tensor_raw(const std::string& path, std::span<const Index> shape, Dtype dtype,
                             std::span<const std::byte> bytes) {
  Index numbers = 1;
  for (const Index dim : shape) numbers *= dim;
  const std::size_t wanted = bytes_of(dtype, numbers);
  check(dtype != Dtype::other && wanted == bytes.size(),
        "{}: tensor '{}' [{}] of {} needs {} bytes, got {}", impl_->name(), path,
        fmt::join(shape, ", "), name_of(dtype), wanted, bytes.size());
  if (in_blocks(dtype)) {
    check(shape.size() == 2 && shape[0] > 0 && shape[1] > 0 && shape[1] % block_numbers(dtype) == 0,
          "{}: tensor '{}' [{}] is not a matrix with rows of whole blocks of {}", impl_->name(),
          path, fmt::join(shape, ", "), name_of(dtype));
    const std::array<Index, 2> lines = {shape[0], static_cast<Index>(bytes_of(dtype, shape[1]))};
    impl_->put_dataset(path, name_of(dtype), H5T_STD_U8LE, lines, shape, bytes);
    return;
  }
  const hid_t type = dtype == Dtype::f32   ? H5T_IEEE_F32LE
                     : dtype == Dtype::f64 ? H5T_IEEE_F64LE
                                           : H5T_STD_U16LE;
  impl_->put_dataset(path, name_of(dtype), type, shape, shape, bytes);
}

void StoreWriter::commit() {
  check(impl_->file >= 0, "{}: committed twice", impl_->name());
  {
    const H5Handle root = impl_->handle(H5Gopen2(impl_->file, "/", H5P_DEFAULT), H5Gclose, "/");
    impl_->put_attribute(root, "/", "digest", store_digest(impl_->contents));
  }
  impl_->want(H5Fflush(impl_->file, H5F_SCOPE_GLOBAL), "/");
  impl_->want(impl_->file.close(), "/");
  impl_->durable.commit([](const fs::path& written) { StoreReader(written).verify(); });
}

}  // namespace focus
