#include "data/text/format.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

namespace focus {
namespace {

/// The value with the first unit in which it stays below `step`.
std::string format_scaled(double value, double step, std::span<const std::string_view> units) {
  std::size_t unit = 0;
  // 0.5 short of the step, because 999.96 would be printed as 1000.0.
  while (std::abs(value) >= step - 0.5 && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  return fmt::format("{:.{}f}{}", value, unit == 0 ? 0 : 1, units[unit]);
}

}  // namespace

std::string format_count(double count) {
  static constexpr std::array<std::string_view, 5> kUnits = {"", "k", "M", "G", "T"};
  return format_scaled(count, 1000, kUnits);
}

std::string format_bytes(double bytes) {
  static constexpr std::array<std::string_view, 5> kUnits = {" B", " KiB", " MiB", " GiB", " TiB"};
  return format_scaled(bytes, 1024, kUnits);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "?";
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  const std::int64_t minutes = total / 60, hours = minutes / 60, days = hours / 24;
  if (days > 0) return fmt::format("{}d{:02}h", days, hours % 24);
  if (hours > 0) return fmt::format("{}h{:02}m", hours, minutes % 60);
  if (minutes > 0) return fmt::format("{}m{:02}s", minutes, total % 60);
  return fmt::format("{}s", total);
}

}  // namespace focus
