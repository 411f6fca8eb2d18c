#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

struct XXH3_state_s;

namespace focus {

/// XXH3-128 of a stream of bytes. It finds damage and mix-ups; it is no defence against forgery.
class Checksum {
 public:
  Checksum();

  void update(std::span<const std::byte> bytes);
  void update(const std::string& text) { update(std::as_bytes(std::span(text))); }
  /// 32 hexadecimal digits, most significant first, as the xxh128sum tool prints them.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

/// XXH3-128 of `bytes` as 32 hexadecimal digits.
std::string xxh3_hex(std::span<const std::byte> bytes);

/// XXH3-128 of a whole file. Throws std::runtime_error where the file cannot be read.
std::string xxh3_file_hex(const std::filesystem::path& path);

/// What tells that a file is the one of before, without reading it.
struct FileIdentity {
  std::string path;  // absolute
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t modified = 0, changed = 0;  // nanoseconds since 1970
  bool operator==(const FileIdentity&) const = default;
};
/// Throws std::runtime_error where the system cannot say.
FileIdentity identity_of(const std::filesystem::path& path);

/// Where a program keeps what it can make again: $XDG_CACHE_HOME/focus, else ~/.cache/focus; empty
/// where neither is known.
std::filesystem::path cache_folder();

/// A word that was noted for files with these identities; nothing where none was, or it cannot be
/// read.
std::optional<std::string> recall_note(const std::filesystem::path& cache,
                                       const std::vector<FileIdentity>& files);
/// Notes a word for them. Does nothing where a file was changed so short a time ago that its times
/// may not tell the next change, or where the cache cannot be written: it is only slower then.
void keep_note(const std::filesystem::path& cache, const std::vector<FileIdentity>& files,
               const std::string& word);

}  // namespace focus
