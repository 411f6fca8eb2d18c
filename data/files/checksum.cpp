#include "data/files/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <vector>

#include "data/files/input_file.h"

namespace focus {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

std::string to_hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

struct Checksum::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::string Checksum::hex() const { return to_hex(XXH3_128bits_digest(state_->xxh)); }

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
