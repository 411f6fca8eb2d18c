#include "focus/method/old_keys.h"

#include <charconv>
#include <cstdint>
#include <string>

namespace focus {
namespace {

std::vector<RenamedKey> old_focus_keys() {
  std::vector<RenamedKey> keys = {
      {"routing", "grouping", {{"hidden", "tokens"}}},
      {"objective", "objective", {{"kl", "logit_distillation"}, {"layers", "layer_distillation"}}},
      {"read_groups", "summary.num_selected_groups"},
      {"train_read_groups", "summary.train_num_selected_groups"},
      {"choice", "summary.selection"},
      {"rest", "summary.unselected_groups"},
      {"block", "summary.block"},
      {"sinks", "summary.sinks"},
      {"fit_step", "keys.fit_step"},
      {"fit_tokens", "keys.fit_tokens"},
  };
  for (const char* key :
       {"routing_dim", "temperature", "sinkhorn_iters", "gate", "gate_steepness", "affinity_floor",
        "balance", "carried_rate", "sequence_steps", "hard_gate", "train_top_k"})
    keys.push_back({key, std::string("tokens.") + key});
  for (const char* key : {"balance_loss", "entropy_loss", "entropy_of", "stop_gradient",
                          "centroid_update", "centroid_rate", "recluster_every"})
    keys.push_back({key, std::string("ablations.") + key});
  return keys;
}

void one_less(ConfigNode& value) {
  std::int64_t number = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto [next, problem] = std::from_chars(value.text.data(), end, number);
  if (problem == std::errc() && next == end && number > 0) value.text = std::to_string(number - 1);
}

}  // namespace

std::vector<RenamedKey> old_keys(std::string_view section) {
  if (section == "focus") return old_focus_keys();
  if (section == "window")  // tokens that are seen, the own included
    return {{"window", "local_window", {}, one_less}};
  return {};
}

std::vector<RenamedKey> old_run_keys() {
  std::vector<RenamedKey> all = {
      {"compute", "precision"},
      {"memory", "activation_checkpointing", {{"keep", "false"}, {"recompute", "true"}}},
      {"data.accumulate", "data.gradient_accumulation_steps"},
  };
  for (const std::string section : {"focus", "window"})
    for (RenamedKey key : old_keys(section)) {
      key.from = section + "." + key.from;
      if (!key.to.empty()) key.to = section + "." + key.to;
      all.push_back(std::move(key));
    }
  return all;
}

}  // namespace focus
