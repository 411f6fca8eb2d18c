// The Focus attention sub-layer, op by op, against the reference implementation in float64.
#include "focus/method/attention/focus_attention.h"
#include "focus/method/attention/gate.h"
#include "focus/method/grouping/group_statistics.h"
#include "focus/method/grouping/routing.h"
#include "focus/method/grouping/sinkhorn.h"
#include "tests/support/compare.h"
#include "tests/support/golden_model.h"

namespace focus {
namespace {

class FocusGolden : public testing::TestWithParam<std::string> {};

TEST_P(FocusGolden, Agrees) {
  const GoldenFile file(GetParam());
  const FocusConfig config = golden_focus_config(file);
  const AttentionOptions options{
      .scale = static_cast<Real>(file.attribute("scale")),
      .softcap = static_cast<Real>(file.attribute("softcap")),
      .sliding_window = static_cast<Index>(file.attribute("sliding_window"))};

  const Variable h = leaf(file.tensor("h"));
  FocusLayer layer{leaf(file.tensor("w_g")), leaf(file.tensor("centroids")),
                   file.tensor("carried")};
  const Variable q = leaf(swap_heads(file.tensor("q"))), k = leaf(swap_heads(file.tensor("k"))),
                 v = leaf(swap_heads(file.tensor("v")));

  const Routing routing = route(h, layer, config, config.tokens().balance);
  expect_close("assignments", routing.assignments.value(), file.numbers("assignments"));

  // Scores and potentials as the file has them: before centring, from the sequence's own tokens.
  std::vector<Real> scores;
  for (const double logit : *routing.logits)
    scores.push_back(static_cast<Real>(logit * config.tokens().temperature));
  EXPECT_LE(relative_error(scores, file.numbers("scores")), kReferenceTolerance) << "scores";
  std::vector<Real> potentials;
  const Index batch = h.dim(0), seq_len = h.dim(1), groups = config.num_groups;
  for (Index s = 0; s < batch; ++s) {
    const SinkhornTrace trace = sinkhorn(routing.logits->data() + s * seq_len * groups, seq_len,
                                         groups, config.tokens().sinkhorn_iters);
    for (Index g = 0; g < groups; ++g)
      potentials.push_back(static_cast<Real>(trace.potentials()[g]));
  }
  EXPECT_LE(relative_error(potentials, file.numbers("log_potentials")), kReferenceTolerance)
      << "log_potentials";
  FocusLayer later = layer;
  later.updates = 1;
  absorb_potentials(
      later, centred_potentials(*routing.logits, groups, config.tokens().sinkhorn_iters), 0.1);
  expect_close("carried_after_update", later.potentials, file.numbers("carried_after_update_0.1"));

  // Soft attention, and every gradient.
  // The engine's log-sum-exps under the gate or mask.
  const auto lse_of = [&](const GateOptions& gate) {
    const auto rule = focus_rule(routing.assignments.value(), gate, false);
    return tiled_attention({q.value(), k.value(), v.value(), options},
                           causal_plan(batch, seq_len, options.sliding_window), rule.get())
        .lse;
  };
  const Variable out =
      gated_attention(q, k, v, routing.assignments, options, GateOptions::from(config));
  expect_close("out", swap_heads(out.value()), file.numbers("out"));
  expect_close("lse", lse_of(GateOptions::from(config)), file.numbers("lse"));
  backward(multiply(out, Variable(swap_heads(file.tensor("d_out")))));
  expect_close("grad_h", h.grad(), file.numbers("grad_h"));
  expect_close("grad_w_g", layer.projection.grad(), file.numbers("grad_w_g"));
  expect_close("grad_centroids", layer.centroids.grad(), file.numbers("grad_centroids"));
  expect_close("grad_q", swap_heads(q.grad()), file.numbers("grad_q"));
  expect_close("grad_k", swap_heads(k.grad()), file.numbers("grad_k"));
  expect_close("grad_v", swap_heads(v.grad()), file.numbers("grad_v"));

  // Hard attention for every k: membership and pair counts exactly.
  const NoGrad guard;
  for (int top_k = 1; top_k <= groups; ++top_k) {
    const std::string prefix = fmt::format("hard_{}/", top_k);
    GateOptions hard = GateOptions::from(config);
    hard.gated = false;
    hard.membership = membership(routing, top_k);
    const auto expected_sets = file.ids(prefix + "membership");
    for (std::size_t i = 0; i < expected_sets.size(); ++i)
      ASSERT_EQ(hard.membership[i / groups] >> (i % static_cast<std::size_t>(groups)) & 1,
                static_cast<std::uint64_t>(expected_sets[i]))
          << prefix << "membership, element " << i;
    const auto expected_pairs = file.numbers(prefix + "pairs");
    for (Index s = 0; s < batch; ++s) {
      const auto sets = std::span(hard.membership).subspan(s * seq_len, seq_len);
      EXPECT_EQ(
          static_cast<double>(
              count_pairs(sets, seq_len, config.local_window, options.sliding_window).attended),
          expected_pairs[s])
          << prefix << "pairs";
    }
    const Variable hard_out = sparse_attention(q, k, v, routing.assignments, options, hard);
    expect_close(prefix + "out", swap_heads(hard_out.value()), file.numbers(prefix + "out"));
    expect_close(prefix + "lse", lse_of(hard), file.numbers(prefix + "lse"));
  }
}

INSTANTIATE_TEST_SUITE_P(Files, FocusGolden, testing::ValuesIn(golden_entries("focus", ".h5")),
                         test_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FocusGolden);

TEST(FocusGoldenFiles, AreThere) {
  EXPECT_FALSE(golden_entries("focus", ".h5").empty()) << "no focus/*.h5 under " << golden_folder();
}

}  // namespace
}  // namespace focus
