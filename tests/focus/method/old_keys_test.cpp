// Settings of files that were written before version 0.1.0 read as those of today.
#include "focus/method/old_keys.h"

#include <gtest/gtest.h>

#include "data/settings/config.h"
#include "focus/method/config.h"
#include "focus/method/saved_focus.h"

namespace focus {
namespace {

FocusConfig stored(const std::string& text) {
  FocusConfig config = settings_before();
  read_stored_config(text, "a store", config, old_keys("focus"));
  return config;
}

// Every key of then, none at its default.
constexpr const char* kTokens = R"(num_groups: 5
routing_dim: 7
temperature: 0.5
sinkhorn_iters: 3
gate_steepness: 6
local_window: 9
gate: logit
balance: sequence
hard_gate: drop
affinity_floor: 0.001
carried_rate: 0.25
sequence_steps: 11
training: summary
train_top_k: 3
routing: hidden
read_groups: 4
train_read_groups: 1
choice: own
block: 8
sinks: 2
rest: drop
objective: kl
fit_step: null
fit_tokens: 512
balance_loss: 0.5
entropy_loss: 0.25
entropy_of: token
stop_gradient: true
centroid_update: average
centroid_rate: 0.125
recluster_every: 20
)";
constexpr const char* kTokensToday = R"(grouping: tokens
num_groups: 5
local_window: 9
training: summary
objective: logit_distillation
summary:
  num_selected_groups: 4
  selection: own
  selection_per: key_head
  unselected_groups: drop
  block: 8
  sinks: 2
  width: 0
  train_num_selected_groups: 1
tokens:
  routing_dim: 7
  temperature: 0.5
  sinkhorn_iters: 3
  gate: logit
  gate_steepness: 6
  affinity_floor: 0.001
  balance: sequence
  carried_rate: 0.25
  sequence_steps: 11
  sinks: 0
  hard_gate: drop
  train_top_k: 3
keys:
  fit_step: null
  fit_tokens: 512
  head_budgets: equal
hash:
  seed: 1
ablations:
  balance_loss: 0.5
  entropy_loss: 0.25
  entropy_of: token
  stop_gradient: true
  centroid_update: average
  centroid_rate: 0.125
  recluster_every: 20
)";

TEST(OldKeys, OfFocusAreReadWhereTheyAreNow) {
  EXPECT_EQ(dump_config(stored(kTokens)), kTokensToday);
  // What a program of today wrote reads to itself.
  EXPECT_EQ(dump_config(stored(kTokensToday)), kTokensToday);
  const FocusConfig keys = stored("routing: keys\nobjective: layers\n");
  EXPECT_EQ(keys.grouping.name, "keys");
  EXPECT_EQ(keys.objective, Objective::layer_distillation);
}

TEST(OldKeys, AreNoKeysOfConfigsThatSomebodyWrites) {
  FocusConfig config;
  EXPECT_THROW(read_config_text("temperature: 0.5", "mine.yaml", {}, config), std::runtime_error);
  EXPECT_THROW(read_config_text("routing: keys", "mine.yaml", {}, config), std::runtime_error);
}

}  // namespace
}  // namespace focus
