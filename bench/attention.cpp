#include "autograd/simd/bf16_kernels.h"
#include "bench/cases.h"
#include "bench/membership.h"
#include "focus/method/attention/focus_attention.h"
#include "focus/method/grouping/key_grouping.h"
#include "focus/method/summary/summary_attention.h"

namespace focus::bench {
namespace {

constexpr Index kHeadDim = 64;
constexpr Index kWindow = 128;  // w, and the sliding window
const AttentionOptions kOptions{.scale = 0.125F, .softcap = 0, .sliding_window = 0};

/// Inputs are q, k, v and, where the mechanism has a gate, the assignments g.
using Mechanism = std::function<Variable(const Variables&)>;

Case attention_case(Index heads, Index seq_len, bool with_backward, bool gated, PairCounts pairs,
                    Mechanism mechanism) {
  const Shape shape{1, seq_len, heads, kHeadDim};
  Variables inputs = {random_tensor(shape, 1), random_tensor(shape, 2), random_tensor(shape, 3)};
  if (gated) inputs.emplace_back(random_assignments(seq_len));
  const auto attended = static_cast<double>(pairs.attended);
  Case made;
  made.run = with_backward ? forward_backward(std::move(inputs), std::move(mechanism))
                           : forward(std::move(inputs), std::move(mechanism));
  // q·k and p v: 4 operations per number of a head and pair. Backward has five such products for
  // the forward's two, one of them the scores once more.
  made.flops = 4 * attended * static_cast<double>(kHeadDim * heads) * (with_backward ? 3.5 : 1);
  made.tokens = static_cast<double>(seq_len);
  made.pairs = attended;
  return made;
}

Case dense(Index heads, Index seq_len, bool with_backward, Index window,
           const simd::Bf16Kernels* bf16 = nullptr) {
  AttentionOptions options = kOptions;
  options.sliding_window = window;
  options.bf16 = bf16;
  return attention_case(heads, seq_len, with_backward, false, count_pairs({}, seq_len, 0, window),
                        [=](const Variables& x) { return attention(x[0], x[1], x[2], options); });
}

Case soft(Index heads, Index seq_len, bool with_backward, Gate gate) {
  GateOptions options;
  options.gate = gate;
  options.local_window = kWindow;
  return attention_case(heads, seq_len, with_backward, true, count_pairs({}, seq_len, kWindow, 0),
                        [=](const Variables& x) {
                          return gated_attention(x[0], x[1], x[2], x[3], kOptions, options);
                        });
}

Case hard(Index heads, Index seq_len, bool with_backward, int top_k, HardGate gate) {
  GateOptions options;
  options.local_window = kWindow;
  options.gated = gate == HardGate::keep;
  options.membership = random_membership(seq_len, top_k);
  // A gate that is dropped has no gradient: g is then no input that would wait for one.
  const Variable g = random_assignments(seq_len);
  return attention_case(heads, seq_len, with_backward, options.gated,
                        counted_pairs(seq_len, top_k, kWindow), [=](const Variables& x) {
                          return sparse_attention(x[0], x[1], x[2], options.gated ? x[3] : g,
                                                  kOptions, options);
                        });
}

/// Groups of keys, those that are not read as columns; the group_ids, the choice, the sort and the
/// sums are part of what is timed.
Case summary(Index heads, Index seq_len, bool with_backward, int groups, Index read_groups) {
  SummarySettings options;
  options.num_selected_groups = read_groups;
  Rng rng(5);
  KeyGroups fitted = make_key_groups(groups, heads, kHeadDim, rng);
  const Tensor keys = random_tensor({1, seq_len, heads, kHeadDim}, 2);  // the case's own
  const Index sample = std::min<Index>(seq_len, 16384);
  fit_key_groups(
      fitted,
      Tensor::from({sample, heads, kHeadDim},
                   keys.span().first(static_cast<std::size_t>(sample * heads * kHeadDim))),
      1);
  const auto attend = [=](const Variables& x, SummaryReport* report) {
    const GroupIds group_ids =
        nearest_groups(x[1].value(), fitted.centroids.value(), fitted.bias.value());
    return summary_attention(x[0], x[1], x[2], group_ids, fitted.summary_bias, kOptions, options,
                             report);
  };
  SummaryReport report;
  attend({random_tensor({1, seq_len, heads, kHeadDim}, 1), keys,
          random_tensor({1, seq_len, heads, kHeadDim}, 3)},
         &report);
  PairCounts pairs = count_pairs({}, seq_len, 0, 0);
  pairs.attended = report.pairs.at(0) / heads;
  return attention_case(heads, seq_len, with_backward, false, pairs,
                        [=](const Variables& x) { return attend(x, nullptr); });
}

}  // namespace

void add_attention_cases() {
  const auto add = [](Index heads, Index seq_len) {
    for (const auto& [pass, with_backward] : kPasses) {
      const auto name = [&, pass = pass](const std::string& mechanism) {
        return fmt::format("attention/{}/{}/heads:{}/T:{}", mechanism, pass, heads, seq_len);
      };
      const bool both = with_backward;
      add_case(name("dense"), [=] { return dense(heads, seq_len, both, 0); });
      add_case(name("dense_bf16"),
               [=] { return dense(heads, seq_len, both, 0, &simd::bf16_kernels()); });
      add_case(name("sliding_window"), [=] { return dense(heads, seq_len, both, kWindow); });
      add_case(name("soft_affinity"), [=] { return soft(heads, seq_len, both, Gate::affinity); });
      add_case(name("soft_logit"), [=] { return soft(heads, seq_len, both, Gate::logit); });
      add_case(name("summary_k32_m2"), [=] { return summary(heads, seq_len, both, 32, 2); });
      add_case(name("summary_k16_m0"), [=] { return summary(heads, seq_len, both, 16, 0); });
      for (const int top_k : {1, 2}) {
        add_case(name(fmt::format("hard_k{}", top_k)),
                 [=] { return hard(heads, seq_len, both, top_k, HardGate::drop); });
        add_case(name(fmt::format("hard_k{}_keep", top_k)),
                 [=] { return hard(heads, seq_len, both, top_k, HardGate::keep); });
      }
    }
  };
  for (const Index seq_len : kLengths) {
    add(12, seq_len);
    add(1, seq_len);
  }
  for (const Index seq_len : {32768, 65536, 131072, 1048576}) add(1, seq_len);
}

}  // namespace focus::bench
