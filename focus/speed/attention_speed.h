#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/base/profile.h"
#include "autograd/precision.h"
#include "focus/method/attention/focus_attention.h"
#include "focus/method/grouping/group_statistics.h"
#include "focus/method/summary/summary_attention.h"

// The speed of attention only: full causal attention and Focus's, on random q, k and v of one
// sequence.
namespace focus {

struct AttentionSpeedOptions {
  int num_groups = 8;        // K
  int top_k = 1;             // k
  Index local_window = 128;  // w
  Index heads = 12, head_dim = 64;
  HardGate hard_gate = HardGate::drop;
  Precision precision = Precision::float32;
  bool backward = false, soft = false;
  Index dense_up_to = 0;
  int repeats = 3;
  /// Timed instead of hard attention: groups of keys, unselected ones as summary tokens.
  std::optional<SummarySettings> summary = {};

  template <class F>
  void visit(F&& f) {
    f("num_groups", num_groups, "K, groups; more than 64 only with groups of keys",
      {1, kMaxKeyGroups});
    f("top_k", top_k, "k, groups that each token keeps", {1, kMaxGroups});
    f("local_window", local_window, "w, pairs with i - j <= w are attended", {0, 1e12});
    f("heads", heads, "query heads, and as many key and value heads", {1, 1e6});
    f("head_dim", head_dim, "width of each head", {1, 1e6});
    f("hard_gate", hard_gate, "drop or keep the affinity of attended pairs");
    f("precision", precision,
      "bf16: operands of matrix products are rounded to bf16 where that is faster, except those of "
      "summary tokens");
    f("backward", backward, "time forward and backward, with gradients of q, k and v");
    f("soft", soft, "also time soft attention (every pair, gated)");
    f("dense_up_to", dense_up_to,
      "longest length with full and soft attention, longer rows print -; 0: no limit", {0, 1e12});
    f("repeats", repeats, "least number of rounds per length; short lengths get more", {1, 1e6});
  }

  /// Throws std::invalid_argument if two settings do not fit each other.
  void validate() const;
  /// Takes hard or summary, and soft, from attention specs. Throws std::runtime_error, one line
  /// that starts with `where`.
  void read_attentions(const std::vector<std::string>& words, const std::string& where);
  /// "k=1, w=128", or the settings of summary attention.
  std::string attention_text() const;
  /// All settings in one line.
  std::string text() const;
};

/// The timed runs of one thing; without any it was left out.
struct RunTimes {
  std::vector<double> seconds = {};
  std::size_t peak_bytes = 0;               // of tensors, beyond those that existed before
  std::vector<Profile::Entry> phases = {};  // of the fastest
  double flops = 0;                         // of one run; 0: not counted

  /// NaN without a run, as gflops() is.
  double fastest() const;
  double gflops() const { return flops / fastest() / 1e9; }
};

struct AttentionSpeed {
  Index length = 0;
  PairCounts pairs = {};
  std::vector<std::uint64_t> sets = {};  // the groups of each token, a mask; of hard attention
  double largest_group = 0;              // share of the tokens; balanced: top_k / num_groups
  RunTimes focus = {}, routing = {}, dense = {}, soft = {};
  double flops_per_pair = 0;  // of all heads

  double ideal_speedup() const;
  /// Relative to full attention, by the fastest runs; NaN if that was not run.
  double speedup() const { return dense.fastest() / focus.fastest(); }
  /// The same with the time of routing added to Focus's; NaN also if nothing was routed.
  double speedup_with_routing() const {
    return dense.fastest() / (focus.fastest() + routing.fastest());
  }
};
/// Runs that were left out and numbers that are not finite are null.
nlohmann::ordered_json to_json(const AttentionSpeed& row);
/// Tables of times, speed-ups and phases for a terminal.
std::string speed_text(const AttentionSpeedOptions& options,
                       const std::vector<AttentionSpeed>& rows);

/// Runs the attentions interleaved, so that a drift of the machine's speed affects all: at least
/// options.repeats times, and more while a length has taken less than half a second. `report` gets
/// a line before each run.
AttentionSpeed measure_attention(const AttentionSpeedOptions& options, Index length,
                                 const std::function<void(std::string_view)>& report);

}  // namespace focus
