#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "autograd/profile.h"
#include "focus/attention/gated_attention.h"
#include "focus/attention/pair_counts.h"

// How fast attention alone is: full causal attention against Focus's, on random q, k and v of one
// sequence.
namespace focus {

struct AttentionSpeedOptions {
  int num_groups = 8;        // K
  int top_k = 1;             // k
  Index local_window = 128;  // w
  Index heads = 12;          // of q
  Index kv_heads = 0;        // of k and v; 0: as many
  Index head_dim = 64;       // of each
  Index hidden_size = 0;     // of what is routed; 0: heads * head_dim
  int routing_dim = 16;      // d_g
  HardGate hard_gate = HardGate::drop;
  bool routed = true;     // groups from route() with balance `sequence`; false: uniformly random
  bool backward = false;  // time the gradients too
  bool soft = false;      // time soft attention too
  Index dense_up_to = 0;  // no full or soft attention at longer lengths; 0: at all lengths
  int repeats = 3;
  std::int64_t seed = 1;

  Index key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  Index routed_size() const { return hidden_size > 0 ? hidden_size : heads * head_dim; }
  /// Throws std::invalid_argument naming the option that is out of range.
  void validate() const;
};

/// The timed runs of one thing.
struct RunTimes {
  std::vector<double> seconds;
  std::size_t peak_bytes = 0;          // held by tensors at most, beside what was held before
  std::vector<Profile::Entry> phases;  // of the fastest

  /// Both want one run at least.
  double fastest() const;
  double median() const;
};

struct AttentionSpeed {
  Index length = 0;
  PairCounts pairs;
  double largest_group = 0;  // share of the tokens that have it; top_k / num_groups is balance
  RunTimes focus, routing;
  std::optional<RunTimes> dense, soft;  // unset where they were not run
  double flops_per_pair = 0;            // of all heads

  double ideal_speedup() const;
  /// How many times as fast as full attention, by the fastest runs; NaN where that was not run.
  double speedup() const;
  /// The same with the time of routing added to Focus's; NaN too where nothing was routed.
  double speedup_with_routing() const;
};

/// Runs each in turn, over and over, so that a drift of the machine's speed hits all: at least
/// options.repeats times, and more while a length has taken less than half a second. `report` gets
/// a line on what is about to run.
AttentionSpeed measure_attention(const AttentionSpeedOptions& options, Index length,
                                 const std::function<void(std::string_view)>& report);

/// Uniformly random sets of top_k of the groups.
std::vector<std::uint64_t> random_sets(Index length, int groups, int top_k, std::uint64_t seed);

}  // namespace focus
