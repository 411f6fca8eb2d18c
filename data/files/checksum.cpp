#include "data/files/checksum.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <new>

#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/files/input_file.h"

namespace focus {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

std::string to_hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Checksum::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

std::string Checksum::hex() const { return to_hex(XXH3_128bits_digest(state_.get())); }

std::string xxh3_hex(std::span<const std::byte> bytes) {
  return to_hex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string xxh3_file_hex(const std::filesystem::path& path) {
  InputFile file(path);
  Checksum checksum;
  std::vector<std::byte> buffer(kReadBytes);
  for (std::size_t got = buffer.size(); got == buffer.size();) {
    got = file.read(buffer);
    checksum.update(std::span(buffer).first(got));
  }
  return checksum.hex();
}

namespace fs = std::filesystem;
namespace {

/// A file that was changed twice within this time may have the same times both times.
constexpr std::int64_t kSettled = 2'000'000'000;  // nanoseconds

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

fs::path note_path(const fs::path& cache, const std::vector<FileIdentity>& files) {
  Checksum paths;
  for (const FileIdentity& file : files) paths.update(fmt::format("{}\n", file.path));
  return cache / "fingerprints" / paths.hex();
}

/// The note's first lines: a file each.
std::string head(const std::vector<FileIdentity>& files) {
  std::string text;
  for (const FileIdentity& f : files)
    text += fmt::format("{} {} {} {} {} {}\n", f.device, f.inode, f.bytes, f.modified, f.changed,
                        f.path);
  return text;
}

}  // namespace

FileIdentity identity_of(const fs::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) fail_reading("read", path, errno);
  return {.path = fs::absolute(path).lexically_normal().string(),
          .device = status.st_dev,
          .inode = status.st_ino,
          .bytes = static_cast<std::uint64_t>(status.st_size),
          .modified = nanoseconds(status.st_mtim),
          .changed = nanoseconds(status.st_ctim)};
}

fs::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    return fs::path(cache) / "focus";
  if (const char* home = std::getenv("HOME"); home && *home)
    return fs::path(home) / ".cache" / "focus";
  return {};
}

std::optional<std::string> recall_note(const fs::path& cache,
                                       const std::vector<FileIdentity>& files) try {
  const fs::path path = note_path(cache, files);
  if (cache.empty() || !fs::exists(path)) return std::nullopt;
  const std::string text = read_file(path), wanted = head(files);
  if (!text.starts_with(wanted)) return std::nullopt;
  return text.substr(wanted.size());
} catch (const std::exception&) {
  return std::nullopt;
}

void keep_note(const fs::path& cache, const std::vector<FileIdentity>& files,
               const std::string& word) try {
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const auto is_new = [&](const FileIdentity& file) {
    return std::max(file.changed, file.modified) > now.count() - kSettled;
  };
  if (cache.empty() || std::ranges::any_of(files, is_new)) return;
  fs::create_directories(cache / "fingerprints");
  write_file_durably(note_path(cache, files), std::string_view(head(files) + word));
} catch (const std::exception&) {  // a cache that cannot be written
}

}  // namespace focus
