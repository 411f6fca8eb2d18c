#include "data/tensors/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/files/file_kind.h"
#include "data/files/json_reader.h"
#include "data/files/notice.h"
#include "data/files/read_file.h"
#include "data/tensors/safetensors_header.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::uint64_t kMaxIndexBytes = 100'000'000;
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

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
    if (file.empty() || file == "." || file == ".." || std::ranges::any_of(file, is_foreign)) {
      fail("{}: the file of '{}' must be a plain file name, not '{}'", path.string(), shown(name),
           shown(file));
    }
    shard_of.emplace(name, file);
  }
  return shard_of;
}

/// Several files that an index ties together.
class ShardedSafetensors : public TensorSource {
 public:
  explicit ShardedSafetensors(const fs::path& index) : index_(index) {
    const std::map<std::string, std::string> shard_of = read_weight_map(index);
    for (const auto& [name, file] : shard_of) {
      auto& shard = shards_[file];
      if (shard == nullptr) {
        const fs::path path = index.parent_path() / file;
        if (!is_there(path)) {
          fail("{}: it names {}, which is not in the same folder: get all the files of the model",
               index.string(), shown(file));
        }
        shard = std::make_unique<SafetensorsFile>(path);
      }
      const TensorInfo* info = shard->find(name);
      if (info == nullptr) {
        fail("{}: tensor '{}' is not in {}, where the index puts it", index.string(), shown(name),
             shown(file));
      }
      tensors_.push_back(*info);
      file_of_.push_back(shard.get());
    }
    tell_of_others(shard_of);
  }

  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  std::string describe() const override { return index_.string(); }
  void read_raw(std::string_view name, std::vector<std::byte>& bytes) const override {
    file_of(name).read_raw(name, bytes);
  }
  void read_into(std::string_view name, std::span<std::byte> out) const override {
    file_of(name).read_into(name, out);
  }
  std::optional<TensorBytes> map(std::string_view name) const override {
    return file_of(name).map(name);
  }
  std::vector<fs::path> files() const override {
    std::vector<fs::path> all = {index_};
    for (const auto& [file, shard] : shards_) all.push_back(index_.parent_path() / file);
    return all;
  }

 private:
  /// The index says where a tensor is read from: other copies of it, and tensors that it does not
  /// name, are left where they are.
  void tell_of_others(const std::map<std::string, std::string>& shard_of) const {
    std::size_t others = 0;
    std::string first;
    for (const auto& [file, shard] : shards_)
      for (const TensorInfo& info : shard->tensors()) {
        const auto named = shard_of.find(info.name);
        if (named != shard_of.end() && named->second == file) continue;
        if (others++ == 0) first = fmt::format("'{}' in {}", shown(info.name), shown(file));
      }
    if (others > 0)
      notice(
          "{}: {} tensors of its files are ignored, the first {}: the index names other files for "
          "them or does not list them",
          index_.string(), others, first);
  }

  const SafetensorsFile& file_of(std::string_view name) const {
    const TensorInfo* info = find(name);
    if (info == nullptr) fail("{}: there is no tensor '{}'", describe(), name);
    return *file_of_[static_cast<std::size_t>(info - tensors_.data())];
  }

  fs::path index_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> shards_;
  std::vector<TensorInfo> tensors_;              // sorted by name, as the map they come from
  std::vector<const SafetensorsFile*> file_of_;  // of each tensor
};

}  // namespace

SafetensorsFile::SafetensorsFile(fs::path path) : path_(std::move(path)), file_(path_) {
  std::uint64_t header_bytes = 0;
  if (file_.size() < sizeof(header_bytes)) {
    fail(
        "{}: not a safetensors file: it has {} bytes, fewer than the 8 of the header's size; get "
        "it again",
        path_.string(), file_.size());
  }
  file_.read_at(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > kMaxHeaderBytes) {
    refuse_lfs_pointer(path_);
    fail("{}: not a safetensors file: its header has {} bytes, the format allows {}",
         path_.string(), header_bytes, kMaxHeaderBytes);
  }
  const std::uint64_t data_begin = sizeof(header_bytes) + header_bytes;
  if (data_begin > file_.size()) {
    fail("{}: the header needs {} bytes, but the file has {}: it was cut short; get it again",
         path_.string(), data_begin, file_.size());
  }
  std::string json(header_bytes, '\0');
  file_.read_at(sizeof(header_bytes), std::as_writable_bytes(std::span(json)));
  SafetensorsHeader header =
      parse_safetensors_header(json, file_.size() - data_begin, path_.string());
  metadata_ = std::move(header.metadata);
  for (SafetensorsEntry& entry : header.tensors) {
    ranges_.push_back({data_begin + entry.begin, entry.end - entry.begin});
    tensors_.push_back(std::move(entry.info));
  }
}

const SafetensorsFile::Range& SafetensorsFile::range_of(std::string_view name) const {
  const TensorInfo* info = find(name);
  if (info == nullptr) fail("{}: there is no tensor '{}'", describe(), name);
  return ranges_[static_cast<std::size_t>(info - tensors_.data())];
}

void SafetensorsFile::read_raw(std::string_view name, std::vector<std::byte>& bytes) const {
  const Range& range = range_of(name);
  bytes.resize(range.size);
  file_.read_at(range.begin, bytes);
}

void SafetensorsFile::read_into(std::string_view name, std::span<std::byte> out) const {
  const Range& range = range_of(name);
  check(range.size == out.size(), "{}: tensor '{}' has {} bytes, not {}", describe(), name,
        range.size, out.size());
  file_.read_at(range.begin, out);
}

std::optional<TensorBytes> SafetensorsFile::map(std::string_view name) const {
  const Range& range = range_of(name);
  // The format does not promise that a tensor begins at a multiple of its numbers' size.
  const std::size_t number = alignment_of(find(name)->dtype);
  if (range.begin % number != 0) return std::nullopt;
  if (mapped_ == nullptr)
    mapped_ = std::make_shared<const MappedFile>(file_.descriptor(), file_.size(), path_);
  return TensorBytes{mapped_->bytes().subspan(range.begin, range.size), mapped_};
}

std::unique_ptr<TensorSource> open_safetensors_folder(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    fail("{}: not a folder; give the one that holds config.json and {}", folder.string(),
         kSingleFile);
  }
  if (is_there(folder / kSingleFile) && is_there(folder / kIndexFile))
    notice("{}: {} and {} both exist; the former is read", folder.string(), kSingleFile,
           kIndexFile);
  if (is_there(folder / kSingleFile))
    return std::make_unique<SafetensorsFile>(folder / kSingleFile);
  if (is_there(folder / kIndexFile))
    return std::make_unique<ShardedSafetensors>(folder / kIndexFile);
  const bool pickled = fs::exists(folder / "pytorch_model.bin") ||
                       fs::exists(folder / "pytorch_model.bin.index.json");
  fail("{}: it has neither {} nor {}{}", folder.string(), kSingleFile, kIndexFile,
       pickled ? "; .bin files can run code and are not supported: convert them to safetensors"
               : "");
}

}  // namespace focus
