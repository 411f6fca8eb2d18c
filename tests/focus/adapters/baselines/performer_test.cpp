#include "focus/adapters/baselines/performer.h"

#include <gtest/gtest.h>

#include "tests/support/baseline_case.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

const AttentionOptions kOptions{.scale = Real(0.35)};

Tensor features_of(Index count, Index head_dim, std::uint64_t seed = 3) {
  Rng rng(seed);
  return orthogonal_features(count, head_dim, rng);
}
Tensor run(const std::vector<Tensor>& x, const Tensor& features) {
  return performer_attention(x[0], x[1], x[2], features, kOptions).value();
}

/// phi(q_i) . phi(k_j) as the paper writes it.
double kernel(const NaiveQuery& query, Index j, const Tensor& features) {
  const double root = std::sqrt(static_cast<double>(kOptions.scale));
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
      const auto x = inputs_of({.seq_len = seq_len, .heads = heads});
      const Tensor features = features_of(20, 8);
      const Tensor expected =
          naive_attention(x, [&](const NaiveQuery& q, Index j) { return kernel(q, j, features); });
      EXPECT_LE(relative_difference(run(x, features), expected), 2e-4)
          << seq_len << " tokens, " << heads << " heads";
    }
}

TEST(Performer, StaysFiniteWhereExponentsAreHuge) {
  const auto x = inputs_of({.seq_len = 150, .spread = 12});
  const Tensor out = run(x, features_of(16, 8));
  for (const Real y : out.span()) ASSERT_TRUE(std::isfinite(y));
}

TEST(Performer, ErrorFallsWithFeatures) {
  const auto x = inputs_of({.seq_len = 100, .spread = 0.4});
  const Tensor dense = attention(x[0], x[1], x[2], kOptions).value();
  const auto error = [&](Index count) {
    double sum = 0;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const Tensor y = run(x, features_of(count, 8, seed));
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
  const Tensor w = features_of(400, d);
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
  for (const Index heads : {2, 4})
    expect_gradients(
        [features = features_of(6, 3)](const Variables& x) {
          return performer_attention(x[0], x[1], x[2], features, kOptions);
        },
        inputs_of({.batch = 1, .seq_len = 9, .heads = heads, .head_dim = 3}));
}

TEST(Performer, GradientOverSeveralChunks) {
  if (!kRealIsDouble) GTEST_SKIP() << "differences over 150 tokens need double";
  expect_gradients(
      [features = features_of(5, 2)](const Variables& x) {
        return performer_attention(x[0], x[1], x[2], features, kOptions);
      },
      inputs_of({.batch = 1, .seq_len = 150, .heads = 1, .kv_heads = 1, .head_dim = 2}));
}

TEST(Performer, IsCausalToTheBit) {
  const Tensor features = features_of(32, 8);
  for (const Index cut : {30, 64, 100})
    expect_causal(inputs_of({.seq_len = 130}), cut,
                  [&](const std::vector<Tensor>& x) { return run(x, features); });
}

TEST(Performer, SameBitsForAnyThreads) {
  expect_same_bits_for_any_threads("performer", [] {
    const Variables x = leaves(inputs_of({.seq_len = 130, .heads = 4}));
    const Variable y = performer_attention(x[0], x[1], x[2], features_of(16, 8), kOptions);
    backward(y);
    return std::vector<Tensor>{y.value(), x[0].grad(), x[1].grad(), x[2].grad()};
  });
}

TEST(Performer, RefusesWhatFeaturesCannotDo) {
  const auto x = inputs_of({});
  const Tensor features = features_of(4, 8);
  EXPECT_THROW(performer_attention(x[0], x[1], x[2], features, {.softcap = 1}),
               std::invalid_argument);
  EXPECT_THROW(performer_attention(x[0], x[1], x[2], features, {.sliding_window = 8}),
               std::invalid_argument);
  EXPECT_THROW(performer_attention(x[0], x[1], x[2], features_of(4, 7), kOptions),
               std::invalid_argument);
}

}  // namespace
}  // namespace focus
