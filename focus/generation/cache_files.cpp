#include "focus/generation/cache_files.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <sstream>
#include <tuple>
#include <type_traits>
#include <utility>

#include "autograd/base/check.h"
#include "data/files/checksum.h"
#include "data/files/durable_file.h"
#include "data/files/input_file.h"
#include "data/files/notice.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

// A file is a mark, its head, the head's checksum, the caches, and their checksum.
constexpr std::string_view kMark = "focuskv2";
constexpr const char* kExtension = ".focuskv";
constexpr std::size_t kDigits = 32;  // of a checksum
/// Tokens of a prompt that is worth a file of a folder.
constexpr std::size_t kFewest = 32;

/// Values one behind the other, as this machine has them in memory.
struct ToBytes {
  static constexpr bool reads = false;
  std::vector<std::byte> bytes = {};
  void pass(const void* values, std::size_t count) {
    const auto* from = static_cast<const std::byte*>(values);
    bytes.insert(bytes.end(), from, from + count);
  }
  /// Covers the bytes from there on.
  void add_checksum(std::size_t begin) {
    pass(xxh3_hex(std::span(bytes).subspan(begin)).data(), kDigits);
  }
};
struct FromBytes {
  static constexpr bool reads = true;
  std::span<const std::byte> left;
  std::string where;
  [[noreturn]] void fail_damaged() const {
    fail("{}: the prompt cache is damaged or incomplete; delete it", where);
  }
  std::span<const std::byte> next(std::size_t count) {
    if (count > left.size()) fail_damaged();
    const auto bytes = left.first(count);
    left = left.subspan(count);
    return bytes;
  }
  void pass(void* values, std::size_t count) {
    const auto bytes = next(count);
    if (count > 0) std::memcpy(values, bytes.data(), count);
  }
  /// Whether `bytes` have the checksum that comes next.
  void verify(std::span<const std::byte> bytes) {
    const auto digits = next(kDigits);
    if (std::memcmp(xxh3_hex(bytes).data(), digits.data(), kDigits) != 0) fail_damaged();
  }
};

template <class T>
constexpr bool kPlain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

/// Writes a value, or reads what was written of one: the same walk. A struct has a visit().
template <class Bytes, class T>
void pass(Bytes& bytes, T& value) {
  if constexpr (kPlain<T>) {
    bytes.pass(&value, sizeof(value));
  } else if constexpr (requires { typename T::first_type; }) {
    pass(bytes, value.first);
    pass(bytes, value.second);
  } else if constexpr (requires { typename T::mapped_type; }) {
    std::vector<typename T::key_type> keys;
    keys.reserve(value.size());
    for (const auto& entry : value) keys.push_back(entry.first);
    pass(bytes, keys);
    if (Bytes::reads) value.clear();
    for (const auto& key : keys) pass(bytes, value[key]);
  } else if constexpr (requires { value.has_value(); }) {
    bool there = value.has_value();
    pass(bytes, there);
    if constexpr (Bytes::reads)
      if (there != value.has_value()) bytes.fail_damaged();
    if (there) pass(bytes, *value);
  } else if constexpr (requires { typename T::value_type; }) {
    std::uint64_t count = value.size();
    pass(bytes, count);
    constexpr std::size_t kSize = kPlain<typename T::value_type> ? sizeof(value[0]) : 1;
    if constexpr (Bytes::reads) {
      if (count > bytes.left.size() / kSize) bytes.fail_damaged();
      value.resize(count);
    }
    if constexpr (kPlain<typename T::value_type>)
      bytes.pass(value.data(), count * kSize);
    else
      for (auto& item : value) pass(bytes, item);
  } else {
    value.visit([&](const std::string&, auto& member) { pass(bytes, member); });
  }
}

struct Head {
  std::string identity;
  std::vector<std::int32_t> ids;
  Index least = 0;
  void visit(auto&& f) { FOCUS_MEMBERS(f, identity, ids, least); }
};

/// A file that is mapped, and whose head is whole. Throws std::runtime_error.
class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : input_(path) {
    if (input_.size() > 0) mapped_.emplace(input_.descriptor(), input_.size(), path);
    left_ = {mapped_ ? mapped_->bytes() : std::span<const std::byte>(), path.string()};
    const auto whole = left_.left;
    if (whole.size() < kMark.size() || std::memcmp(whole.data(), kMark.data(), kMark.size()) != 0)
      fail("{}: it is not a prompt cache; give the name of one, or a new name", path.string());
    left_.next(kMark.size());
    pass(left_, head);
    left_.verify(whole.first(whole.size() - left_.left.size()));
  }
  std::uint64_t size() const { return input_.size(); }
  /// What there is to read of caches, verified.
  FromBytes caches() const {
    FromBytes all = left_;
    const auto bytes = all.next(std::max(all.left.size(), kDigits) - kDigits);
    all.verify(bytes);
    return {bytes, all.where};
  }

  Head head;

 private:
  InputFile input_;
  std::optional<MappedFile> mapped_;
  FromBytes left_;  // behind the head
};

/// Throws std::runtime_error that names the first line in which a file's identity is another.
void check_identity(const std::string& found, const std::string& wanted, const fs::path& path) {
  if (found == wanted) return;
  std::istringstream of_file(found), of_model(wanted);
  std::string theirs, ours;
  while (std::getline(of_file, theirs) && std::getline(of_model, ours) && theirs == ours) {
  }
  fail("{}: it is a prompt cache of {}, not of {}; give another name, or delete it", path.string(),
       theirs, ours);
}

std::size_t common_ids(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace

CacheFiles::CacheFiles(fs::path path, std::string identity, std::uint64_t most_bytes)
    : path_(std::move(path)), identity_(std::move(identity)), most_bytes_(most_bytes) {
  const auto add = [&](const fs::path& file) {
    const OpenFile opened(file);
    if (is_one_file()) {
      check_identity(opened.head.identity, identity_, file);
      opened.caches();
    }
    if (opened.head.identity == identity_)
      kept_.push_back({file, opened.head.ids, opened.head.least, opened.size()});
  };
  if (is_one_file()) {
    { const DurableFile can_be_written(path_); }
    if (is_there(path_)) add(path_);
    return;
  }
  make_folder_durably(path_);
  sweep_orphans(path_);
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    try {
      if (entry.path().extension() == kExtension) add(entry.path());
    } catch (const std::runtime_error& error) {
      refuse(error);
    }
  }
  drop_oldest();
}

CacheFiles::~CacheFiles() {
  if (writing_.valid()) writing_.wait();
}

void CacheFiles::refuse(const std::exception& error) const {
  if (is_one_file()) throw;
  notice("{}", error.what());
}

const std::vector<CacheFiles::Kept>& CacheFiles::kept() {
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    finish();
  return kept_;
}

void CacheFiles::finish() {
  if (!writing_.valid()) return;
  try {
    writing_.get();
    std::erase_if(kept_, [&](const Kept& kept) { return kept.path == written_.path; });
    kept_.push_back(std::move(written_));
    if (!is_one_file()) drop_oldest();
  } catch (const std::runtime_error& error) {
    refuse(error);
  }
}

bool CacheFiles::load(const Kept& from, CachedDecoder& decoder, SequenceCache& cache,
                      SequenceCache* also) {
  const fs::path path = from.path;
  try {
    const OpenFile opened(path);
    check_identity(opened.head.identity, identity_, path);
    FromBytes bytes = opened.caches();
    // A token makes the layers' caches as the model wants them; then they become the file's.
    const std::int32_t any = 0;
    const CachedDecoder::Part part{.cache = &cache, .ids = {&any, 1}, .also = also};
    decoder.hidden_states({&part, 1});
    pass(bytes, cache);
    if (also != nullptr) pass(bytes, *also);
    if (!bytes.left.empty() || cache.ids() != from.ids) bytes.fail_damaged();
    std::error_code unwritable;  // then its time stays
    if (!is_one_file()) fs::last_write_time(path, fs::file_time_type::clock::now(), unwritable);
    return true;
  } catch (const std::runtime_error& error) {
    std::erase_if(kept_, [&](const Kept& kept) { return kept.path == path; });
    refuse(error);
    return false;
  }
}

void CacheFiles::save(SequenceCache& cache, SequenceCache* also) {
  const std::size_t size = cache.ids().size();
  std::size_t most = 0;
  const auto look_at = [&](const Kept& of) {
    const std::size_t common = common_ids(of.ids, cache.ids());
    if (static_cast<Index>(common) >= of.least) most = std::max(most, common);
  };
  std::ranges::for_each(kept(), look_at);
  if (writing_.valid()) look_at(written_);
  if (8 * (size - most) <= size || (!is_one_file() && size < kFewest)) return;
  finish();
  try {
    write(cache, also);
  } catch (const std::exception& error) {  // no memory for a copy, or no thread
    refuse(error);
  }
}

void CacheFiles::write(SequenceCache& cache, SequenceCache* also) {
  Head head{identity_, cache.ids(), cache.least_size()};
  if (also != nullptr) head.least = std::max(head.least, also->least_size());
  ToBytes all;
  all.bytes.reserve(cache.bytes() + cache.bytes() / 8);
  all.pass(kMark.data(), kMark.size());
  pass(all, head);
  all.add_checksum(0);
  const std::size_t begin = all.bytes.size();
  pass(all, cache);
  if (also != nullptr) pass(all, *also);
  all.add_checksum(begin);
  written_ = {path_, head.ids, head.least, all.bytes.size()};
  if (!is_one_file()) {
    written_.path /= xxh3_hex(std::span(all.bytes).first(begin)) + kExtension;
    if (all.bytes.size() > most_bytes_)
      return notice("{}: prompts of {} tokens or more are not saved: one takes more than the limit",
                    path_.string(), head.ids.size());
  }
  // The bytes go when it is done.
  writing_ = std::async(std::launch::async,
                        [path = written_.path, bytes = std::move(all.bytes)]() mutable {
                          write_file_durably(path, std::exchange(bytes, {}));
                        });
}

void CacheFiles::drop_oldest() {
  std::vector<std::tuple<fs::file_time_type, fs::path, std::uint64_t>> files;
  std::uint64_t bytes = 0;
  std::error_code gone;  // by another server
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    if (entry.path().extension() != kExtension || !entry.is_regular_file(gone)) continue;
    files.emplace_back(entry.last_write_time(gone), entry.path(), entry.file_size(gone));
    if (gone)
      files.pop_back();
    else
      bytes += std::get<2>(files.back());
  }
  std::ranges::sort(files);
  for (auto at = files.begin(); bytes > most_bytes_; ++at) {
    bytes -= std::get<2>(*at);
    fs::remove(std::get<1>(*at), gone);
    std::erase_if(kept_, [&](const Kept& kept) { return kept.path == std::get<1>(*at); });
  }
}

}  // namespace focus
