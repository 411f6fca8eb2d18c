#include "focus/evaluation/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/base/check.h"
#include "data/files/utf8.h"
#include "data/tensors/tensor_source.h"

namespace focus {
namespace {

double pairs_of(std::int64_t n) {
  return 0.5 * static_cast<double>(n) * static_cast<double>(n - 1);
}

double sum_of_pairs(std::span<const std::int64_t> counts) {
  double sum = 0;
  for (const std::int64_t n : counts) sum += pairs_of(n);
  return sum;
}

/// Adds one head's tokens of a window to its grouping.
void note(const GroupShares& shares, Index head, GroupAssignments& grouping) {
  const auto heads = static_cast<std::size_t>(shares.heads);
  const auto groups = static_cast<std::size_t>(shares.groups);
  for (auto row = static_cast<std::size_t>(head); row < shares.ids.size(); row += heads) {
    const auto g = std::span(shares.shares).subspan(row * groups, groups);
    grouping.group_of_token.push_back(shares.ids[row]);
    grouping.confidence.push_back(static_cast<float>(g[shares.ids[row]]));
    double entropy = 0;
    for (const double share : g)
      if (share > 0) entropy -= share * std::log(share);
    grouping.entropy += entropy;
  }
}

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
    GroupingDetails::Group& group = details.groups[g];
    for (const std::int64_t tokens : table.row(g))
      group.categories.push_back(share_of(tokens, group.size));
    group.category = static_cast<TokenCategory>(std::ranges::max_element(group.categories) -
                                                group.categories.begin());
  }
}

}  // namespace

std::vector<std::int64_t> Contingency::row_sums() const {
  std::vector<std::int64_t> sums;
  for (Index a = 0; a < rows; ++a)
    sums.push_back(std::accumulate(row(a).begin(), row(a).end(), std::int64_t{0}));
  return sums;
}

std::vector<std::int64_t> Contingency::col_sums() const {
  std::vector<std::int64_t> sums(cols, 0);
  for (std::size_t i = 0; i < counts.size(); ++i) sums[i % sums.size()] += counts[i];
  return sums;
}

Contingency contingency(std::span<const std::uint8_t> a, Index rows,
                        std::span<const std::uint8_t> b, Index cols) {
  check(a.size() == b.size(), "agreement: {} tokens in one grouping, {} in the other", a.size(),
        b.size());
  Contingency table{.rows = rows,
                    .cols = cols,
                    .counts = std::vector<std::int64_t>(rows * cols, 0),
                    .tokens = static_cast<std::int64_t>(a.size())};
  for (std::size_t t = 0; t < a.size(); ++t) {
    check(a[t] < rows && b[t] < cols, "agreement: token {} is in groups {} and {} of {} and {}", t,
          a[t], b[t], rows, cols);
    ++table.counts[a[t] * cols + b[t]];
  }
  return table;
}

double adjusted_rand_index(const Contingency& table) {
  const double both = sum_of_pairs(table.counts);
  const double in_rows = sum_of_pairs(table.row_sums()), in_cols = sum_of_pairs(table.col_sums());
  const double all = pairs_of(table.tokens);
  if (all == 0) return 1;
  const double chance = in_rows * in_cols / all, most = (in_rows + in_cols) / 2;
  return most == chance ? 1 : (both - chance) / (most - chance);
}

double entropy_of_counts(std::span<const std::int64_t> counts) {
  const auto all =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  double entropy = 0;
  for (const std::int64_t n : counts)
    if (n > 0) entropy -= static_cast<double>(n) / all * std::log(static_cast<double>(n) / all);
  return entropy;
}

double normalised_mutual_information(const Contingency& table) {
  const double rows = entropy_of_counts(table.row_sums());
  const double cols = entropy_of_counts(table.col_sums());
  if (rows + cols == 0) return 1;
  const double information = rows + cols - entropy_of_counts(table.counts);
  return std::clamp(2 * information / (rows + cols), 0.0, 1.0);
}

Agreement agreement(const Contingency& table) {
  return {.rand = adjusted_rand_index(table), .information = normalised_mutual_information(table)};
}

TextWindows cut_windows(std::span<const EvalText> texts, Index context) {
  TextWindows cut;
  for (const EvalText& text : texts) {
    const Index most = context - text.lead(), size = static_cast<Index>(text.ids.size());
    check(most >= 1, "groups: windows of {} tokens have no room for a token", context);
    for (Index at = 0; at < size; at += most) {
      if (text.window_start) cut.ids.push_back(*text.window_start);
      cut.ids.insert(cut.ids.end(), text.ids.begin() + at,
                     text.ids.begin() + std::min(size, at + most));
      cut.windows.push_back(cut.tokens());
    }
    if (size > 0) cut.names.push_back(replace_invalid_utf8(text.name));
  }
  return cut;
}

std::vector<GroupAssignments> collect_groupings(Decoder& decoder, FocusModel& focus,
                                                const TextWindows& text,
                                                const ShareDone& progress) {
  const Index layers = static_cast<Index>(decoder.layers().size());
  check(layers == focus.shape().num_layers, "groups: {} layers for a decoder of {}",
        focus.shape().num_layers, layers);
  const Index heads = focus.grouping().heads();
  std::vector<GroupAssignments> groupings;
  for (Index i = 0; i < layers * heads; ++i)
    groupings.push_back({.layer = i / heads,
                         .head = i % heads,
                         .groups = focus.config().num_groups,
                         .group_of_token = {},
                         .confidence = {}});
  std::vector<AttentionMechanism> own;
  for (const Block& block : decoder.layers()) own.push_back(block.self_attn.mechanism);
  const NoGrad guard;
  const AttachedMechanism watched(decoder, [&](const MechanismInputs& in) {
    const GroupShares shares =
        focus.grouping().shares(in, *focus.runnable_mode(focus.mode).balance);
    for (Index head = 0; head < heads; ++head)
      note(shares, head, groupings[in.layer * heads + head]);
    const AttentionMechanism& attend = own[in.layer];
    return attend ? attend(in) : attention(in.q, in.k, in.v, in.options);
  });
  for (Index w = 0; w < text.num_windows(); ++w) {
    const Variable hidden = decoder.hidden_states(text.window(w), 1);
    require_finite(hidden.value().span(), "groups", "hidden states");
    if (progress) progress(static_cast<double>(w + 1) / static_cast<double>(text.num_windows()));
  }
  for (GroupAssignments& grouping : groupings)
    grouping.entropy /= std::max(1.0, static_cast<double>(grouping.tokens()));
  return groupings;
}

GroupingDetails describe_grouping(const GroupAssignments& grouping,
                                  std::span<const std::int32_t> ids, const TextTokens& tokens,
                                  std::int64_t min_count, std::size_t most) {
  check(std::ssize(ids) == grouping.tokens(), "groups: {} tokens, but groups for {}", ids.size(),
        grouping.tokens());
  const auto all = static_cast<double>(ids.size());
  GroupingDetails details{.layer = grouping.layer, .assignment_entropy = grouping.entropy};
  details.groups.resize(grouping.groups);
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
  details.smallest_group = static_cast<double>(std::ranges::min(sizes)) / all;
  details.largest_group = static_cast<double>(std::ranges::max(sizes)) / all;
  if (grouping.groups > 1)
    details.size_entropy =
        entropy_of_counts(sizes) / std::log(static_cast<double>(grouping.groups));
  set_typical(details, grouping, ids, tokens, min_count, most);
  set_purity(details, grouping, tokens.categories);
  return details;
}

}  // namespace focus
