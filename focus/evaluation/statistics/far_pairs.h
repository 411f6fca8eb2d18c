#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "focus/evaluation/statistics/groupings.h"

namespace focus {

/// Two tokens of one window, the first before the second, and a = g_i . g_j of them.
struct FarPair {
  Index first = 0, second = 0;  // tokens of the text
  double affinity = 0;
  Index distance() const { return second - first; }
};

/// Affinities of the pairs of one grouping that lie further apart than the local window.
struct FarAffinity {
  std::vector<FarPair> pairs;  // the strongest of different words, the strongest first
  double mean = 0;             // over all such pairs of any tokens: what chance gives
};

/// Looks for far pairs while windows go by: those with the highest affinity between words that are
/// asked for, each pair of words once and each word at most twice. Affinities within 0.01 count as
/// equal; of equals the pair that is further apart comes first, then the one that stands first.
class FarPairSearch {
 public:
  /// `words`: what word each token of the text is, -1 for those that are not looked at.
  FarPairSearch(std::vector<std::int32_t> words, Index local_window, std::size_t most)
      : words_(std::move(words)), local_window_(local_window), most_(most) {}

  void see(const WindowShares& window);
  /// One for each grouping that was seen.
  std::vector<FarAffinity> found() const;

 private:
  using WordPair = std::pair<std::int32_t, std::int32_t>;
  struct Found {
    std::map<WordPair, FarPair> best;
    std::optional<FarPair> weakest;  // of those that stayed when there were too many
    double sum = 0;
    std::int64_t pairs = 0;
  };
  void add_mean(const WindowShares& window, Found& found) const;
  void add_pairs(const WindowShares& window, Found& found) const;

  std::vector<std::int32_t> words_;
  Index local_window_;
  std::size_t most_;
  std::vector<Found> found_;
};

}  // namespace focus
