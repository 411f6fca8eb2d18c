#include "data/tensors/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/files/file_kind.h"
#include "data/files/input_file.h"
#include "data/files/json_reader.h"
#include "data/files/notice.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's
constexpr std::uint64_t kMaxIndexBytes = 100'000'000;
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kMetadata = "__metadata__";

struct StoredType {
  std::string_view name;
  unsigned bits;
  Dtype dtype;
};
constexpr std::array<StoredType, 22> kTypes = {{
    {"F64", 64, Dtype::f64},          {"F32", 32, Dtype::f32},
    {"F16", 16, Dtype::f16},          {"BF16", 16, Dtype::bf16},
    {"C64", 64, Dtype::other},        {"I64", 64, Dtype::other},
    {"U64", 64, Dtype::other},        {"I32", 32, Dtype::other},
    {"U32", 32, Dtype::other},        {"I16", 16, Dtype::other},
    {"U16", 16, Dtype::other},        {"I8", 8, Dtype::other},
    {"U8", 8, Dtype::other},          {"BOOL", 8, Dtype::other},
    {"F8_E4M3", 8, Dtype::other},     {"F8_E5M2", 8, Dtype::other},
    {"F8_E8M0", 8, Dtype::other},     {"F8_E4M3FNUZ", 8, Dtype::other},
    {"F8_E5M2FNUZ", 8, Dtype::other}, {"F4", 4, Dtype::other},
    {"F6_E2M3", 6, Dtype::other},     {"F6_E3M2", 6, Dtype::other},
}};

std::uint64_t whole_number(const JsonView& number) {
  if (!number.json().is_number_unsigned())
    fail("{}: must be a whole number from 0 and below 2^64, not {}", number.where(),
         shown_json(number.json()));
  return number.json().get<std::uint64_t>();
}

/// One tensor as the header declares it; `begin` counts from the end of the header.
TensorInfo read_tensor(const std::string& name, const JsonView& entry) {
  constexpr std::size_t kMaxNameBytes = 4096, kMaxRank = 64;
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
  const std::string& where = entry.where();
  if (name.size() > kMaxNameBytes)
    fail("{}: its name has {} bytes, more than {}", where, name.size(), kMaxNameBytes);
  for (const auto& [key, value] : entry.object().items())
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      fail("{}: unknown field '{}'; the format has dtype, shape and data_offsets", where,
           shown(key));
  TensorInfo info;
  info.name = name;
  info.stored_as = entry.at("dtype").string();
  const JsonView shape = entry.at("shape"), offsets = entry.at("data_offsets");
  if (shape.array_size() > kMaxRank)
    fail("{}: {} dimensions are too many", where, shape.array_size());
  std::uint64_t numbers = 1, bits = 0;
  for (std::size_t i = 0; i < shape.array_size(); ++i) {
    const std::uint64_t dim = whole_number(shape.item(i));
    if (dim > kMost) fail("{}: dimension {} is too large", where, dim);
    if (__builtin_mul_overflow(numbers, dim, &numbers) || numbers > kMost)
      fail("{}: the product of its shape does not fit 64 bits", where);
    info.shape.push_back(static_cast<Index>(dim));
  }
  if (offsets.array_size() != 2)
    fail("{}: data_offsets must be [begin, end], but holds {} numbers", where,
         offsets.array_size());
  info.begin = whole_number(offsets.item(0));
  const std::uint64_t end = whole_number(offsets.item(1));
  if (info.begin > end)
    fail("{}: data_offsets begin at {}, after their end {}", where, info.begin, end);
  info.bytes = end - info.begin;
  const auto type = std::ranges::find(kTypes, info.stored_as, &StoredType::name);
  info.dtype = type == kTypes.end() ? Dtype::other : type->dtype;
  if (type == kTypes.end()) return info;  // a type of the future: its size is unknown
  if (__builtin_mul_overflow(numbers, std::uint64_t{type->bits}, &bits))
    fail("{}: the size of its shape does not fit 64 bits", where);
  if (bits % 8 != 0 || bits / 8 != info.bytes)
    fail("{}: its shape and {} need {} bytes, but data_offsets hold {}", where, type->name,
         (bits + 7) / 8, info.bytes);
  return info;
}

/// The tensors must tile the data: no gap (a hiding place), no overlap, nothing left over.
void check_tiling(const std::vector<TensorInfo>& tensors, std::uint64_t data_bytes,
                  const std::string& file) {
  std::vector<const TensorInfo*> by_offset;
  for (const TensorInfo& info : tensors) by_offset.push_back(&info);
  std::ranges::sort(by_offset, {},
                    [](const TensorInfo* info) { return std::pair(info->begin, info->bytes); });
  std::uint64_t end = 0;
  for (const TensorInfo* info : by_offset) {
    if (info->begin != end)
      fail("{}: tensor '{}' begins at byte {} of the data, but the one before it ends at {}: {}",
           file, shown(info->name), info->begin, end,
           info->begin > end ? "there is a gap" : "they overlap");
    end += info->bytes;
    if (end > data_bytes)
      fail(
          "{}: tensor '{}' ends at byte {} of the data, but the file holds only {}: it was cut "
          "short; get it again",
          file, shown(info->name), end, data_bytes);
  }
  if (end != data_bytes)
    fail("{}: {} bytes follow the last tensor; the format allows none", file, data_bytes - end);
}

/// The tensors that a file's header declares, held to every rule of the format.
std::vector<TensorInfo> read_header(const InputFile& file, const std::string& path) {
  constexpr std::size_t kMaxTensors = 1'000'000;
  std::uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes))
    fail(
        "{}: not a safetensors file: it has {} bytes, fewer than the 8 of the header's size; get "
        "it again",
        path, file.size());
  file.read_at(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > kMaxHeaderBytes) {
    refuse_lfs_pointer(path);
    fail("{}: not a safetensors file: its header has {} bytes, the format allows {}", path,
         header_bytes, kMaxHeaderBytes);
  }
  const std::uint64_t data_begin = sizeof(header_bytes) + header_bytes;
  if (data_begin > file.size())
    fail("{}: the header needs {} bytes, but the file has {}: it was cut short; get it again", path,
         data_begin, file.size());
  std::string text(header_bytes, '\0');
  file.read_at(sizeof(header_bytes), std::as_writable_bytes(std::span(text)));
  if (text.empty() || text[0] != '{') fail("{}: the header does not start with '{{'", path);
  // Spaces may pad the header, other white space may not.
  if (text.find_last_not_of(' ') != text.rfind('}'))
    fail("{}: the header does not end with '}}' and spaces", path);
  const nlohmann::json header = parse_strict_json(text, path + ": header");
  if (header.size() > kMaxTensors) fail("{}: more than {} tensors", path, kMaxTensors);
  std::vector<TensorInfo> tensors;
  for (const auto& [name, value] : header.items()) {
    const JsonView entry(value, fmt::format("{}: tensor '{}'", path, shown(name)));
    if (name != kMetadata)
      tensors.push_back(read_tensor(name, entry));
    else
      for (const auto& [key, text_of_key] : entry.object().items())
        JsonView(text_of_key, fmt::format("{}: {}.{}", path, name, shown(key))).string();
  }
  check_tiling(tensors, file.size() - data_begin, path);
  for (TensorInfo& info : tensors) info.begin += data_begin;
  return tensors;
}

/// Tensor name -> shard.
std::map<std::string, std::string> read_weight_map(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) fail_reading("read", path, error.value());
  if (size > kMaxIndexBytes) fail("{}: {} bytes are too many for an index", path.string(), size);
  const nlohmann::json index = parse_strict_json(read_file(path), path.string());
  const JsonView map = JsonView(index, path.string()).at("weight_map");
  std::map<std::string, std::string> shard_of;
  for (const auto& [name, value] : map.object().items()) {
    const std::string& file =
        JsonView(value, fmt::format("{}.{}", map.where(), shown(name))).string();
    const auto is_foreign = [](unsigned char c) { return c < 0x20 || c == '/' || c == '\\'; };
    if (file.empty() || file == "." || file == ".." || std::ranges::any_of(file, is_foreign))
      fail("{}: the file of '{}' must be a plain file name, not '{}'", path.string(), shown(name),
           shown(file));
    shard_of.emplace(name, file);
  }
  return shard_of;
}

/// Several files that an index ties together. It says which of them a tensor is read from: other
/// copies of it, and tensors that it does not name, are left where they are.
class ShardedSafetensors : public TensorFiles {
 public:
  explicit ShardedSafetensors(const fs::path& index) : TensorFiles(index), index_(index) {
    std::map<std::string, std::map<std::string, TensorInfo>> shards;  // by file and name
    const std::map<std::string, std::string> shard_of = read_weight_map(index);
    for (const auto& [name, file] : shard_of) shards[file];
    std::size_t number = 0, others = 0;
    std::string first;
    for (auto& [file, tensors] : shards) {
      const fs::path path = index.parent_path() / file;
      if (!is_there(path))
        fail("{}: it names {}, which is not in the same folder: get all the files of the model",
             index.string(), shown(file));
      for (TensorInfo& info : read_header(open(path).file, path.string())) {
        const auto named = shard_of.find(info.name);
        if (named == shard_of.end() || named->second != file) {
          if (others++ == 0) first = fmt::format("'{}' in {}", shown(info.name), shown(file));
          continue;
        }
        info.file = number;
        tensors.emplace(info.name, std::move(info));
      }
      ++number;
    }
    std::vector<TensorInfo> tensors;
    for (const auto& [name, file] : shard_of) {
      const auto found = shards[file].find(name);
      if (found == shards[file].end())
        fail("{}: tensor '{}' is not in {}, where the index puts it", index.string(), shown(name),
             shown(file));
      tensors.push_back(std::move(found->second));
    }
    set_tensors(std::move(tensors));
    if (others > 0)
      notice(
          "{}: {} tensors of its files are ignored, the first {}: the index names other files for "
          "them or does not list them",
          index.string(), others, first);
  }

  std::vector<fs::path> files() const override {
    std::vector<fs::path> all = TensorFiles::files();
    all.insert(all.begin(), index_);
    return all;
  }

 private:
  fs::path index_;
};

/// The header's size and its JSON, padded so that the data is aligned.
std::string make_header(const std::string& path,
                        const std::vector<std::pair<std::string, Shape>>& tensors, Dtype dtype,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  const auto type = std::ranges::find(kTypes, dtype, &StoredType::dtype);
  check(dtype != Dtype::other && type != kTypes.end(), "safetensors: {} cannot be written",
        name_of(dtype));
  std::uint64_t offset = 0;
  std::set<std::string> names;
  for (const auto& [name, shape] : tensors) {
    check(!name.empty() && name != kMetadata, "{}: '{}' is not a valid tensor name", path, name);
    check(names.insert(name).second, "{}: tensor '{}' appears twice", path, name);
    const std::uint64_t end = offset + bytes_of(dtype, shape.size());
    const std::vector<Index> dims(shape.dims().begin(), shape.dims().end());
    header[name] = {
        {"dtype", std::string(type->name)}, {"shape", dims}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string json;
  try {
    json = header.dump();
  } catch (const nlohmann::json::exception& error) {
    check(false, "{}: a name or value in the metadata is not UTF-8: {}", path, error.what());
  }
  json.resize((json.size() + 7) / 8 * 8, ' ');
  check(json.size() <= kMaxHeaderBytes,
        "{}: the names and metadata need {} bytes, the format allows {}", path, json.size(),
        kMaxHeaderBytes);
  const std::uint64_t size = json.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + json;
}

std::vector<AnnouncedTensor> announced(const std::vector<std::pair<std::string, Shape>>& tensors,
                                       Dtype dtype) {
  std::vector<AnnouncedTensor> all;
  for (const auto& [name, shape] : tensors) all.push_back({name, shape, dtype});
  return all;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const fs::path& path) : TensorFiles(path) {
  set_tensors(read_header(open(path).file, path.string()));
}

std::unique_ptr<TensorSource> open_safetensors_folder(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    fail("{}: not a folder; give the one that holds config.json and {}", folder.string(),
         kSingleFile);
  }
  const bool single = is_there(folder / kSingleFile), sharded = is_there(folder / kIndexFile);
  if (single && sharded)
    notice("{}: {} and {} both exist; the former is read", folder.string(), kSingleFile,
           kIndexFile);
  if (single) return std::make_unique<SafetensorsFile>(folder / kSingleFile);
  if (sharded) return std::make_unique<ShardedSafetensors>(folder / kIndexFile);
  const bool pickled = fs::exists(folder / "pytorch_model.bin") ||
                       fs::exists(folder / "pytorch_model.bin.index.json");
  fail("{}: it has neither {} nor {}{}", folder.string(), kSingleFile, kIndexFile,
       pickled ? "; .bin files can run code and are not supported: convert them to safetensors"
               : "");
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path,
                                     const std::vector<std::pair<std::string, Shape>>& tensors,
                                     Dtype dtype,
                                     const std::map<std::string, std::string>& metadata)
    : TensorFileWriter(path, make_header(path.string(), tensors, dtype, metadata),
                       announced(tensors, dtype), 1) {}

void SafetensorsWriter::commit() {
  TensorFileWriter::commit([](const fs::path& written) { SafetensorsFile read_back(written); });
}

void write_safetensors(const fs::path& path, std::vector<std::pair<std::string, Tensor>> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::ranges::sort(tensors, {}, &std::pair<std::string, Tensor>::first);
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const auto& [name, tensor] : tensors) {
    check(tensor.defined(), "{}: tensor '{}' is undefined", path.string(), name);
    shapes.emplace_back(name, tensor.shape());
  }
  SafetensorsWriter writer(path, shapes, Dtype::f32, metadata);
  for (const auto& [name, tensor] : tensors) writer.add(name, tensor);
  writer.commit();
}

}  // namespace focus
