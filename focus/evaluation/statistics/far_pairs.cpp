#include "focus/evaluation/statistics/far_pairs.h"

#include <algorithm>
#include <cmath>

namespace focus {
namespace {

/// Pairs of words that are remembered at most between two windows.
constexpr std::size_t kRemembered = 20000;

bool is_stronger(const FarPair& a, const FarPair& b) {
  const double rank_a = std::floor(100 * a.affinity), rank_b = std::floor(100 * b.affinity);
  if (rank_a != rank_b) return rank_a > rank_b;
  if (a.distance() != b.distance()) return a.distance() > b.distance();
  return a.first < b.first;
}

double product(const double* a, const double* b, Index n) {
  double sum = 0;
  for (Index k = 0; k < n; ++k) sum += a[k] * b[k];
  return sum;
}

std::vector<std::pair<std::pair<std::int32_t, std::int32_t>, FarPair>> sorted(
    const std::map<std::pair<std::int32_t, std::int32_t>, FarPair>& best) {
  std::vector<std::pair<std::pair<std::int32_t, std::int32_t>, FarPair>> all(best.begin(),
                                                                             best.end());
  std::ranges::stable_sort(
      all, [](const auto& a, const auto& b) { return is_stronger(a.second, b.second); });
  return all;
}

}  // namespace

void FarPairSearch::see(const WindowShares& window) {
  if (window.grouping >= found_.size()) found_.resize(window.grouping + 1);
  add_mean(window, found_[window.grouping]);
  add_pairs(window, found_[window.grouping]);
}

/// The mean needs no pairs: of each token with the sum of those far before it.
void FarPairSearch::add_mean(const WindowShares& window, Found& found) const {
  const Index groups = window.groups;
  const Index tokens = static_cast<Index>(window.shares.size()) / groups;
  std::vector<double> before(static_cast<std::size_t>(groups), 0.0);
  for (Index i = local_window_ + 1; i < tokens; ++i) {
    const double* leaving = window.shares.data() + (i - local_window_ - 1) * groups;
    for (Index k = 0; k < groups; ++k) before[static_cast<std::size_t>(k)] += leaving[k];
    found.sum += product(window.shares.data() + i * groups, before.data(), groups);
    found.pairs += i - local_window_;
  }
}

void FarPairSearch::add_pairs(const WindowShares& window, Found& found) const {
  const Index groups = window.groups;
  const Index tokens = static_cast<Index>(window.shares.size()) / groups;
  const auto word = [&](Index t) { return words_[static_cast<std::size_t>(window.first + t)]; };
  std::vector<Index> wanted;
  for (Index t = 0; t < tokens; ++t)
    if (word(t) >= 0) wanted.push_back(t);
  for (const Index i : wanted)
    for (const Index j : wanted) {
      if (i - j <= local_window_) break;
      if (word(i) == word(j)) continue;
      const FarPair pair{
          window.first + j, window.first + i,
          product(window.shares.data() + i * groups, window.shares.data() + j * groups, groups)};
      if (found.weakest && !is_stronger(pair, *found.weakest)) continue;
      const auto [low, high] = std::minmax({word(i), word(j)});
      const auto [at, is_new] = found.best.try_emplace({low, high}, pair);
      if (!is_new && is_stronger(pair, at->second)) at->second = pair;
    }
  if (found.best.size() <= kRemembered) return;
  auto all = sorted(found.best);
  all.resize(kRemembered / 4);
  found.weakest = all.back().second;
  found.best = {all.begin(), all.end()};
}

std::vector<FarAffinity> FarPairSearch::found() const {
  std::vector<FarAffinity> all;
  for (const Found& found : found_) {
    FarAffinity& of_grouping = all.emplace_back();
    of_grouping.mean = found.pairs > 0 ? found.sum / static_cast<double>(found.pairs) : 0;
    std::map<std::int32_t, int> times;
    for (const auto& [words, pair] : sorted(found.best)) {
      if (of_grouping.pairs.size() == most_) break;
      if (times[words.first] == 2 || times[words.second] == 2) continue;
      ++times[words.first];
      ++times[words.second];
      of_grouping.pairs.push_back(pair);
    }
  }
  return all;
}

}  // namespace focus
