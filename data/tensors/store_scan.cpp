#include "data/tensors/store_scan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <set>

#include "autograd/base/check.h"
#include "autograd/gemm/number_format.h"
#include "data/files/checksum.h"
#include "data/files/json_reader.h"
#include "data/files/utf8.h"

namespace focus {
namespace {

constexpr int kMaxStoreDepth = 32;
constexpr std::size_t kMaxStringBytes = 64 << 10;

#if H5_VERSION_GE(1, 12, 0)
using ObjectInfo = H5O_info1_t;
#else
using ObjectInfo = H5O_info_t;
#endif

class Scan {
 public:
  Scan(hid_t file, const std::filesystem::path& path)
      : file_(file), name_(path.string()), file_bytes_(std::filesystem::file_size(path)) {}

  StoreContents run() {
    check_format();
    walk("/", 0);
    check_digest();
    return std::move(contents_);
  }

 private:
  [[noreturn]] void refuse(const std::string& path, std::string_view why) const {
    fail("{}: object '{}': {}", name_, path, why);
  }
  H5Handle handle(hid_t id, H5Handle::Close close, const std::string& path) const {
    if (id < 0) h5_fail_reading(name_, path);
    return {id, close};
  }

  /// First of all: the files of other formats have other attributes.
  void check_format() const {
    const H5Handle root = handle(H5Gopen2(file_, "/", H5P_DEFAULT), H5Gclose, "/");
    const auto value = [&](const char* name) -> AttributeValue {
      if (H5Aexists(root, name) <= 0) return "";
      return read_attribute(handle(H5Aopen(root, name, H5P_DEFAULT), H5Aclose, "/"),
                            fmt::format("/@{}", name));
    };
    if (value("format") != AttributeValue("focus"))
      fail("{}: an HDF5 file, but not a focus checkpoint: its attribute 'format' is not \"focus\"",
           name_);
    const AttributeValue version = value("format_version");
    const auto* number = std::get_if<std::int64_t>(&version);
    if (number == nullptr) fail("{}: its attribute 'format_version' is not a version", name_);
    if (*number != kStoreVersion)
      fail(
          "{}: written in format version {}, but this program reads version {}: use the focus that "
          "wrote it, or create it again",
          name_, *number, kStoreVersion);
  }

  /// Messages contain names, and a message is one line.
  void check_name(const std::string& name, const std::string& path) const {
    const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
    if (!is_valid_utf8(name) || std::ranges::any_of(name, is_control)) {
      refuse(path, fmt::format("its name is not text, {}", json_quoted(name)));
    }
  }

  void walk(const std::string& path, int depth) {
    if (depth > kMaxStoreDepth)
      refuse(path, fmt::format("groups nested deeper than {}", kMaxStoreDepth));
    const H5Handle object = handle(H5Oopen(file_, path.c_str(), H5P_DEFAULT), H5Oclose, path);
    ObjectInfo info;
    if (H5Oget_info2(object, &info, H5O_INFO_BASIC) < 0) h5_fail_reading(name_, path);
    if (!seen_.insert(info.addr).second) refuse(path, "it is reached by two names, or in a cycle");
    if (info.type == H5O_TYPE_DATASET) {
      contents_.datasets.emplace(path, inspect(object, path));
      return;
    }
    if (info.type != H5O_TYPE_GROUP) refuse(path, "neither a group nor a data set");
    contents_.groups.emplace(path, read_attributes(object, path));
    const std::string prefix = path == "/" ? path : path + "/";
    for (const auto& [name, kind] : h5_links(object, name_ + ": object '" + path + "'")) {
      check_name(name, path);
      const std::string child = prefix + name;
      if (kind != H5L_TYPE_HARD) {
        refuse(child, "a link; only objects in the file itself are supported");
      }
      walk(child, depth + 1);
    }
  }

  StoredDataset inspect(hid_t dataset, const std::string& path) const {
    const H5Handle create = handle(H5Dget_create_plist(dataset), H5Pclose, path);
    const H5D_layout_t layout = H5Pget_layout(create);
    if ((layout != H5D_COMPACT && layout != H5D_CONTIGUOUS) || H5Pget_external_count(create) != 0)
      refuse(path, "its data is not in one piece in this file");
    const H5Handle type = handle(H5Dget_type(dataset), H5Tclose, path);
    const H5Handle space = handle(H5Dget_space(dataset), H5Sclose, path);
    StoredDataset found;
    std::uint64_t bytes = H5Tget_size(type);
    for (const hsize_t dim : h5_dims(space, name_ + ": object '" + path + "'")) {
      if (__builtin_mul_overflow(bytes, dim, &bytes) || dim > (hsize_t{1} << 62))
        refuse(path, "its shape does not fit 64 bits");
      found.shape.push_back(static_cast<Index>(dim));
    }
    const auto attributes = read_attributes(dataset, path);
    found.type = type_name(type, attributes, path);
    found.bytes = bytes;
    if (const hsize_t stored = H5Dget_storage_size(dataset); stored < bytes)
      refuse(path, fmt::format("declares {} bytes but stores {}; use another copy", bytes, stored));
    if (layout == H5D_CONTIGUOUS && bytes > 0) {
      found.offset = H5Dget_offset(dataset);
      if (*found.offset > file_bytes_ || bytes > file_bytes_ - *found.offset)
        refuse(path, "it reaches beyond the end of the file; use another copy");
    }
    const std::string* checksum = text_of(attributes, "xxh3");
    if (checksum == nullptr) refuse(path, "it has no checksum (attribute 'xxh3')");
    found.checksum = *checksum;
    const NumberFormat format = format_named(found.type);
    if (!in_blocks(format)) return found;
    // From bytes [rows, bytes of a row] to the matrix [rows, cols] that they encode.
    const auto block = static_cast<Index>(bytes_of(format, block_numbers(format)));
    if (found.shape.size() != 2 || found.bytes == 0 || found.shape[1] % block != 0)
      refuse(path, fmt::format("[{}] bytes are not rows of {} blocks of {}",
                               fmt::join(found.shape, ", "), name_of(format), block));
    found.shape[1] = found.shape[1] / block * block_numbers(format);
    return found;
  }

  using Attributes = std::map<std::string, AttributeValue>;
  /// The text of an attribute; null where it has none.
  static const std::string* text_of(const Attributes& attributes, const char* name) {
    const auto found = attributes.find(name);
    return found == attributes.end() ? nullptr : std::get_if<std::string>(&found->second);
  }

  std::string type_name(hid_t type, const Attributes& attributes, const std::string& path) const {
    if (H5Tequal(type, H5T_IEEE_F32LE) > 0) return "f32";
    if (H5Tequal(type, H5T_IEEE_F64LE) > 0) return "f64";
    if (H5Tequal(type, H5T_STD_U64LE) > 0) return "u64";
    const std::string* text = text_of(attributes, "dtype");
    if (H5Tequal(type, H5T_STD_U8LE) > 0) {
      if (!attributes.contains("dtype")) return "u8";
      if (text != nullptr && in_blocks(format_named(*text))) return *text;
      refuse(path, "its attribute 'dtype' is not a known GGML block type");
    }
    if (H5Tequal(type, H5T_STD_U16LE) > 0) {
      if (text != nullptr && (*text == "f16" || *text == "bf16")) return *text;
      refuse(path, "its data has 16 bits, but its attribute 'dtype' is neither f16 nor bf16");
    }
    refuse(path,
           "its type is not supported in a checkpoint file (little-endian f32, f64, u8, u16, u64 "
           "are)");
  }

  Attributes read_attributes(hid_t object, const std::string& path) const {
    const int count = H5Aget_num_attrs(object);
    if (count < 0) h5_fail_reading(name_, path);
    Attributes found;
    for (int i = 0; i < count; ++i) {
      const H5Handle attribute =
          handle(H5Aopen_by_idx(object, ".", H5_INDEX_NAME, H5_ITER_INC, static_cast<hsize_t>(i),
                                H5P_DEFAULT, H5P_DEFAULT),
                 H5Aclose, path);
      const ssize_t length = H5Aget_name(attribute, 0, nullptr);
      if (length < 0) h5_fail_reading(name_, path);
      std::string name(static_cast<std::size_t>(length), '\0');
      H5Aget_name(attribute, name.size() + 1, name.data());
      check_name(name, path);
      found.emplace(name, read_attribute(attribute, fmt::format("{}@{}", path, name)));
    }
    return found;
  }

  AttributeValue read_attribute(hid_t attribute, const std::string& path) const {
    const H5Handle space = handle(H5Aget_space(attribute), H5Sclose, path);
    if (H5Sget_simple_extent_type(space) != H5S_SCALAR)
      refuse(path, "an attribute must be a single value");
    const H5Handle type = handle(H5Aget_type(attribute), H5Tclose, path);
    const auto number = [&](hid_t stored, auto value) {
      if (H5Aread(attribute, stored, &value) < 0) h5_fail_reading(name_, path);
      return value;
    };
    if (H5Tequal(type, H5T_STD_I64LE) > 0) return number(H5T_STD_I64LE, std::int64_t{});
    if (H5Tequal(type, H5T_STD_U64LE) > 0) return number(H5T_STD_U64LE, std::uint64_t{});
    if (H5Tequal(type, H5T_IEEE_F64LE) > 0) return number(H5T_IEEE_F64LE, double{});
    if (H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0)
      return read_string(attribute, type, path);
    refuse(path, "an attribute must be a string of fixed length or a 64-bit number");
  }

  std::string read_string(hid_t attribute, hid_t type, const std::string& path) const {
    std::string text(std::min(H5Tget_size(type), kMaxStringBytes + 1), '\0');
    if (text.size() > kMaxStringBytes) refuse(path, "the string is too long");
    if (H5Aread(attribute, type, text.data()) < 0) h5_fail_reading(name_, path);
    text.resize(text.find_last_not_of('\0') + 1);
    if (text.find('\0') != std::string::npos) refuse(path, "the string holds a NUL byte");
    return text;
  }

  void check_digest() const {
    const auto& root = contents_.groups.at("/");
    const auto stored = root.find("digest");
    if (stored == root.end())
      fail("{}: attribute 'digest' is missing: the file was not written completely", name_);
    if (stored->second != AttributeValue(store_digest(contents_)))
      fail(
          "{}: names and attributes do not match its attribute 'digest': the file was changed or "
          "damaged after it was written; use another copy",
          name_);
  }

  hid_t file_;
  std::string name_;
  std::uint64_t file_bytes_;
  std::set<haddr_t> seen_;
  StoreContents contents_;
};

/// With its length in front, so that no two lists of texts give the same line.
std::string field(std::string_view text) { return fmt::format("{}:{}", text.size(), text); }

struct ValueText {
  std::string operator()(const std::string& value) const { return "string " + field(value); }
  std::string operator()(std::int64_t value) const { return fmt::format("int64 {}", value); }
  std::string operator()(std::uint64_t value) const { return fmt::format("uint64 {}", value); }
  std::string operator()(double value) const {
    return fmt::format("float64 {:016x}", std::bit_cast<std::uint64_t>(value));
  }
};

}  // namespace

std::string store_digest(const StoreContents& contents) {
  std::set<std::string> lines;
  for (const auto& [path, dataset] : contents.datasets)
    lines.insert(fmt::format("dataset {} {} [{}] {}\n", field(path), dataset.type,
                             fmt::join(dataset.shape, ","), dataset.checksum));
  for (const auto& [path, attributes] : contents.groups)
    for (const auto& [name, value] : attributes)
      if (path != "/" || name != "digest")
        lines.insert(fmt::format("attribute {} {} {}\n", field(path), field(name),
                                 std::visit(ValueText(), value)));
  Checksum checksum;
  for (const std::string& line : lines) checksum.update(line);
  return checksum.hex();
}

StoreContents scan_store(hid_t file, const std::filesystem::path& path) {
  return Scan(file, path).run();
}

}  // namespace focus
