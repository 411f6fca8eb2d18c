#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "layers/gguf_settings.h"

// The factors of rope_freqs.weight are llama3's scaling, computed. Transformers, and a model's
// config.json here, want the parameters that they were computed from.
namespace focus {
namespace {

/// A factor is a float32 that was rounded on its way more than once.
constexpr double kAccuracy = 2e-6;

bool reproduces(const RopeConfig& rope, const std::vector<double>& factors) {
  RopeConfig plain = rope;
  plain.scaling = RopeConfig::Scaling::none;
  const auto dims = static_cast<Index>(2 * factors.size());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const auto pair = static_cast<Index>(i);
    const double factor = plain.frequency(pair, dims) / rope.frequency(pair, dims);
    if (!(std::abs(factor - factors[i]) <= kAccuracy * factor)) return false;
  }
  return true;
}

/// A frequency that is interpolated: its turns within one position, and the share of it that is
/// kept.
struct Between {
  double turns, smooth;
};

std::vector<Between> interpolated(const RopeConfig& rope, const std::vector<double>& factors) {
  RopeConfig plain = rope;
  plain.scaling = RopeConfig::Scaling::none;
  std::vector<Between> between;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double smooth = (1 / factors[i] - 1 / rope.factor) / (1 - 1 / rope.factor);
    if (smooth <= 1e-4 || smooth >= 1 - 1e-4) continue;
    const double frequency =
        plain.frequency(static_cast<Index>(i), static_cast<Index>(2 * factors.size()));
    between.push_back({frequency / (2 * std::numbers::pi), smooth});
  }
  return between;
}

}  // namespace

std::optional<RopeConfig> llama3_rope(RopeConfig rope, const std::vector<double>& factors) {
  const auto sane = [](double factor) { return factor >= 1 - kAccuracy && factor <= 1e6; };
  if (factors.empty() || !std::ranges::all_of(factors, sane)) return std::nullopt;
  rope.factor = std::round(std::ranges::max(factors) * 1e4) / 1e4;
  if (rope.factor == 1) return reproduces(rope, factors) ? std::optional(rope) : std::nullopt;
  rope.scaling = RopeConfig::Scaling::llama3;
  const auto fits = [&](double low, double high, double original) {
    if (!(original >= 1 && original <= 1e9 && low > 0 && high > low)) return false;
    rope.low_freq_factor = low;
    rope.high_freq_factor = high;
    rope.original_max_position_embeddings = static_cast<Index>(std::llround(original));
    return reproduces(rope, factors);
  };
  // Llama 3's own, then powers of two with its factors.
  if (fits(1, 4, 8192)) return rope;
  for (double original = 16; original <= 1 << 24; original *= 2)
    if (fits(1, 4, original)) return rope;
  const std::vector<Between> between = interpolated(rope, factors);
  if (between.empty()) return std::nullopt;
  const auto [turns, smooth] = between.front();
  if (fits(1, 4, (1 + smooth * 3) / turns)) return rope;
  // smooth (high - low) = original turns - low, from two frequencies; a common factor of all three
  // parameters changes nothing.
  const Between last = between.back();
  const double slope = (turns - last.turns) / (smooth - last.smooth);
  const double unit = 1 / (turns - smooth * slope);
  for (const double low : {1.0, 2.0, 0.5, 4.0, 0.25}) {
    const double high = std::round(low * (1 + unit * slope) * 1e4) / 1e4;
    if (fits(low, high, low * unit)) return rope;
  }
  return std::nullopt;
}

}  // namespace focus
