#include "focus/generation/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace focus {
namespace {

/// Logits whose softmax is these probabilities.
std::vector<Real> logits_of(const std::vector<double>& probabilities) {
  std::vector<Real> logits;
  for (const double p : probabilities) logits.push_back(static_cast<Real>(std::log(p)));
  return logits;
}

std::vector<double> frequencies(const std::vector<Real>& logits, const SamplingOptions& options,
                                int draws = 40000) {
  Rng rng(5);
  std::vector<double> counts(logits.size(), 0);
  for (int i = 0; i < draws; ++i) counts[sample(logits, options, rng)] += 1.0 / draws;
  return counts;
}

void expect_frequencies(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  // Five standard deviations of a share of 40000 draws are at most 0.0125.
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (expected[i] == 0)
      EXPECT_EQ(actual[i], 0) << i;
    else
      EXPECT_NEAR(actual[i], expected[i], 0.0125) << i;
  }
}

const std::vector<double> kShares = {0.1, 0.4, 0.05, 0.3, 0.15};

void expect_shares(const SamplingOptions& options, const std::vector<double>& expected) {
  expect_frequencies(frequencies(logits_of(kShares), options), expected);
}

TEST(Sampling, TemperatureZeroIsTheHighestAndDrawsNoNumber) {
  Rng rng(1);
  const Rng::State before = rng.state();
  EXPECT_EQ(sample(logits_of(kShares), {}, rng), 1);
  EXPECT_EQ(sample(std::vector<Real>{2, 7, 7, 1}, {}, rng), 1);  // a tie
  EXPECT_EQ(rng.state(), before);
}

TEST(Sampling, MinPKeepsAShareOfTheHighest) {
  expect_frequencies(frequencies(logits_of(kShares), {.temperature = 1, .min_p = 0.6}),
                     {0, 4.0 / 7, 0, 3.0 / 7, 0});
  expect_frequencies(frequencies(logits_of(kShares), {.temperature = 1, .min_p = 1}),
                     {0, 1, 0, 0, 0});
}

TEST(Sampling, TokensThatMustNotComeNext) {
  const std::vector<std::int32_t> text = {4, 1, 2, 3, 1, 2}, ends = {0};
  const auto left = [&](const TokenRules& rules, std::size_t prompt) {
    std::vector<Real> logits(6, 1);
    rules.forbid(logits, text, prompt, ends);
    std::vector<std::size_t> ids;
    for (std::size_t i = 0; i < logits.size(); ++i)
      if (std::isfinite(logits[i])) ids.push_back(i);
    return ids;
  };
  using Ids = std::vector<std::size_t>;
  EXPECT_EQ(left({.suppress_tokens = {1, 99}}, 2), (Ids{0, 2, 3, 4, 5}));
  EXPECT_EQ(left({.begin_suppress_tokens = {1}}, 2), (Ids{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(left({.begin_suppress_tokens = {1}}, 6), (Ids{0, 2, 3, 4, 5}));
  EXPECT_EQ(left({.bad_words_ids = {{0}, {5}, {1, 2, 4}, {3, 2, 1}}}, 2), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(left({.no_repeat_ngram_size = 1}, 2), (Ids{0, 5}));
  EXPECT_EQ(left({.no_repeat_ngram_size = 3}, 2), (Ids{0, 1, 2, 4, 5}));
  EXPECT_EQ(left({.no_repeat_ngram_size = 4}, 2), (Ids{0, 1, 2, 3, 4, 5}));
}

TEST(Sampling, RepeatedTokensArePenalisedOnceEach) {
  std::vector<Real> logits = {2, -2, 3, 0};
  penalise_repetitions(logits, std::vector<std::int32_t>{0, 1, 0, 99, 3}, 2);
  EXPECT_EQ(logits, (std::vector<Real>{1, -4, 3, 0}));
  penalise_repetitions(logits, std::vector<std::int32_t>{2}, 1);
  EXPECT_EQ(logits[2], 3);
  EXPECT_THROW((SamplingOptions{.repetition_penalty = 0}.validate()), std::invalid_argument);
}

TEST(Sampling, TemperatureOneDrawsFromTheSoftmax) { expect_shares({.temperature = 1}, kShares); }

TEST(Sampling, TemperatureSharpens) {
  // At temperature 1/2 probabilities are squared and renormalised.
  std::vector<double> squared;
  double sum = 0;
  for (const double p : kShares) sum += p * p;
  for (const double p : kShares) squared.push_back(p * p / sum);
  expect_shares({.temperature = 0.5}, squared);
}

TEST(Sampling, TopKKeepsTheKHighestAndOneIsGreedy) {
  expect_shares({.temperature = 1, .top_k = 2}, {0, 4.0 / 7, 0, 3.0 / 7, 0});
  expect_shares({.temperature = 3, .top_k = 1}, {0, 1, 0, 0, 0});
  expect_shares({.temperature = 1, .top_k = 99}, kShares);
}

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesIt) {
  expect_shares({.temperature = 1, .top_p = 0.6}, {0, 4.0 / 7, 0, 3.0 / 7, 0});
  expect_shares({.temperature = 1, .top_p = 0.71}, {0, 0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85});
  expect_shares({.temperature = 1, .top_p = 1e-9}, {0, 1, 0, 0, 0});
}

TEST(Sampling, TopPActsOnWhatTemperatureAndTopKLeft) {
  // The first of {4/7, 3/7} alone reaches 0.5; the first of all five would not.
  expect_shares({.temperature = 1, .top_k = 2, .top_p = 0.5}, {0, 1, 0, 0, 0});
  expect_shares({.temperature = 1, .top_p = 0.5}, {0, 4.0 / 7, 0, 3.0 / 7, 0});
}

/// What sample() is, by sorting everything.
std::int32_t drawn(const std::vector<Real>& logits, const SamplingOptions& options, Rng& rng) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](std::int32_t id) { return logits[id]; };
  std::ranges::stable_sort(ids, std::ranges::greater(), logit);
  if (options.top_k > 0) ids.resize(std::min(ids.size(), static_cast<std::size_t>(options.top_k)));
  std::vector<double> sums = {0};
  for (const std::int32_t id : ids)
    sums.push_back(sums.back() + std::exp((static_cast<double>(logit(id)) - logit(ids.front())) /
                                          options.temperature));
  const auto reaches = [&](double sum) {
    return static_cast<std::size_t>(std::ranges::lower_bound(sums, sum) - sums.begin());
  };
  const double total = sums[std::min(reaches(options.top_p * sums.back()), ids.size())];
  return ids[std::min(reaches(rng.uniform() * total), ids.size()) - 1];
}

TEST(Sampling, ManyLogitsAreDrawnAsIfAllWereSorted) {
  Rng numbers(9);
  for (const double spread : {0.01, 1.0, 4.0, 30.0})  // flat, of a few bands, of one
    for (const SamplingOptions& options :
         {SamplingOptions{.temperature = 1}, SamplingOptions{.temperature = 0.6, .top_p = 0.9},
          SamplingOptions{.temperature = 1, .top_k = 3000, .top_p = 0.999},
          SamplingOptions{.temperature = 2, .top_k = 40}}) {
      std::vector<Real> logits(10000);
      // Some are equal.
      for (Real& x : logits) x = static_cast<Real>(std::round(spread * numbers.normal() * 50) / 50);
      Rng a(3), b(3);
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(sample(logits, options, a), drawn(logits, options, b)) << spread;
        EXPECT_EQ(a.state(), b.state());
      }
    }
}

TEST(Sampling, SameSeedSameTokens) {
  const auto draw = [](std::uint64_t seed) {
    Rng rng(seed);
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(sample(logits_of(kShares), {.temperature = 1}, rng));
    return ids;
  };
  EXPECT_EQ(draw(3), draw(3));
  EXPECT_NE(draw(3), draw(4));
}

TEST(Sampling, HugeLogitsAndImpossibleOnes) {
  const Real none = -std::numeric_limits<Real>::infinity();
  expect_frequencies(frequencies({none, 1e30f, none, 1e30f}, {.temperature = 1}), {0, 0.5, 0, 0.5});
  Rng rng(1);
  EXPECT_THROW(sample(std::vector<Real>{none, none}, {}, rng), std::invalid_argument);
  EXPECT_THROW(sample(std::vector<Real>{1, NAN}, {.temperature = 1}, rng), std::invalid_argument);
}

TEST(Sampling, RejectsOptionsOutOfRange) {
  for (const SamplingOptions& bad :
       {SamplingOptions{.temperature = -1}, SamplingOptions{.temperature = INFINITY},
        SamplingOptions{.temperature = NAN}, SamplingOptions{.top_k = -1},
        SamplingOptions{.top_p = 0}, SamplingOptions{.top_p = 1.5}, SamplingOptions{.top_p = NAN}})
    EXPECT_THROW(bad.validate(), std::invalid_argument);
  Rng rng(1);
  EXPECT_THROW(sample({}, {}, rng), std::invalid_argument);
}

}  // namespace
}  // namespace focus
