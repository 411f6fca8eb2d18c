#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

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

}  // namespace focus
