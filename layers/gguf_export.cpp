#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/gguf_settings.h"

namespace focus {

void GgufSettingsWriter::integer(std::string_view name, Index value) {
  check(value >= 0 && value <= std::numeric_limits<std::uint32_t>::max(),
        "{}: {} is {}, outside the range of a GGUF file", where_, key(name), value);
  keys_.u32(key(name), static_cast<std::uint32_t>(value));
}

void GgufSettingsWriter::fail_unsupported(const std::string& what) const {
  fail("{}: {}, which a GGUF file of architecture {} cannot represent", where_, what,
       architecture_);
}

namespace {

RopeConfig without_scaling(RopeConfig rope) {
  rope.scaling = RopeConfig::Scaling::none;
  return rope;
}

/// The factors by which llama3's scaling divides each frequency.
std::vector<Real> llama3_factors(const ModelConfig& c) {
  std::vector<Real> factors;
  const Index dims = c.rotary_dim();
  const RopeConfig plain = without_scaling(c.rope);
  for (Index i = 0; i < dims / 2; ++i)
    factors.push_back(static_cast<Real>(plain.frequency(i, dims) / c.rope.frequency(i, dims)));
  return factors;
}

void write_rope(const ModelConfig& c, const GgufForm& form, GgufSettingsWriter& s) {
  using enum RopeConfig::Scaling;
  if (c.learned_positions) return;
  const RopeConfig& rope = c.rope;
  s.integer("rope.dimension_count", c.rotary_dim());
  s.number("rope.freq_base", rope.theta);
  if (rope.scaling == dynamic) s.fail_unsupported("its rope_type is dynamic");
  if (rope.scaling == linear) {
    s.text("rope.scaling.type", "linear");
    s.number("rope.scaling.factor", rope.factor);
  } else if (rope.scaling == yarn) {
    if (!rope.truncate) s.fail_unsupported("its yarn does not truncate");
    s.text("rope.scaling.type", "yarn");
    s.number("rope.scaling.factor", rope.factor);
    s.integer("rope.scaling.original_context_length", rope.original_max_position_embeddings);
    s.number("rope.scaling.yarn_beta_fast", rope.beta_fast);
    s.number("rope.scaling.yarn_beta_slow", rope.beta_slow);
    const double usual = yarn_attention_factor(rope.factor);
    if (rope.attention_factor != usual)
      s.number("rope.scaling.attn_factor", rope.attention_factor / usual);
  } else if (rope.scaling == llama3) {
    if (!form.rope_factors) s.fail_unsupported("its rope_type is llama3");
    const std::vector<Real> numbers = llama3_factors(c);
    if (!llama3_rope(without_scaling(rope), {numbers.begin(), numbers.end()}))
      s.fail_unsupported("its llama3 rope_parameters differ from those of all known models");
  } else if (rope.scaling == longrope) {
    if (!form.longrope) s.fail_unsupported("its rope_type is longrope");
    s.integer("rope.scaling.original_context_length", rope.original_max_position_embeddings);
    s.number("rope.scaling.attn_factor", rope.attention_factor);
    s.notice(
        "llama.cpp selects longrope factors by the context that it is started with, this program "
        "by the length of the text");
  }
}

/// What no key says and readers take from the architecture.
void check_form(const ModelConfig& c, const Family& family, GgufSettingsWriter& s) {
  if (c.activation != family.common.activation)
    s.fail_unsupported(fmt::format("its activation is {}", activation_name(c.activation)));
  // llama.cpp loads the biases that all models of an architecture have, and in llama any.
  const ModelConfig& common = family.common;
  if (family.gguf.architecture != "llama" &&
      (c.attention_bias != common.attention_bias ||
       c.attention_out_bias != common.attention_out_bias || c.mlp_bias != common.mlp_bias))
    s.fail_unsupported("its biases differ from those of published models");
}

/// As the settings come back: numbers were float32, and what the file does not say is left out.
ModelConfig in_gguf_terms(ModelConfig c) {
  const auto as_float = [](double& x) { x = static_cast<double>(static_cast<float>(x)); };
  for (double* x :
       {&c.norm_eps, &c.rope.theta, &c.rope.factor, &c.attn_logit_softcapping,
        &c.final_logit_softcapping, &c.embedding_multiplier, &c.residual_multiplier,
        &c.attention_multiplier, &c.logits_scaling, &c.rope.beta_fast, &c.rope.beta_slow})
    as_float(*x);
  std::ranges::for_each(c.rope.short_factor, as_float);
  std::ranges::for_each(c.rope.long_factor, as_float);
  c.rope.attention_factor = std::round(c.rope.attention_factor * 1e5);
  if (c.rope.scaling == RopeConfig::Scaling::longrope) c.rope.factor = 1;  // by the lengths
  if (c.local_rope) as_float(c.local_rope->theta);
  c.rope.partial_rotary_factor = static_cast<double>(c.rotary_dim());
  if (c.rope.scaling == RopeConfig::Scaling::llama3) c.rope = RopeConfig{.theta = c.rope.theta};
  if (c.learned_positions) c.rope = {};
  if (copies_tied_head(c)) c.tie_word_embeddings = false;
  // Two families share an architecture; at most a window distinguishes them.
  if (c.model_type == "mistral") c.model_type = "llama";
  c.bos_token_id.reset();
  c.eos_token_ids.clear();
  c.initializer_range = 0;
  return c;
}

}  // namespace

std::vector<std::string> add_gguf_settings(const ModelConfig& config, const std::string& where,
                                           GgufKeys& keys) {
  const Family& family = find_family(config.model_type, where);
  const GgufForm& form = family.gguf;
  if (form.architecture.empty())
    fail("{}: models of type {} cannot be represented in a GGUF file", where, config.model_type);
  GgufSettingsWriter s(keys, form.architecture, where);
  keys.text("general.architecture", form.architecture);
  check_form(config, family, s);
  for (const GgufSize& size : kGgufSizes) s.integer(size.theirs, config.*size.size);
  s.integer("attention.value_length", config.head_dim);
  s.number(gguf_epsilon_key(config), config.norm_eps);
  write_rope(config, form, s);
  family.write_gguf(config, s);
  const Index window = config.widest_window();
  if (window > 0 && window < config.max_position_embeddings && !form.attends_in_windows)
    s.notice(fmt::format(
        "llama.cpp ignores the sliding window of {} tokens and uses full attention here", window));
  return s.notices();
}

std::vector<std::pair<std::string, std::vector<Real>>> gguf_rope_tensors(const ModelConfig& c) {
  if (c.learned_positions) return {};
  const auto real = [](const std::vector<double>& factors) {
    return std::vector<Real>(factors.begin(), factors.end());
  };
  if (c.rope.scaling == RopeConfig::Scaling::llama3) return {{kRopeFactors, llama3_factors(c)}};
  if (c.rope.scaling == RopeConfig::Scaling::longrope)
    return {{kLongFactors, real(c.rope.long_factor)}, {kShortFactors, real(c.rope.short_factor)}};
  return {};
}

bool copies_tied_head(const ModelConfig& config) {
  const std::string& type = config.model_type;
  return config.tie_word_embeddings && (type == "olmo2" || type == "olmo3" || type == "gpt_neox");
}

void check_gguf_settings(const ModelConfig& config, const GgufSource& written) {
  const ModelConfig read = read_gguf_config(written);
  if (in_gguf_terms(read) != in_gguf_terms(config) || read.rope.scaling != config.rope.scaling)
    fail(
        "{}: the GGUF file would be read with settings that differ from those of this {}, so it "
        "was not written",
        written.describe(), config.model_type);
}

}  // namespace focus
