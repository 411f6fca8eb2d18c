#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/base/profile.h"
#include "autograd/gemm/frozen_matrix.h"
#include "focus/evaluation/attention_spec.h"
#include "focus/method/attention/focus_attention.h"
#include "focus/method/cache_numbers.h"
#include "focus/method/grouping/group_statistics.h"
#include "focus/method/summary/summary_attention.h"
#include "focus/training/session.h"

// The speed of attention only, of a training step, and of generation.
namespace focus {

/// Full causal attention and Focus's, on random q, k and v of one sequence.
struct AttentionSpeedOptions {
  int num_groups = 8;        // K
  int top_k = 1;             // k
  Index local_window = 128;  // w
  Index heads = 12, head_dim = 64;
  HardGate hard_gate = HardGate::drop;
  Precision precision = Precision::float32;
  bool backward = false;
  Index dense_up_to = 0;
  int repeats = 3;
  /// Timed instead of hard attention: groups of keys, unselected ones as summary tokens.
  std::optional<SummarySettings> summary = {};

  void visit(auto&& f) {
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
    f("dense_up_to", dense_up_to,
      "longest length with full attention, longer rows print -; 0: no limit", {0, 1e12});
    f("repeats", repeats, "least number of rounds per length; short lengths get more", {1, 1e6});
  }

  /// Throws std::invalid_argument if two settings do not fit each other.
  void validate() const;
  /// Takes hard or summary attention from a spec. Throws std::runtime_error, one line
  /// that starts with `where`.
  void read_attention(const std::string& word, const std::string& where);
  /// "k=1, w=128", or the settings of summary attention.
  std::string attention_text() const;
  /// All settings in one line.
  std::string text() const;
};

/// The timed runs of one thing; without any it was left out.
struct RunTimes {
  std::vector<double> seconds = {};
  std::size_t peak_bytes = 0;  // of tensors, beyond those that existed before
  double flops = 0;            // of one run; 0: not counted

  /// NaN without a run, as gflops() is.
  double fastest() const;
  double gflops() const { return flops / fastest() / 1e9; }
};

struct AttentionSpeed {
  Index length = 0;
  PairCounts pairs = {};
  std::vector<std::uint64_t> sets = {};  // the groups of each token, a mask; of hard attention
  double largest_group = 0;              // share of the tokens; balanced: top_k / num_groups
  RunTimes focus = {}, routing = {}, dense = {};
  double flops_per_pair = 0;  // of all heads

  double ideal_speedup() const {
    return static_cast<double>(pairs.all) / static_cast<double>(pairs.attended);
  }
  /// Relative to full attention, by the fastest runs; NaN if that was not run.
  double speedup() const { return dense.fastest() / focus.fastest(); }
  /// The same with the time of routing added to Focus's; NaN also if nothing was routed.
  double speedup_with_routing() const {
    return dense.fastest() / (focus.fastest() + routing.fastest());
  }
};
/// Runs that were left out and numbers that are not finite are null.
nlohmann::ordered_json to_json(const AttentionSpeed& row);
/// A table of times and speed-ups for a terminal.
std::string speed_text(const AttentionSpeedOptions& options,
                       const std::vector<AttentionSpeed>& rows);

/// Runs the attentions interleaved, so that a drift of the machine's speed affects all: at least
/// options.repeats times, and more while a length has taken less than half a second. `report` gets
/// a line before each run.
AttentionSpeed measure_attention(const AttentionSpeedOptions& options, Index length,
                                 const std::function<void(std::string_view)>& report);

/// The shape of a published model, for timing with random weights.
struct NamedShape {
  std::string_view name;
  const char* config;  // YAML of a RunConfig
  Index vocab_size;
};
/// "gpt2" (124M) or "llama-15m". Throws std::runtime_error, which lists them.
const NamedShape& find_shape(const std::string& name);

struct PhaseTime {
  std::string_view name;
  double forward = 0, backward = 0, update = 0;  // seconds
  double total() const { return forward + backward + update; }
};

/// Timed steps, their session, and the best speed that it could have.
struct MeasuredSteps {
  Session& session;
  std::string shape;  // of find_shape(), or empty
  double peak_gflops = 0;
  std::vector<double> seconds = {};
  std::uint64_t multiply_adds = 0;         // of one step
  std::vector<Profile::Entry> marks = {};  // of the fastest step

  AttentionSpec mode() const { return session.mode_at(std::ssize(seconds)); }
  const ModelConfig& model() const { return session.model().decoder->config(); }
  double tokens() const { return static_cast<double>(session.config().tokens_per_step()); }
  double fastest() const { return *std::ranges::min_element(seconds); }
  double gflops() const { return 2 * static_cast<double>(multiply_adds) / fastest() / 1e9; }
  /// The marks by phase.
  std::vector<PhaseTime> phases() const;
};
/// Times `repeats` steps after a warm-up step. `report` is called with each step (0: the warm-up)
/// and its seconds.
void time_steps(MeasuredSteps& measured, int repeats,
                const std::function<void(int step, double seconds)>& report);
nlohmann::ordered_json to_json(const MeasuredSteps& measured);

/// Decoding of `decoded_tokens` tokens behind `context` others.
struct DecodeSpeed {
  Index context = 0, decoded_tokens = 0;
  std::string attention;
  double tokens_per_second = 0;  // of the median step
  double keys_read = 1;          // share of the cached keys
  std::size_t weight_bytes = 0;  // that a token multiplies, as they are stored
  std::size_t cache_bytes = 0;   // of keys, values and sums

  /// That a token reads of weights and cache.
  double bytes_per_token() const {
    return static_cast<double>(weight_bytes) + keys_read * static_cast<double>(cache_bytes);
  }
  double bytes_per_second() const { return tokens_per_second * bytes_per_token(); }

  void visit(auto&& f) {
    FOCUS_MEMBERS(f, context, decoded_tokens, attention, tokens_per_second, keys_read, weight_bytes,
                  cache_bytes);
  }
};

/// Fills a cache with the first `context` ids and times those after it, all that there are, one by
/// one. `spec` is resolved and can generate (attention_to_generate()).
DecodeSpeed measure_decoding(LoadedModel& model, const AttentionSpec& spec,
                             const std::vector<std::int32_t>& ids, Index context, CacheDtype cache);

/// Bytes in a second that all threads together read of a memory of so many bytes, the fastest of
/// some rounds: what decoding cannot exceed where the weights are larger than the caches.
double read_bandwidth(std::size_t bytes = std::size_t{1} << 28);

}  // namespace focus
