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

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t first_step) {
  // The name sorts by time: TensorBoard reads the files of a folder in this order.
  path_ = folder / fmt::format("events.out.tfevents.{:.6f}.{}.focus", seconds_since_1970(),
                               static_cast<std::int64_t>(getpid()));
  file_.open(path_, std::ios::binary);
  MessageWriter version, start;
  version.text(3, "brain.Event:2");
  write_event(0, version);
  if (first_step == 0) return;
  MessageWriter log;
  log.integer(1, 1);  // SessionLog::START
  start.text(7, log.bytes());
  write_event(first_step, start);
}

void EventFile::write(const nlohmann::ordered_json& record) {
  MessageWriter summary, event;
  for (const auto& [name, number] : record.items()) {
    if (name == "step" || !number.is_number()) continue;
    MessageWriter value;
    value.text(1, name);
    value.number(2, number.get<float>());
    summary.text(1, value.bytes());
  }
  event.text(5, summary.bytes());
  write_event(record.at("step"), event);
}

void EventFile::write_event(std::int64_t step, MessageWriter& what) {
  what.number(1, seconds_since_1970());
  what.integer(2, static_cast<std::uint64_t>(step));
  const std::string& event = what.bytes();
  const std::string length = little_endian(static_cast<std::uint64_t>(event.size()));
  file_ << length << little_endian(masked_checksum(length)) << event
        << little_endian(masked_checksum(event)) << std::flush;
  if (!file_)
    fail("{}: a record could not be written: check that the disk is not full", path_.string());
}

}  // namespace focus
