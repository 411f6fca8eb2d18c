#include "focus/adapters/baselines/selected_keys.h"
#include "focus/method/attention/focus_attention.h"

// Two attentions that read the last tokens, by position alone.
//
// window: what is left of Longformer (Beltagy et al. 2020, arXiv 2004.05150, section 3.1, "sliding
// window") in a causal decoder put onto pretrained weights, without global tokens.
//
// sink_window: StreamingLLM (Xiao et al. 2023, arXiv 2309.17453), a local window and the first
// tokens, the attention sinks that take what a softmax cannot leave out (section 3.2),
//   out_i = softmax over { j <= i : i - j <= w or j < s } of (scale q_i . k_j) times v_j.
// As in the paper four sinks by default. Differences: positions are those of the text, where theirs
// count within the cache so that a text may be longer than any the model was trained on; and a
// model can be trained through it, without the paper's extra learnable sink token.
//
// A layer's own sliding window masks the sinks too, and stays where it is narrower. Both cost the
// pairs they attend, and a model can be trained through them.
namespace focus {
namespace {

struct WindowSettings {
  static constexpr const char* kKind = "window";
  Index local_window = 128;

  void visit(auto&& f) {
    f("local_window", local_window, "pairs with i - j <= local_window are attended", {0, 1 << 27});
  }
};
struct SinkWindowSettings {
  static constexpr const char* kKind = "sink_window";
  Index local_window = 128;
  Index sinks = 4;

  void visit(auto&& f) { visit_local(f, local_window, sinks); }
};

/// Tokens seen, itself included, where both a local window and a layer's sliding window (0: none)
/// hold.
Index narrower_window(Index local_window, Index sliding_window) {
  return sliding_window > 0 ? std::min(local_window + 1, sliding_window) : local_window + 1;
}

/// The pairs (i, j) with j < sinks and i - j > local_window.
AttentionPlan sinks_plan(Index batch, Index seq_len, Index sliding_window,
                         const SinkWindowSettings& config) {
  constexpr Index kKeys = AttentionPlan::kKeys, kQueries = AttentionPlan::kQueries;
  AttentionPlan plan;
  plan.window = sliding_window;
  plan.gap = config.local_window + 1;
  const Index sinks = std::min(config.sinks, seq_len - plan.gap);  // of those that any token sees
  for (Index first = 0; first < batch * seq_len && sinks > 0; first += seq_len) {
    const auto first_tile = std::ssize(plan.key_tiles);
    for (Index begin = 0; begin < sinks; begin += kKeys)
      plan.key_tiles.push_back({first + begin, first + std::min(sinks, begin + kKeys)});
    const std::size_t first_query = plan.query_tiles.size();
    for (Index begin = plan.gap; begin < seq_len; begin += kQueries) {
      const Index end = std::min(seq_len, begin + kQueries);
      const AttentionPlan::Rows keys =
          plan.rows_in(plan.reach(first + begin, first + end), {first, first + sinks});
      if (keys.begin == keys.end) continue;
      const auto segment = std::ssize(plan.segments);
      plan.segments.push_back({first_tile + (keys.begin - first) / kKeys,
                               first_tile + (keys.end - first + kKeys - 1) / kKeys});
      plan.query_tiles.push_back({first + begin, first + end, segment, segment + 1});
    }
    plan.heaviest_first(first_query);
  }
  return plan;
}

PairCounts pairs_of(const MechanismInputs& in, const SinkWindowSettings& config) {
  const Index seq_len = in.q.dim(1), sliding = in.options.sliding_window;
  std::int64_t attended =
      count_pairs({}, seq_len, seq_len, narrower_window(config.local_window, sliding)).all;
  for (Index i = 0; i < seq_len; ++i)
    attended += std::max<Index>(
        0, std::min(config.sinks, i - config.local_window) - seen_keys(i, sliding).begin);
  PairCounts counts = all_pairs(in);
  counts.attended = in.q.dim(0) * attended;
  return counts;
}

struct Window final : MechanismWith<WindowSettings> {
  using MechanismWith::MechanismWith;

  std::string name() const override { return fmt::format("window w={}", config_.local_window); }
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    if (pairs != nullptr) *pairs = pairs_of(in, {config_.local_window, 0});
    AttentionOptions narrowed = in.options;
    narrowed.sliding_window = narrower_window(config_.local_window, in.options.sliding_window);
    return attention(in.q, in.k, in.v, narrowed);
  }
};

struct SinkWindow final : MechanismWith<SinkWindowSettings> {
  using MechanismWith::MechanismWith;

  std::string name() const override {
    return fmt::format("sink_window w={} s={}", config_.local_window, config_.sinks);
  }
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    if (pairs != nullptr) *pairs = pairs_of(in, config_);
    const Index batch = in.q.dim(0), seq_len = in.q.dim(1), sliding = in.options.sliding_window;
    const Index local = std::min(seq_len, narrower_window(config_.local_window, sliding));
    return attention_by_plans("sink_window", in.q, in.k, in.v, {}, in.options,
                              causal_plan(batch, seq_len, local),
                              sinks_plan(batch, seq_len, sliding, config_), nullptr);
  }
};

}  // namespace

AdapterKind window_kind() {
  return mechanism_kind<Window>("attention window: a local window only (Longformer)");
}
AdapterKind sink_window_kind() {
  return mechanism_kind<SinkWindow>(
      "attention sink_window: a local window and the first tokens (StreamingLLM)");
}

}  // namespace focus
