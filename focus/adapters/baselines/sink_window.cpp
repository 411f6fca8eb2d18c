#include "focus/adapters/baselines/sink_window.h"

#include "autograd/attention/tiled_attention.h"
#include "autograd/base/check.h"
#include "focus/adapters/baselines/selected_keys.h"
#include "focus/adapters/baselines/window_attention.h"
#include "focus/adapters/mechanism.h"

// StreamingLLM (Xiao et al. 2023, arXiv 2309.17453): a local window and the first tokens, the
// attention sinks that take what a softmax cannot leave out (section 3.2),
//   out_i = softmax over { j <= i : i - j <= w or j < s } of (scale q_i . k_j) times v_j.
// As in the paper four sinks by default. Differences: positions are those of the text, where theirs
// count within the cache so that a text may be longer than any the model was trained on; and a
// model can be trained through it, without the paper's extra learnable sink token.
namespace focus {
namespace {

/// The pairs (i, j) with j < sinks and i - j > local_window.
AttentionPlan sinks_plan(Index batch, Index seq_len, Index sliding_window,
                         const SinkWindowConfig& config) {
  constexpr Index kKeys = AttentionPlan::kKeys, kQueries = AttentionPlan::kQueries;
  AttentionPlan plan;
  plan.window = sliding_window;
  plan.gap = config.local_window + 1;
  const Index sinks = std::min(config.sinks, seq_len - plan.gap);  // of those that any token sees
  for (Index first = 0; first < batch * seq_len && sinks > 0; first += seq_len) {
    const auto first_tile = static_cast<Index>(plan.key_tiles.size());
    for (Index begin = 0; begin < sinks; begin += kKeys)
      plan.key_tiles.push_back({first + begin, first + std::min(sinks, begin + kKeys)});
    const std::size_t first_query = plan.query_tiles.size();
    for (Index begin = plan.gap; begin < seq_len; begin += kQueries) {
      const Index end = std::min(seq_len, begin + kQueries);
      const AttentionPlan::Rows keys =
          plan.rows_in(plan.reach(first + begin, first + end), {first, first + sinks});
      if (keys.begin == keys.end) continue;
      const auto segment = static_cast<Index>(plan.segments.size());
      plan.segments.push_back({first_tile + (keys.begin - first) / kKeys,
                               first_tile + (keys.end - first + kKeys - 1) / kKeys});
      plan.query_tiles.push_back({first + begin, first + end, segment, segment + 1});
    }
    plan.heaviest_first(first_query);
  }
  return plan;
}

PairCounts count_sink_window_pairs(Index batch, Index seq_len, Index sliding_window,
                                   const SinkWindowConfig& config) {
  PairCounts counts = count_pairs({}, seq_len, seq_len, sliding_window);
  counts.attended =
      count_pairs({}, seq_len, seq_len, narrower_window(config.local_window, sliding_window)).all;
  for (Index i = 0; i < seq_len; ++i)
    counts.attended += std::max<Index>(
        0, std::min(config.sinks, i - config.local_window) - first_visible(i, sliding_window));
  PairCounts all;
  for (Index s = 0; s < batch; ++s) all += counts;
  return all;
}

class SinkWindowMechanism final : public Mechanism {
 public:
  using Settings = SinkWindowConfig;
  SinkWindowMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("sink_window", settings, shape), config_(settings) {}

  std::string name() const override {
    return fmt::format("sink_window w={} s={}", config_.local_window, config_.sinks);
  }

 protected:
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    return sink_window_attention(in.q, in.k, in.v, in.options, config_, pairs);
  }

 private:
  const Settings config_;
};

}  // namespace

void SinkWindowConfig::validate() const {
  check(local_window >= 0 && sinks >= 0,
        "sink_window: local_window and sinks must not be negative, not {} and {}", local_window,
        sinks);
}

Variable sink_window_attention(const Variable& q, const Variable& k, const Variable& v,
                               const AttentionOptions& options, const SinkWindowConfig& config,
                               PairCounts* pairs) {
  struct Parts {
    AttentionInputs inputs;
    AttentionPlan local, sinks;
  };
  auto parts = std::make_shared<Parts>();
  parts->inputs = {q.value(), k.value(), v.value(), options};
  check_attention_inputs(parts->inputs);
  const Index batch = q.dim(0), seq_len = q.dim(1), sliding = options.sliding_window;
  parts->local =
      causal_plan(batch, seq_len, std::min(seq_len, narrower_window(config.local_window, sliding)));
  parts->sinks = sinks_plan(batch, seq_len, sliding, config);
  if (pairs != nullptr) *pairs = count_sink_window_pairs(batch, seq_len, sliding, config);

  AttentionResult result = tiled_attention(parts->inputs, parts->local, nullptr);
  tiled_attention(parts->inputs, parts->sinks, nullptr, Into::add, {0, k.dim(2)}, result);
  return Variable::from_op(
      "sink_window", result.out, {q, k, v}, [parts, result](const Tensor& d_out, Grads grads) {
        const WantedGradients wanted{grads[0].wanted(), grads[1].wanted(), grads[2].wanted()};
        AttentionGradients d =
            tiled_attention_backward(parts->inputs, parts->local, result, d_out, nullptr, wanted);
        if (!parts->sinks.segments.empty())
          d = tiled_attention_backward(parts->inputs, parts->sinks, result, d_out, nullptr, wanted,
                                       std::move(d));
        if (wanted.q) grads[0].add(d.q);
        if (wanted.k) grads[1].add(d.k);
        if (wanted.v) grads[2].add(d.v);
      });
}

AdapterKind sink_window_kind() {
  return mechanism_kind<SinkWindowMechanism>(
      "sink_window", "attention sink_window: a local window and the first tokens (StreamingLLM)");
}

}  // namespace focus
