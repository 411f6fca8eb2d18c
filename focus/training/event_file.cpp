#include "focus/training/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <string>

#include "autograd/base/check.h"

namespace focus {
namespace {

/// CRC-32C, as TFRecord files have it: rotated, with a constant added.
std::uint32_t masked_checksum(std::string_view bytes) {
  constexpr std::uint32_t kPolynomial = 0x82F63B78, kAdded = 0xA282EAD8;
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
  }
  return std::rotr(~crc, 15) + kAdded;
}

template <class T>
std::string little_endian(T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  return {bytes.begin(), bytes.end()};
}

// Protocol buffers: a field's number and kind in a byte, then its value.
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value % 128 + 128);
  return bytes + static_cast<char>(value);
}
std::string number_field(int field, std::uint64_t value) {
  return static_cast<char>(8 * field) + varint(value);
}
std::string bytes_field(int field, std::string_view value) {
  return static_cast<char>(8 * field + 2) + varint(value.size()) + std::string(value);
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t first_step) {
  // The name sorts by time: TensorBoard reads the files of a folder in this order.
  path_ = folder / fmt::format("events.out.tfevents.{:.6f}.{}.focus", seconds_since_1970(),
                               static_cast<std::int64_t>(getpid()));
  file_.open(path_, std::ios::binary);
  write_event(0, bytes_field(3, "brain.Event:2"));
  constexpr std::uint64_t kStart = 1;  // SessionLog::START
  if (first_step > 0) write_event(first_step, bytes_field(7, number_field(1, kStart)));
}

void EventFile::write(const nlohmann::ordered_json& record) {
  std::string summary;
  for (const auto& [name, value] : record.items())
    if (name != "step" && value.is_number())
      summary += bytes_field(
          1, bytes_field(1, name) + char{8 * 2 + 5} + little_endian(value.get<float>()));
  write_event(record.at("step"), bytes_field(5, summary));
}

void EventFile::write_event(std::int64_t step, std::string_view what) {
  const std::string event = char{8 * 1 + 1} + little_endian(seconds_since_1970()) +
                            number_field(2, static_cast<std::uint64_t>(step)) + std::string(what);
  const std::string length = little_endian(static_cast<std::uint64_t>(event.size()));
  file_ << length << little_endian(masked_checksum(length)) << event
        << little_endian(masked_checksum(event)) << std::flush;
  if (!file_)
    fail("{}: a record could not be written: check that the disk is not full", path_.string());
}

}  // namespace focus
