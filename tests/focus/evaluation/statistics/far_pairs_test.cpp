#include "focus/evaluation/statistics/far_pairs.h"

#include <gtest/gtest.h>

#include "autograd/base/random.h"

namespace focus {
namespace {

/// Shares of one window in two groups, from those in the first.
WindowShares window_of(const std::vector<double>& first_group, Index first = 0) {
  WindowShares window{.grouping = 0, .first = first, .groups = 2, .shares = {}};
  for (const double g : first_group) {
    window.shares.push_back(g);
    window.shares.push_back(1 - g);
  }
  return window;
}

TEST(FarPairs, StrongestFirstThenFurthest) {
  FarPairSearch search({0, 1, 2, 3, -1, 4}, 1, 3);
  search.see(window_of({1, 0.9, 0.2, 0.9, 1, 1}));
  const std::vector<FarAffinity> found = search.found();
  ASSERT_EQ(found.size(), 1u);
  // 5 and 0 have affinity 1 at distance 5; (3, 0) 0.9, (5, 1) 0.9 further apart, (5, 3) 0.9
  // nearest, but 5 has been told twice by then.
  ASSERT_EQ(found[0].pairs.size(), 3u);
  EXPECT_EQ(found[0].pairs[0].first, 0);
  EXPECT_EQ(found[0].pairs[0].second, 5);
  EXPECT_NEAR(found[0].pairs[0].affinity, 1, 1e-12);
  EXPECT_EQ(found[0].pairs[1].first, 1);
  EXPECT_EQ(found[0].pairs[1].second, 5);
  EXPECT_NEAR(found[0].pairs[1].affinity, 0.9, 1e-12);
  EXPECT_EQ(found[0].pairs[2].first, 0);
  EXPECT_EQ(found[0].pairs[2].second, 3);
}

TEST(FarPairs, OnlyBeyondTheWindowOfDifferentWords) {
  FarPairSearch search({0, 1, 0, 1}, 2, 9);
  search.see(window_of({1, 1, 1, 1}));
  const FarAffinity found = search.found().at(0);
  ASSERT_EQ(found.pairs.size(), 1u);  // (0, 3); 0 and 2 are the same word, and near
  EXPECT_EQ(found.pairs[0].distance(), 3);
}

TEST(FarPairs, TheMeanIsOverAllPairsBeyondTheWindow) {
  Rng rng(5);
  std::vector<double> shares;
  for (int t = 0; t < 30; ++t) shares.push_back(rng.uniform());
  FarPairSearch search(std::vector<std::int32_t>(60, -1), 4, 9);
  search.see(window_of(shares));
  search.see(window_of(shares, 30));
  double sum = 0;
  int pairs = 0;
  for (std::size_t i = 0; i < shares.size(); ++i)
    for (std::size_t j = 0; j + 4 < i; ++j, ++pairs)
      sum += shares[i] * shares[j] + (1 - shares[i]) * (1 - shares[j]);
  EXPECT_TRUE(search.found().at(0).pairs.empty());
  EXPECT_NEAR(search.found().at(0).mean, sum / pairs, 1e-12);
}

TEST(FarPairs, TheBestOfManyWindowsIsKept) {
  // 400 words in pairs of rising affinity: far more pairs than are remembered.
  constexpr std::int32_t kWords = 400;
  std::vector<std::int32_t> words;
  std::vector<double> shares;
  for (std::int32_t w = 0; w < kWords; ++w) {
    words.push_back(w);
    shares.push_back(0.5 + 0.001 * w);
  }
  FarPairSearch search(words, 3, 1);
  search.see(window_of(shares));
  search.see(window_of(std::vector<double>(shares.begin(), shares.begin() + 200)));
  const FarPair best = search.found().at(0).pairs.at(0);
  double most = 0;
  for (std::size_t i = 0; i < shares.size(); ++i)
    for (std::size_t j = 0; j + 3 < i; ++j)
      most = std::max(most, shares[i] * shares[j] + (1 - shares[i]) * (1 - shares[j]));
  EXPECT_GT(best.affinity, most - 0.01);
}

}  // namespace
}  // namespace focus
