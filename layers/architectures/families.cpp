#include <fmt/ranges.h>

#include "data/files/json_reader.h"
#include "layers/family.h"

namespace focus {

// All that a new family adds here is its name.
#define FOCUS_FAMILIES(f)                                                                         \
  f(gpt2) f(llama) f(mistral) f(qwen2) f(qwen3) f(olmo2) f(olmo3) f(gemma2) f(gemma3) f(gpt_neox) \
      f(phi3) f(granite) f(smollm3)
#define FOCUS_DECLARE(name) Family name##_family();
#define FOCUS_CALL(name) name##_family(),
FOCUS_FAMILIES(FOCUS_DECLARE)

namespace {

/// Llama's names, with the norms of a block that `common` has.
std::vector<TensorRule> llama_rules(const ModelConfig& common) {
  std::vector<TensorRule> rules = {
      {"embed_tokens", "model.embed_tokens"}, {"norm", "model.norm"}, {"lm_head", "lm_head"}};
  const auto add = [&](const std::string& ours, const std::string& theirs) {
    rules.push_back({"layers.{}." + ours, "model.layers.{}." + theirs});
  };
  for (const char* same : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                           "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm",
                           "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm"})
    add(same, same);
  // The second norm of Llama, before the MLP, has another name beside a norm after attention.
  add("post_attention_layernorm",
      common.norm_after ? "pre_feedforward_layernorm" : "post_attention_layernorm");
  add("attention_out_norm", "post_attention_layernorm");
  add("mlp_out_norm", "post_feedforward_layernorm");
  return rules;
}

}  // namespace

std::span<const Family> families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> made = {FOCUS_FAMILIES(FOCUS_CALL)};
    for (Family& family : made)
      if (family.rules.empty()) family.rules = llama_rules(family.common);
    return made;
  }();
  return all;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.model_type);
  return names;
}

const Family& find_family(const std::string& model_type, const std::string& where) {
  for (const Family& family : families())
    if (family.model_type == model_type) return family;
  throw std::invalid_argument(fmt::format("{}: model_type \"{}\" is not supported ({} are)", where,
                                          shown(model_type), fmt::join(family_names(), ", ")));
}

}  // namespace focus
