#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "focus/evaluation/statistics/categories.h"
#include "focus/evaluation/statistics/groupings.h"

// What one grouping of tokens is like: pure functions of it and of the tokens.
namespace focus {

/// Tokens of each group, [groups].
std::vector<std::int64_t> group_sizes(const GroupAssignments& grouping);
/// The mean share that a group's tokens have in it, [groups]; 0 for an empty group.
std::vector<double> group_confidence(const GroupAssignments& grouping);

/// A vocabulary item as a member of a group.
struct TypicalToken {
  std::int32_t id = 0;
  std::int64_t count = 0;  // of its tokens in the group
  double confidence = 0;   // their mean share in it
  double lift = 0;         // its share of the group's tokens over its share of all tokens
};
struct TypicalTokens {
  std::vector<TypicalToken> by_confidence, by_lift;  // the most typical first
};
/// For each group the `most` items of at least `min_count` tokens in it; of equals the more
/// frequent, then the lower id first.
std::vector<TypicalTokens> typical_tokens(std::span<const std::int32_t> ids,
                                          const GroupAssignments& grouping, std::int64_t min_count,
                                          std::size_t most);

/// How far groups are of one category.
struct Purity {
  std::vector<std::vector<double>> shares;  // [groups][categories], of the group's tokens
  std::vector<TokenCategory> largest;       // of each group
  /// The share of all tokens that are of their group's largest category, and what one group of all
  /// tokens would have.
  double purity = 0, base = 0;
  double information = 0;  // normalised mutual information of groups and categories
  /// The same two of one question: does a word begin with the token?
  double word_beginnings = 0, word_beginnings_base = 0;
};
Purity purity(const GroupAssignments& grouping, std::span<const TokenCategory> categories);

}  // namespace focus
