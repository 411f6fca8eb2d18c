#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/base/profile.h"
#include "focus/method/attention/gated_attention.h"
#include "focus/method/grouping/pair_counts.h"
#include "focus/method/summary/summary_attention.h"
#include "focus/models/precision.h"

// How fast attention alone is: full causal attention against Focus's, on random q, k and v of one
// sequence.
namespace focus {

enum class SpeedAssignment { routing, uniform };
constexpr auto enum_names(SpeedAssignment) {
  return std::array<std::string_view, 2>{"routing", "uniform"};
}

struct AttentionSpeedOptions {
  int num_groups = 8;        // K
  int top_k = 1;             // k
  Index local_window = 128;  // w
  Index heads = 12, kv_heads = 0, head_dim = 64, hidden_size = 0;
  int routing_dim = 16;  // d_g
  HardGate hard_gate = HardGate::drop;
  SpeedAssignment assignment = SpeedAssignment::routing;
  Precision precision = Precision::float32;
  bool backward = false, soft = false;
  Index dense_up_to = 0;
  int repeats = 3;
  std::int64_t seed = 1;
  /// Timed in the place of hard attention: groups of keys, those that are not read as columns.
  std::optional<SummarySettings> summary = {};

  template <class F>
  void visit(F&& f) {
    f("num_groups", num_groups, "K, groups; more than 64 only with groups of keys",
      {1, kMaxKeyGroups});
    f("top_k", top_k, "k, groups that each token keeps", {1, kMaxGroups});
    f("local_window", local_window, "w, pairs with i - j <= w are attended", {0, 1e12});
    f("heads", heads, "query heads", {1, 1e6});
    f("kv_heads", kv_heads, "key and value heads; 0: as many as query heads", {0, 1e6});
    f("head_dim", head_dim, "width of each head", {1, 1e6});
    f("hidden_size", hidden_size, "width of the routed vectors; 0: heads * head_dim", {0, 1e6});
    f("routing_dim", routing_dim, "d_g", {1, 1e6});
    f("hard_gate", hard_gate, "drop or keep the affinity of attended pairs");
    f("assignment", assignment,
      "routing: groups from random h, projection and centroids, balanced over the sequence; "
      "uniform: random groups");
    f("precision", precision,
      "bf16: operands of matrix products are rounded to bf16 where that is faster, except those of "
      "summary tokens");
    f("backward", backward, "time forward and backward, with gradients of q, k and v");
    f("soft", soft, "also time soft attention (every pair, gated)");
    f("dense_up_to", dense_up_to,
      "longest length with full and soft attention, longer rows print -; 0: no limit", {0, 1e12});
    f("repeats", repeats, "least number of rounds per length; short lengths get more", {1, 1e6});
    f("seed", seed, "random seed", {0, 1e18});
  }

  /// The same with kv_heads and hidden_size said. Throws std::invalid_argument where two settings
  /// do not fit each other.
  AttentionSpeedOptions filled_in() const;
  /// What words of the attention vocabulary list: hard or summary, and soft beside it. Throws
  /// std::runtime_error, one line that starts with `where`.
  void read_attentions(const std::vector<std::string>& words, const std::string& where);
  /// "k=1, w=128", or what summary attention reads.
  std::string attention_text() const;
  /// All that a figure depends on, in one line.
  std::string text() const;
};

/// The timed runs of one thing.
struct RunTimes {
  std::vector<double> seconds;
  std::size_t peak_bytes = 0;          // held by tensors at most, beside what was held before
  std::vector<Profile::Entry> phases;  // of the fastest

  /// Of one run at least.
  double fastest() const;
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
  /// Operations of so many pairs in a second of the fastest run.
  double gflops(const RunTimes& times, std::int64_t of_pairs) const;
};
/// What was not run, and a number that is not finite, is null.
nlohmann::ordered_json to_json(const AttentionSpeed& row);

/// Runs each in turn, over and over, so that a drift of the machine's speed hits all: at least
/// options.repeats times, and more while a length has taken less than half a second. `report` gets
/// a line on what is about to run.
AttentionSpeed measure_attention(const AttentionSpeedOptions& options, Index length,
                                 const std::function<void(std::string_view)>& report);

/// Uniformly random sets of top_k of the groups.
std::vector<std::uint64_t> random_sets(Index length, int groups, int top_k, std::uint64_t seed);

}  // namespace focus
