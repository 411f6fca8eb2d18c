#include "data/files/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>
#include <vector>

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

}  // namespace focus
