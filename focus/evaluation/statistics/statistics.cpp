#include "focus/evaluation/statistics/statistics.h"

#include <algorithm>
#include <cmath>

#include "autograd/base/check.h"
#include "focus/evaluation/statistics/agreement.h"

namespace focus {
namespace {

double share_of(std::int64_t part, std::int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
}

/// The first `most` by `value`, of equals the more frequent, then the lower id.
std::vector<TypicalToken> best(std::vector<TypicalToken> items, std::size_t most,
                               double TypicalToken::*value) {
  std::ranges::stable_sort(items, std::greater{}, [&](const TypicalToken& item) {
    return std::pair(item.*value, item.count);
  });
  if (items.size() > most) items.resize(most);
  return items;
}

/// The share of the tokens that are in their row's largest column, and of the largest column.
std::pair<double, double> purity_of(const Contingency& table) {
  std::int64_t pure = 0;
  for (Index g = 0; g < table.rows; ++g) pure += std::ranges::max(table.row(g));
  return {share_of(pure, table.tokens), share_of(std::ranges::max(table.col_sums()), table.tokens)};
}

void set_typical(GroupingDetails& details, const GroupAssignments& grouping,
                 std::span<const std::int32_t> ids, const TextTokens& tokens,
                 std::int64_t min_count, std::size_t most) {
  std::map<std::int32_t, std::int64_t> frequency;
  std::vector<std::map<std::int32_t, TypicalToken>> items(details.groups.size());
  for (std::size_t t = 0; t < ids.size(); ++t) {
    ++frequency[ids[t]];
    TypicalToken& item = items[grouping.group_of_token[t]][ids[t]];
    ++item.count;
    item.confidence += static_cast<double>(grouping.confidence[t]);
  }
  for (std::size_t g = 0; g < items.size(); ++g) {
    GroupingDetails::Group& group = details.groups[g];
    std::vector<TypicalToken> all;
    for (auto& [id, item] : items[g]) {
      if (item.count < min_count) continue;
      // One division: equal lifts are equal numbers.
      all.push_back({.id = id,
                     .text = tokens.vocabulary.at(id),
                     .count = item.count,
                     .confidence = item.confidence / static_cast<double>(item.count),
                     .lift = share_of(item.count * std::ssize(ids), group.size * frequency[id])});
    }
    group.by_confidence = best(all, most, &TypicalToken::confidence);
    group.by_lift = best(all, most, &TypicalToken::lift);
  }
}

void set_purity(GroupingDetails& details, const GroupAssignments& grouping,
                std::span<const TokenCategory> categories) {
  std::vector<std::uint8_t> numbers, beginnings;
  for (const TokenCategory c : categories) {
    numbers.push_back(static_cast<std::uint8_t>(c));
    beginnings.push_back(begins_word(c) ? 1 : 0);
  }
  const Contingency table =
      contingency(grouping.group_of_token, grouping.groups, numbers, kNumCategories);
  Purity& purity = details.purity;
  std::tie(purity.categories, purity.categories_base) = purity_of(table);
  purity.information = normalised_mutual_information(table);
  std::tie(purity.word_beginnings, purity.word_beginnings_base) =
      purity_of(contingency(grouping.group_of_token, grouping.groups, beginnings, 2));
  for (Index g = 0; g < table.rows; ++g) {
    GroupingDetails::Group& group = details.groups[static_cast<std::size_t>(g)];
    for (const std::int64_t tokens : table.row(g))
      group.categories.push_back(share_of(tokens, group.size));
    group.category = static_cast<TokenCategory>(std::ranges::max_element(group.categories) -
                                                group.categories.begin());
  }
}

}  // namespace

GroupingDetails describe_grouping(const GroupAssignments& grouping,
                                  std::span<const std::int32_t> ids, const TextTokens& tokens,
                                  std::int64_t min_count, std::size_t most) {
  check(std::ssize(ids) == grouping.tokens(), "groups: {} tokens, but groups for {}", ids.size(),
        grouping.tokens());
  const auto all = static_cast<double>(ids.size());
  GroupingDetails details{.layer = grouping.layer, .entropy = grouping.entropy};
  details.groups.resize(static_cast<std::size_t>(grouping.groups));
  for (std::size_t t = 0; t < ids.size(); ++t) {
    GroupingDetails::Group& group = details.groups[grouping.group_of_token[t]];
    ++group.size;
    group.confidence += static_cast<double>(grouping.confidence[t]);
    details.confidence += static_cast<double>(grouping.confidence[t]) / all;
  }
  std::vector<std::int64_t> sizes;
  for (GroupingDetails::Group& group : details.groups) {
    sizes.push_back(group.size);
    if (group.size > 0) group.confidence /= static_cast<double>(group.size);
  }
  details.smallest = static_cast<double>(std::ranges::min(sizes)) / all;
  details.largest = static_cast<double>(std::ranges::max(sizes)) / all;
  if (grouping.groups > 1)
    details.size_entropy =
        entropy_of_counts(sizes) / std::log(static_cast<double>(grouping.groups));
  set_typical(details, grouping, ids, tokens, min_count, most);
  set_purity(details, grouping, tokens.categories);
  return details;
}

}  // namespace focus
