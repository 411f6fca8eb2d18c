#include <gtest/gtest.h>

#include <numbers>

#include "tests/support/baseline_case.h"

namespace focus {

double sampling_probability(double cosine, int bits, int tables);

namespace {

struct MagicPigConfig {
  int bits, tables;
  Index sinks, local_window;
  bool centred = true;
};

const AttentionOptions kOptions{.scale = Real(0.35)};

std::unique_ptr<Mechanism> magicpig(const std::vector<Tensor>& x, const MagicPigConfig& config,
                                    int seed = 1) {
  return mechanism_of(
      "magicpig",
      fmt::format("{{bits: {}, tables: {}, sinks: {}, local_window: {}, centred: {}, seed: {}}}",
                  config.bits, config.tables, config.sinks, config.local_window, config.centred,
                  seed),
      {.heads = x[0].dim(2), .kv_heads = x[1].dim(2), .head_dim = x[0].dim(3)});
}

/// The estimate as the paper writes it, hashes made again for every pair.
Tensor naive(const std::vector<Tensor>& x, const AttentionOptions& options,
             const MagicPigConfig& config, const Tensor& w) {
  const Index d = x[0].dim(3);
  return naive_attention(x, [&](const NaiveQuery& q, Index j) -> double {
    if (!q.sees(j, options)) return 0;
    const double weight = std::exp(q.score(j, options));
    if (j < config.sinks || q.token - j <= config.local_window) return weight;
    std::vector<double> key, query;
    double qq = 0, kk = 0, qk = 0;
    const Index before = config.centred ? q.token / 64 * 64 : 0;
    for (Index c = 0; c < d; ++c) {
      double mean = 0;
      for (Index t = 0; t < before; ++t) mean += q.k(t, c) / static_cast<double>(before);
      key.push_back(q.k(j, c) - mean);
      query.push_back(q.q(c));
      qq += query.back() * query.back();
      kk += key.back() * key.back();
      qk += query.back() * key.back();
    }
    int equal = 0;
    for (Index t = 0; t < config.tables; ++t) {
      bool same = true;
      for (Index b = t * config.bits; b < (t + 1) * config.bits; ++b) {
        double a = 0, e = 0;
        for (Index c = 0; c < d; ++c) {
          a += double(w[b * d + c]) * query[c];
          e += double(w[b * d + c]) * key[c];
        }
        same = same && (a > 0) == (e > 0);
      }
      equal += same ? 1 : 0;
    }
    if (equal < 2) return 0;
    const double p = 1 - std::acos(qk / std::sqrt(qq * kk)) / std::numbers::pi;
    const double pk = std::pow(p, config.bits), l = config.tables;
    return weight / (1 - std::pow(1 - pk, l) - l * pk * std::pow(1 - pk, l - 1));
  });
}

TEST(MagicPig, IsTheEstimateOfThePaper) {
  for (const bool centred : {true, false})
    for (const Index heads : {2, 6})
      for (const Index sliding : {Index{0}, Index{30}})
        for (const Real softcap : {Real(0), Real(1.5)}) {
          const auto x = inputs_of({.seq_len = 150, .heads = heads});
          const AttentionOptions options{
              .scale = Real(0.35), .softcap = softcap, .sliding_window = sliding};
          const MagicPigConfig config{
              .bits = 4, .tables = 10, .sinks = 2, .local_window = 4, .centred = centred};
          const auto mechanism = magicpig(x, config);
          EXPECT_LE(relative_difference(attend(*mechanism, x, options),
                                        naive(x, options, config, mechanism->layers[0].constants)),
                    tolerance(5e-5, 1e-9))
              << "centred " << centred << ", heads " << heads << ", sliding " << sliding;
        }
}

TEST(MagicPig, SamplesAsOftenAsItSays) {
  // One query and one distant key at many hashes: how often it is attended against the chance.
  std::vector<Tensor> x = {Tensor::zeros({1, 3, 1, 2}), Tensor::zeros({1, 3, 1, 2}),
                           Tensor::zeros({1, 3, 1, 2})};
  const double angle = 0.9;
  x[0].data()[4] = 1;  // the last token's query
  x[1].data()[0] = static_cast<Real>(std::cos(angle));
  x[1].data()[1] = static_cast<Real>(std::sin(angle));
  x[1].data()[3] = -1;
  const MagicPigConfig config{.bits = 3, .tables = 6, .sinks = 0, .local_window = 1};
  const double chance = sampling_probability(std::cos(angle), 3, 6);
  int sampled = 0;
  const int runs = 4000;
  for (int n = 0; n < runs; ++n) {
    PairCounts pairs;
    attend(*magicpig(x, config, n + 1), x, kOptions, &pairs);
    sampled += pairs.attended == 6 ? 1 : 0;
  }
  ASSERT_GT(chance, 0.3);
  ASSERT_LT(chance, 0.9);
  EXPECT_NEAR(static_cast<double>(sampled) / runs, chance, 4 * 0.5 / std::sqrt(runs));
}

TEST(MagicPig, ChanceIsThatOfTwoEqualHashes) {
  EXPECT_EQ(sampling_probability(1, 8, 20), 1);
  EXPECT_EQ(sampling_probability(-1, 0, 20), 1);
  EXPECT_NEAR(sampling_probability(0, 1, 2), 0.25, 1e-12);  // both of two coins
  EXPECT_NEAR(sampling_probability(0, 1, 3), 0.5, 1e-12);
  const double same = std::pow(0.5, 20);  // so rare that 1 - ... has few digits left
  EXPECT_NEAR(sampling_probability(0, 20, 4) / (6 * same * same), 1, 1e-4);
}

TEST(MagicPig, ErrorFallsWithTables) {
  const auto x = inputs_of({.seq_len = 120});
  const Tensor dense = attention(x[0], x[1], x[2], kOptions).value();
  const auto error = [&](int tables) {
    double sum = 0;
    for (int seed = 1; seed <= 5; ++seed) {
      const auto mechanism = magicpig(x, {5, tables, 0, 1}, seed);
      const Tensor y = attend(*mechanism, x, kOptions);
      for (Index i = 0; i < y.size(); ++i) sum += std::pow(double(y[i]) - double(dense[i]), 2);
    }
    return std::sqrt(sum);
  };
  const double few = error(8), many = error(128);
  EXPECT_LT(many, few / 3);
}

}  // namespace
}  // namespace focus
