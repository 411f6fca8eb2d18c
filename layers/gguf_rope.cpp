#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "autograd/base/check.h"
#include "layers/gguf_names.h"
#include "layers/gguf_settings.h"

// How a GGUF file says that rotary embeddings are stretched: by keys, or by factors in tensors.
// Those of rope_freqs.weight are llama3's scaling, computed; transformers, and a model's
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

/// The usual number for what is its float32, so that settings are those of a config.json.
void snap(double usual, double& number) {
  if (std::abs(number - usual) <= 1e-6 * usual) number = usual;
}

/// None where the file does not have the tensor.
std::vector<double> read_factors(const GgufSettings& s, const char* name, Index pairs) {
  const TensorInfo* info = s.tensor(name);
  if (info == nullptr) return {};
  if (info->shape != std::vector<Index>{pairs} || info->dtype != Dtype::f32)
    fail("{}: tensor {} must be {} F32 values, one per frequency", s.where(), name, pairs);
  const Tensor stored = s.source().read(name);
  return {stored.span().begin(), stored.span().end()};
}

void check_original(const GgufSettings& s, const RopeConfig& rope) {
  if (rope.original_max_position_embeddings == 0)
    fail("{}: {} must be positive, not 0", s.where(),
         s.key("rope.scaling.original_context_length"));
}

void read_yarn(const GgufSettings& s, RopeConfig& rope) {
  rope.scaling = RopeConfig::Scaling::yarn;
  rope.original_max_position_embeddings = s.integer("rope.scaling.original_context_length");
  rope.beta_fast = s.number("rope.scaling.yarn_beta_fast", rope.beta_fast);
  rope.beta_slow = s.number("rope.scaling.yarn_beta_slow", rope.beta_slow);
  check_original(s, rope);
  if (rope.beta_slow <= 0 || rope.beta_fast < rope.beta_slow)
    fail("{}: {} {} must be at least {} {} and both positive", s.where(),
         s.key("rope.scaling.yarn_beta_fast"), rope.beta_fast, s.key("rope.scaling.yarn_beta_slow"),
         rope.beta_slow);
  // The first is transformers' own, copied by the converter; the second multiplies it.
  const double usual = yarn_attention_factor(rope.factor);
  rope.attention_factor =
      s.number("rope.scaling.yarn_attn_factor", usual) * s.number("rope.scaling.attn_factor", 1);
  snap(usual, rope.attention_factor);
}

/// By its tensors: llama.cpp's converter of phi3 names no type.
void read_longrope(const GgufSettings& s, ModelConfig& c) {
  RopeConfig& rope = c.rope;
  const Index pairs = c.rotary_dim() / 2;
  rope.short_factor = read_factors(s, kShortFactors, pairs);
  rope.long_factor = read_factors(s, kLongFactors, pairs);
  if (rope.short_factor.empty() && rope.long_factor.empty()) return;
  const auto sane = [](double factor) { return factor >= 1e-3 && factor <= 1e6; };
  for (const auto* factors : {&rope.short_factor, &rope.long_factor})
    if (factors->empty() || !std::ranges::all_of(*factors, sane))
      fail("{}: {} and {} must both be set, to numbers from 0.001 to 1e6", s.where(), kShortFactors,
           kLongFactors);
  rope.scaling = RopeConfig::Scaling::longrope;
  rope.original_max_position_embeddings =
      s.integer("rope.scaling.original_context_length", c.max_position_embeddings);
  check_original(s, rope);
  rope.factor = static_cast<double>(c.max_position_embeddings) /
                static_cast<double>(rope.original_max_position_embeddings);
  rope.attention_factor = s.number("rope.scaling.attn_factor", 1);
  snap(longrope_attention_factor(rope.factor, rope.original_max_position_embeddings),
       rope.attention_factor);
}

}  // namespace

void read_gguf_rope_scaling(const GgufSettings& s, const GgufForm& form, ModelConfig& c) {
  const double factor = s.number("rope.scaling.factor", s.number("rope.scale_linear", 0));
  const std::string type = s.text("rope.scaling.type", factor > 0 ? "linear" : "none");
  const bool longrope = form.longrope && type == "longrope";
  if (type != "none" && type != "linear" && type != "yarn" && !longrope)
    fail("{}: {} \"{}\" is not supported (none, linear, yarn{} are)", s.where(),
         s.key("rope.scaling.type"), type, form.longrope ? ", longrope" : "");
  if ((type == "linear" || type == "yarn") && factor != 0) {
    if (factor < 1)
      fail("{}: {} must be at least 1, not {}", s.where(), s.key("rope.scaling.factor"), factor);
    c.rope.factor = factor;
    c.rope.scaling = RopeConfig::Scaling::linear;
    if (type == "yarn") read_yarn(s, c.rope);
  }
  if (form.longrope && c.rope.scaling == RopeConfig::Scaling::none) read_longrope(s, c);
  if (longrope && c.rope.scaling == RopeConfig::Scaling::none)
    fail("{}: {} is longrope, but tensor {} is missing", s.where(), s.key("rope.scaling.type"),
         kLongFactors);
  if (!form.rope_factors) return;
  const std::vector<double> factors = read_factors(s, kRopeFactors, c.rotary_dim() / 2);
  if (factors.empty()) return;
  const auto scaled =
      c.rope.scaling == RopeConfig::Scaling::none ? llama3_rope(c.rope, factors) : std::nullopt;
  if (!scaled)
    fail("{}: the factors of {} are not those of llama3 scaling, the only one that is supported",
         s.where(), kRopeFactors);
  c.rope = *scaled;
}

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
