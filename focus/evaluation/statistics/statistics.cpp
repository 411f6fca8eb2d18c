#include "focus/evaluation/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/base/check.h"
#include "focus/evaluation/statistics/agreement.h"

namespace focus {
namespace {

/// What a vocabulary item has in a group.
struct ItemSum {
  std::int64_t count = 0;
  double confidence = 0;
};

double share_of(std::int64_t part, std::int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
}

/// The first `most` by `value`, of equals the more frequent, then the lower id.
template <class Value>
std::vector<TypicalToken> best(std::vector<TypicalToken> items, std::size_t most, Value&& value) {
  std::ranges::stable_sort(items, [&](const TypicalToken& a, const TypicalToken& b) {
    if (value(a) != value(b)) return value(a) > value(b);
    return a.count > b.count;
  });
  if (items.size() > most) items.resize(most);
  return items;
}

/// Counts the tokens of a table of groups and categories in their group's largest category.
double purity_of(const Contingency& table) {
  std::int64_t pure = 0;
  for (Index g = 0; g < table.rows; ++g) {
    const auto row = std::span(table.counts)
                         .subspan(static_cast<std::size_t>(g * table.cols),
                                  static_cast<std::size_t>(table.cols));
    pure += *std::ranges::max_element(row);
  }
  return share_of(pure, table.tokens);
}

double base_of(const Contingency& table) {
  return share_of(std::ranges::max(table.col_sums()), table.tokens);
}

}  // namespace

std::vector<std::int64_t> group_sizes(const GroupAssignments& grouping) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(grouping.groups), 0);
  for (const std::uint8_t c : grouping.group_of_token) ++sizes[c];
  return sizes;
}

std::vector<double> group_confidence(const GroupAssignments& grouping) {
  const std::vector<std::int64_t> sizes = group_sizes(grouping);
  std::vector<double> confidence(sizes.size(), 0.0);
  for (std::size_t t = 0; t < grouping.group_of_token.size(); ++t)
    confidence[grouping.group_of_token[t]] += static_cast<double>(grouping.confidence[t]);
  for (std::size_t g = 0; g < sizes.size(); ++g)
    if (sizes[g] > 0) confidence[g] /= static_cast<double>(sizes[g]);
  return confidence;
}

std::vector<TypicalTokens> typical_tokens(std::span<const std::int32_t> ids,
                                          const GroupAssignments& grouping, std::int64_t min_count,
                                          std::size_t most) {
  check(ids.size() == grouping.group_of_token.size(), "groups: {} tokens, but groups for {}",
        ids.size(), grouping.group_of_token.size());
  std::map<std::int32_t, std::int64_t> frequency;
  std::vector<std::map<std::int32_t, ItemSum>> items(static_cast<std::size_t>(grouping.groups));
  for (std::size_t t = 0; t < ids.size(); ++t) {
    ++frequency[ids[t]];
    ItemSum& sum = items[grouping.group_of_token[t]][ids[t]];
    ++sum.count;
    sum.confidence += static_cast<double>(grouping.confidence[t]);
  }
  const std::vector<std::int64_t> sizes = group_sizes(grouping);
  const auto tokens = static_cast<std::int64_t>(ids.size());
  std::vector<TypicalTokens> typical;
  for (std::size_t g = 0; g < items.size(); ++g) {
    std::vector<TypicalToken> all;
    for (const auto& [id, sum] : items[g])
      if (sum.count >= min_count)
        all.push_back({.id = id,
                       .count = sum.count,
                       .confidence = sum.confidence / static_cast<double>(sum.count),
                       // One division: equal lifts are equal numbers.
                       .lift = share_of(sum.count * tokens, sizes[g] * frequency[id])});
    typical.push_back({best(all, most, [](const TypicalToken& t) { return t.confidence; }),
                       best(all, most, [](const TypicalToken& t) { return t.lift; })});
  }
  return typical;
}

Purity purity(const GroupAssignments& grouping, std::span<const TokenCategory> categories) {
  std::vector<std::uint8_t> numbers, beginnings;
  for (const TokenCategory c : categories) {
    numbers.push_back(static_cast<std::uint8_t>(c));
    beginnings.push_back(begins_word(c) ? 1 : 0);
  }
  const Contingency table =
      contingency(grouping.group_of_token, grouping.groups, numbers, kNumCategories);
  const Contingency words = contingency(grouping.group_of_token, grouping.groups, beginnings, 2);
  Purity of_groups{.shares = {},
                   .largest = {},
                   .purity = purity_of(table),
                   .base = base_of(table),
                   .information = normalised_mutual_information(table),
                   .word_beginnings = purity_of(words),
                   .word_beginnings_base = base_of(words)};
  const std::vector<std::int64_t> sizes = table.row_sums();
  for (Index g = 0; g < table.rows; ++g) {
    std::vector<double>& shares = of_groups.shares.emplace_back();
    for (Index c = 0; c < table.cols; ++c)
      shares.push_back(share_of(table.at(g, c), sizes[static_cast<std::size_t>(g)]));
    of_groups.largest.push_back(
        static_cast<TokenCategory>(std::ranges::max_element(shares) - shares.begin()));
  }
  return of_groups;
}

}  // namespace focus
