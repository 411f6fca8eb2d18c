
#include "tests/support/composed.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

using Targets = std::vector<std::int32_t>;

/// Random targets of which every `ignored`-th is -1 (none where it is 0).
Targets targets_of(Index rows, std::int32_t vocab, std::size_t ignored) {
  Targets targets = random_ids(static_cast<std::size_t>(rows), vocab, 3);
  for (std::size_t t = 0; ignored > 0 && t < targets.size(); t += ignored) targets[t] = -1;
  return targets;
}

/// mean(log_sum_exp(x Wᵀ) - (x Wᵀ)[target]) from elementary ops.
Variable composed_loss(const Variable& x, const Variable& weight, const Targets& targets,
                       Real softcap) {
  const Index rows = x.value().rows(), vocab = weight.dim(0);
  Variable logits = linear(reshape(x, {rows, x.dim(-1)}), weight, {});
  if (softcap > 0) logits = scale(tanh(scale(logits, 1 / softcap)), softcap);
  const auto scored = std::count_if(targets.begin(), targets.end(), [](auto t) { return t >= 0; });
  Tensor share = Tensor::zeros({rows}), picked = Tensor::zeros({rows, vocab});
  for (Index r = 0; r < rows; ++r)
    if (const auto target = targets[r]; target >= 0) {
      share.data()[r] = 1 / static_cast<Real>(scored);
      picked.data()[r * vocab + target] = -1 / static_cast<Real>(scored);
    }
  return add(sum_all(multiply(log_sum_exp(logits), share)), sum_all(multiply(logits, picked)));
}

TEST(LinearCrossEntropy, EqualsTheComposedForm) {
  struct Case {
    Index rows, hidden, vocab;
    std::size_t ignored;
    Real softcap = 0;
  };
  // 256 rows are a chunk of logits, 1024 columns a piece of the sum.
  for (const auto& [rows, hidden, vocab, ignored, softcap] :
       {Case{1, 3, 5, 0}, Case{255, 4, 7, 3}, Case{256, 4, 7, 0}, Case{257, 4, 7, 2},
        Case{600, 5, 11, 4}, Case{5, 6, 1024, 0}, Case{5, 6, 2050, 2},
        Case{257, 4, 7, 2, Real(0.8)}, Case{5, 6, 2050, 2, 3}}) {
    SCOPED_TRACE(fmt::format("{} rows, vocabulary {}, softcap {}", rows, vocab, softcap));
    const Targets targets = targets_of(rows, static_cast<std::int32_t>(vocab), ignored);
    const std::vector<Tensor> inputs = {randn({rows, hidden}, 1), randn({vocab, hidden}, 2)};
    const Variables fused = leaves(inputs), composed = leaves(inputs);
    const Variable loss = linear_cross_entropy(fused[0], fused[1], targets, softcap);
    const Variable expected = composed_loss(composed[0], composed[1], targets, softcap);
    EXPECT_NEAR(loss.value()[0], expected.value()[0], tolerance(3e-5, 1e-12));
    backward(scale(loss, 3));
    backward(scale(expected, 3));
    for (const std::size_t i : {0, 1})
      EXPECT_LE(relative_difference(fused[i].grad(), composed[i].grad()), tolerance(1e-5, 1e-12))
          << "input " << i;

    const auto per_row = linear_cross_entropy_rows(inputs[0], inputs[1], targets, softcap);
    double sum = 0, scored = 0;
    for (std::size_t t = 0; t < targets.size(); ++t) {
      EXPECT_TRUE(targets[t] >= 0 || per_row[t] == 0) << "row " << t;
      sum += per_row[t];
      scored += targets[t] >= 0;
    }
    EXPECT_NEAR(sum / scored, loss.value()[0], tolerance(1e-6, 1e-13));
  }
}

TEST(LinearCrossEntropy, Gradient) {
  const Targets targets = {2, -1, 0, 4};
  for (const Real softcap : {Real(0), Real(0.7)})
    expect_gradients(
        [&](const Variables& v) { return linear_cross_entropy(v[0], v[1], targets, softcap); },
        {randn({2, 2, 3}, 1), randn({5, 3}, 2)});
}

TEST(LinearCrossEntropy, WeightsOfRows) {
  const Targets targets = {2, -1, 0, 4};
  const std::vector<Real> weights = {Real(0.5), 3, Real(-1.5), 0};
  for (const Real softcap : {Real(0), Real(0.7)}) {
    const std::vector<Tensor> inputs = {randn({2, 2, 3}, 1), randn({5, 3}, 2)};
    const auto f = [&](const Variables& v) {
      return weighted_cross_entropy(v[0], v[1], targets, weights, softcap);
    };
    expect_gradients(f, inputs);
    const auto rows = linear_cross_entropy_rows(inputs[0], inputs[1], targets, softcap);
    EXPECT_NEAR(f({inputs[0], inputs[1]}).value()[0], 0.5 * rows[0] - 1.5 * rows[2], 1e-6);
  }
  const std::vector<Real> few = {1};
  EXPECT_THROW(weighted_cross_entropy(randn({4, 3}, 1), randn({5, 3}, 2), targets, few),
               std::invalid_argument);
}

TEST(LinearCrossEntropy, OneSideMayBeFrozen) {
  const Targets targets = targets_of(300, 7, 0);
  const std::vector<Tensor> inputs = {randn({300, 4}, 1), randn({7, 4}, 2)};
  const Variables both = leaves(inputs);
  backward(linear_cross_entropy(both[0], both[1], targets));
  for (const std::size_t i : {0, 1}) {
    Variables one(inputs.begin(), inputs.end());
    one[i].set_requires_grad(true);
    backward(linear_cross_entropy(one[0], one[1], targets));
    EXPECT_TRUE(same_bits(one[i].grad(), both[i].grad()));
  }
}

TEST(LinearCrossEntropy, HugeLogitsStayFinite) {
  const Tensor x = Tensor::full({1, 1}, 1), w = tensor_of({3, 1}, {1e5, -1e5, 0});
  EXPECT_EQ(linear_cross_entropy(x, w, Targets{0}).value()[0], 0);
  EXPECT_NEAR(linear_cross_entropy(x, w, Targets{1}).value()[0], 2e5, 1);
}

TEST(LinearCrossEntropy, NeverHoldsAllLogits) {
  const Index rows = 2048, vocab = 512;
  const Tensor x = randn({rows, 4}, 1), w = randn({vocab, 4}, 2);
  const Targets targets = targets_of(rows, vocab, 0);
  reset_pool_peak();
  const std::size_t before = pool_stats().live;
  linear_cross_entropy(x, w, targets);
  EXPECT_LT(pool_stats().peak - before, rows * vocab * sizeof(Real) / 3);
}

TEST(LinearCrossEntropy, RejectsWrongArguments) {
  const Variable x(Tensor::zeros({2, 3})), w(Tensor::zeros({5, 3}));
  EXPECT_THROW(linear_cross_entropy(x, w, Targets{-1, -1}), std::invalid_argument);
  EXPECT_THROW(linear_cross_entropy(x, w, Targets{0, 5}), std::invalid_argument);
  EXPECT_THROW(linear_cross_entropy(x, w, Targets{0}), std::invalid_argument);
  EXPECT_THROW(linear_cross_entropy(x, Tensor::zeros({5, 4}), Targets{0, 1}),
               std::invalid_argument);
  EXPECT_THROW(linear_cross_entropy_rows(x.value(), w.value(), Targets{0, 5}),
               std::invalid_argument);
}

}  // namespace
}  // namespace focus
