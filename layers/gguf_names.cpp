#include "layers/gguf_names.h"

#include <vector>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"

namespace focus {
namespace {

std::vector<TensorRule> make_rules() {
  const std::string ours = "layers.{}.", theirs = "blk.{}.";
  std::vector<TensorRule> rules = {{"embed_tokens", "token_embd"},
                                   {"embed_positions", "position_embd"},
                                   {"norm", "output_norm"},
                                   {"lm_head", "output"}};
  for (const auto& [name, gguf] : {std::pair{"input_layernorm", "attn_norm"},
                                   {"post_attention_layernorm", "ffn_norm"},
                                   {"attention_out_norm", "post_attention_norm"},
                                   {"mlp_out_norm", "post_ffw_norm"},
                                   {"self_attn.q_norm", "attn_q_norm"},
                                   {"self_attn.k_norm", "attn_k_norm"},
                                   {"self_attn.o_proj", "attn_output"},
                                   {"mlp.gate_proj", "ffn_gate"},
                                   {"mlp.up_proj", "ffn_up"},
                                   {"mlp.down_proj", "ffn_down"}})
    rules.push_back({ours + name, theirs + gguf});
  rules.push_back({ours + "mlp.gate_proj", theirs + "ffn_up", false, 0, 2});
  rules.push_back({ours + "mlp.up_proj", theirs + "ffn_up", false, 1, 2});
  int part = 0;
  for (const std::string name : {"q", "k", "v"}) {
    const TensorRule single{.ours = ours + "self_attn." + name + "_proj",
                            .theirs = theirs + "attn_" + name,
                            .rotary_pairs = name != "v"};
    TensorRule fused = single;
    fused.theirs = theirs + "attn_qkv";
    fused.part = part++;
    fused.parts = 3;
    rules.push_back(single);
    rules.push_back(fused);
  }
  return rules;
}

}  // namespace

std::span<const TensorRule> gguf_rules() {
  static const std::vector<TensorRule> rules = make_rules();
  return rules;
}

bool is_rope_tensor(const GgufForm& form, const std::string& name) {
  return (form.rope_factors && name == kRopeFactors) ||
         (form.longrope && (name == kShortFactors || name == kLongFactors));
}

double added_in_gguf(const ModelConfig& config, const std::string& ours) {
  return ours.ends_with("norm.weight") ? config.norm_weight_offset : 0;
}

const Family& find_gguf_family(const std::string& architecture, bool has_window,
                               const std::string& where) {
  const Family* found = nullptr;
  std::string known;
  for (const Family& family : families()) {
    const GgufForm& form = family.gguf;
    if (form.architecture.empty()) continue;
    if (known.find(form.architecture) == std::string::npos)
      known += (known.empty() ? "" : ", ") + form.architecture;
    if (form.architecture != architecture) continue;
    if (found == nullptr || form.has_window == has_window) found = &family;
  }
  if (found == nullptr)
    fail("{}: architecture \"{}\" is not supported ({} are)", where, shown(architecture), known);
  return *found;
}

}  // namespace focus
