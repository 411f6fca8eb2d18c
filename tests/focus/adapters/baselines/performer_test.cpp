#include <gtest/gtest.h>

#include "tests/support/baseline_case.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

const AttentionOptions kPerformerOptions{.scale = Real(0.35)};

std::unique_ptr<Mechanism> performer(Index features, const BaselineCase& c, int seed = 3) {
  return mechanism_of("performer", fmt::format("{{num_features: {}, seed: {}}}", features, seed),
                      c);
}

/// phi(q_i) . phi(k_j) as the paper writes it.
double kernel(const NaiveQuery& query, Index j, const Tensor& features) {
  const double root = std::sqrt(static_cast<double>(kPerformerOptions.scale));
  double sum = 0;
  for (Index r = 0; r < features.dim(0); ++r) {
    double wq = 0, wk = 0, qq = 0, kk = 0;
    for (Index d = 0; d < query.head_dim(); ++d) {
      const double w = features[r * query.head_dim() + d];
      const double q = root * query.q(d), k = root * query.k(j, d);
      wq += w * q;
      wk += w * k;
      qq += q * q;
      kk += k * k;
    }
    sum += std::exp(wq - qq / 2) * std::exp(wk - kk / 2);
  }
  return sum;
}

TEST(Performer, IsTheFormulaOfThePaper) {
  for (const Index seq_len : {1, 64, 65, 200})
    for (const Index heads : {2, 6}) {
      const BaselineCase c{.seq_len = seq_len, .heads = heads};
      const auto x = inputs_of(c);
      const auto mechanism = performer(20, c);
      const Tensor expected = naive_attention(x, [&](const NaiveQuery& q, Index j) {
        return kernel(q, j, mechanism->layers[0].constants);
      });
      EXPECT_LE(relative_difference(attend(*mechanism, x, kPerformerOptions), expected), 2e-4)
          << seq_len << " tokens, " << heads << " heads";
    }
}

TEST(Performer, StaysFiniteWhereExponentsAreHuge) {
  const BaselineCase c{.seq_len = 150, .spread = 12};
  const Tensor out = attend(*performer(16, c), inputs_of(c), kPerformerOptions);
  for (const Real y : out.span()) ASSERT_TRUE(std::isfinite(y));
}

TEST(Performer, ErrorFallsWithFeatures) {
  const auto x = inputs_of({.seq_len = 100, .spread = 0.4});
  const Tensor dense = attention(x[0], x[1], x[2], kPerformerOptions).value();
  const auto error = [&](Index count) {
    double sum = 0;
    for (int seed = 1; seed <= 8; ++seed) {
      const Tensor y = attend(*performer(count, {}, seed), x, kPerformerOptions);
      for (Index i = 0; i < y.size(); ++i) sum += std::pow(double(y[i]) - double(dense[i]), 2);
    }
    return std::sqrt(sum / 8 / static_cast<double>(dense.size()));
  };
  // An estimate's error falls with the root of its samples: by 4 for 16 times as many.
  const double few = error(16), some = error(256), many = error(4096);
  EXPECT_LT(some, few / 2.5);
  EXPECT_LT(many, some / 2.5);
  EXPECT_LT(many, 0.03);
}

TEST(Performer, FeaturesAreOrthogonalAndAsLongAsNormalVectors) {
  const Index d = 16;
  const Tensor w = performer(400, {.head_dim = d})->layers[0].constants;
  double squares = 0;
  for (Index a = 0; a < 400; ++a)
    for (Index b = a / d * d; b <= a; ++b) {
      double dot = 0;
      for (Index c = 0; c < d; ++c) dot += double(w[a * d + c]) * double(w[b * d + c]);
      if (a == b)
        squares += dot;
      else
        EXPECT_NEAR(dot, 0, tolerance(1e-4, 1e-11));
    }
  EXPECT_NEAR(squares / 400, static_cast<double>(d), 1.5);  // chi-squared: mean d, spread 0.28
}

TEST(Performer, Gradient) {
  const auto expect = [](Index features, const BaselineCase& c) {
    expect_gradients(
        [&](const Variables& x) { return attend(*performer(features, c), x, kPerformerOptions); },
        inputs_of(c));
  };
  for (const Index heads : {2, 4})
    expect(6, {.batch = 1, .seq_len = 9, .heads = heads, .head_dim = 3});
  if (kRealIsDouble)  // several chunks: differences over 150 tokens need double
    expect(5, {.batch = 1, .seq_len = 150, .heads = 1, .kv_heads = 1, .head_dim = 2});
}

TEST(Performer, SameBitsOfGradientsForAnyThreads) {
  expect_same_bits_for_any_threads("performer", [] {
    const BaselineCase c{.seq_len = 130, .heads = 4};
    const Variables x = leaves(inputs_of(c));
    backward(attend(*performer(16, c), x, kPerformerOptions));
    return std::vector<Tensor>{x[0].grad(), x[1].grad(), x[2].grad()};
  });
}

}  // namespace
}  // namespace focus
