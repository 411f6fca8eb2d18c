#include "data/gguf/gguf.h"

#include <algorithm>
#include <array>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

constexpr const char *kNumberKey = "split.no", *kCountKey = "split.count",
                     *kTensorsKey = "split.tensors.count";

/// "-00002-of-00003.gguf": the end of the name of part `number`, counted from 0.
std::string ending_of(std::int64_t number, std::int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

/// Holds what a part says of itself against what it must be.
void check_part(const GgufMetadata& part, const char* key, std::int64_t wanted) {
  const auto found = part.integer(key);
  if (!found) fail("{}: it has no {}: it is not a part of this split model", part.where(), key);
  if (*found != wanted)
    fail("{}: {} is {}, not {}: it is not a part of this split model", part.where(), key, *found,
         wanted);
}

}  // namespace

bool is_gguf(const fs::path& path) try {
  if (!fs::exists(path) || fs::is_directory(path)) return false;
  if (path.extension() == ".gguf") return true;
  if (!fs::is_regular_file(path)) return false;
  InputFile file(path);
  std::array<char, kGgufMagic.size()> magic{};
  return file.read(std::as_writable_bytes(std::span(magic))) == magic.size() &&
         std::ranges::equal(magic, kGgufMagic);
} catch (const std::exception&) {  // who opens it says why it cannot be read
  return false;
}

GgufSource::Part::Part(const fs::path& where)
    : path(where),
      file(where),
      mapped(std::make_shared<const MappedFile>(file.descriptor(), file.size(), where)) {}

GgufMetadata GgufSource::add_part(const fs::path& path,
                                  std::vector<std::pair<TensorInfo, Place>>& entries) {
  parts_.push_back(std::make_unique<Part>(path));
  const Part& part = *parts_.back();
  GgufHeader header = parse_gguf(part.mapped->bytes(), path.string());
  for (GgufEntry& entry : header.tensors)
    entries.push_back({std::move(entry.info), {&part, entry.begin, entry.bytes}});
  return std::move(header.metadata);
}

GgufSource::GgufSource(const fs::path& path) : path_(path) {
  std::vector<std::pair<TensorInfo, Place>> entries;
  metadata_ = add_part(path, entries);
  const std::int64_t count = metadata_.integer(kCountKey).value_or(0);
  if (count > 1) {
    const std::int64_t number = metadata_.integer(kNumberKey).value_or(0);
    if (number != 0)
      fail("{}: it is part {} of {}; open the first, whose name ends in {}", path.string(),
           number + 1, count, ending_of(0, count));
    const std::string name = path.filename().string(), ending = ending_of(0, count);
    if (!name.ends_with(ending))
      fail("{}: it is the first of {} parts, and its name must end in {}", path.string(), count,
           ending);
    const std::string stem = name.substr(0, name.size() - ending.size());
    const std::int64_t total = metadata_.integer(kTensorsKey).value_or(-1);
    for (std::int64_t i = 1; i < count; ++i) {
      const fs::path next = path.parent_path() / (stem + ending_of(i, count));
      if (!is_there(next))
        fail("{}: the model has {} parts, and {} is not in the same folder: get all of them",
             path.string(), count, shown_whole(next.filename().string()));
      const GgufMetadata part = add_part(next, entries);
      check_part(part, kNumberKey, i);
      check_part(part, kCountKey, count);
      check_part(part, kTensorsKey, total);
    }
    if (total != static_cast<std::int64_t>(entries.size()))
      fail("{}: {} is {}, but its {} parts hold {} tensors", path.string(), kTensorsKey, total,
           count, entries.size());
  }
  std::ranges::sort(
      entries, {}, [](const auto& entry) -> auto& { return entry.first.name; });
  for (auto& [info, place] : entries) {
    if (!tensors_.empty() && tensors_.back().name == info.name)
      fail("{}: tensor '{}' is in {} and in {}", path.string(), shown(info.name),
           places_.back().part->path.filename().string(), place.part->path.filename().string());
    tensors_.push_back(std::move(info));
    places_.push_back(place);
  }
}

const GgufSource::Place& GgufSource::place_of(std::string_view name) const {
  const TensorInfo* info = find(name);
  if (info == nullptr) fail("{}: there is no tensor '{}'", describe(), shown(name));
  return places_[static_cast<std::size_t>(info - tensors_.data())];
}

void GgufSource::read_raw(std::string_view name, std::vector<std::byte>& bytes) const {
  bytes.resize(place_of(name).bytes);
  read_into(name, bytes);
}

void GgufSource::read_into(std::string_view name, std::span<std::byte> out) const {
  const Place& place = place_of(name);
  check(place.bytes == out.size(), "{}: tensor '{}' has {} bytes, not {}", describe(), name,
        place.bytes, out.size());
  place.part->file.read_at(place.begin, out);
}

std::optional<TensorBytes> GgufSource::map(std::string_view name) const {
  const Place& place = place_of(name);
  // An alignment of less than a number's size is allowed.
  if (place.bytes == 0 || place.begin % alignment_of(find(name)->dtype) != 0) return std::nullopt;
  return TensorBytes{place.part->mapped->bytes().subspan(place.begin, place.bytes),
                     place.part->mapped};
}

std::vector<fs::path> GgufSource::files() const {
  std::vector<fs::path> files;
  for (const auto& part : parts_) files.push_back(part->path);
  return files;
}

}  // namespace focus
