#include "focus/method/grouping/group_statistics.h"

#include <cmath>

#include "autograd/base/check.h"
#include "focus/method/documents.h"

namespace focus {

std::vector<std::uint64_t> with_sinks(std::span<const std::uint64_t> membership, Index seq_len,
                                      Index sinks) {
  std::vector<std::uint64_t> masks(membership.begin(), membership.end());
  if (masks.empty() || sinks == 0) return masks;
  fill_sinks<std::uint64_t>(sequence_starts(std::ssize(masks) / seq_len, seq_len), sinks,
                            kEveryGroup, masks);
  return masks;
}

PairCounts& PairCounts::operator+=(const PairCounts& other) {
  all += other.all;
  distant += other.distant;
  attended += other.attended;
  selection_cost += other.selection_cost;
  return *this;
}

PairCounts count_pairs(std::span<const std::uint64_t> membership, Index seq_len, Index local_window,
                       Index sliding_window, Index sinks) {
  check(membership.empty() || std::ssize(membership) == seq_len,
        "count_pairs: {} membership sets for {} tokens", membership.size(), seq_len);
  PairCounts counts;
  const std::vector<std::uint64_t> masks = with_sinks(membership, seq_len, sinks);
  std::vector<std::uint64_t> buckets = masks;
  std::ranges::sort(buckets);
  buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
  // How many tokens behind the query's local window meet each bucket.
  std::vector<std::int64_t> met(buckets.size(), 0);
  const auto add = [&](Index token, std::int64_t sign) {
    const std::uint64_t mask = masks[token];
    for (std::size_t c = 0; c < buckets.size(); ++c)
      met[c] += (buckets[c] & mask) != 0 ? sign : std::int64_t{0};
  };
  Index entered = 0, left = 0;
  for (Index i = 0; i < seq_len; ++i) {
    const Index first = sliding_window > 0 ? std::max<Index>(0, i - sliding_window + 1) : 0;
    const Index local = std::max(first, i - local_window);
    counts.all += i + 1 - first;
    counts.distant += local - std::clamp(sinks, first, local);
    if (masks.empty()) continue;
    for (; entered < local; ++entered) add(entered, 1);
    for (; left < first; ++left) add(left, -1);
    const auto bucket = std::ranges::lower_bound(buckets, masks[i]);
    counts.attended += i + 1 - local + met[bucket - buckets.begin()];
  }
  if (masks.empty()) counts.attended = counts.all;
  return counts;
}

void GroupStatistics::add_sizes(std::span<const std::uint8_t> group_ids, Index heads,
                                Index groups) {
  sizes.resize(heads * groups);
  for (std::size_t i = 0; i < group_ids.size(); ++i) ++sizes[i % heads * groups + group_ids[i]];
  tokens += static_cast<std::int64_t>(group_ids.size()) / heads;
}

void GroupStatistics::add(const Routing& routing) {
  const Tensor& g = routing.assignments.value();
  const Index groups = g.cols();
  add_sizes(best_groups(routing), 1, groups);
  weighed += g.rows();
  for (Index i = 0; i < g.rows(); ++i) {
    const Real* row = g.data() + i * groups;
    confidence += *std::max_element(row, row + groups);
    for (Index k = 0; k < groups; ++k)
      if (row[k] > 0)
        entropy -= static_cast<double>(row[k]) * std::log(static_cast<double>(row[k]));
  }
}

double GroupStatistics::dominance() const {
  if (tokens == 0) return 0;
  return static_cast<double>(*std::ranges::max_element(sizes)) / static_cast<double>(tokens);
}

double GroupStatistics::size_entropy() const {
  if (tokens == 0) return 0;
  double sum = 0, heads = 0;  // each head's sizes sum to `tokens`
  for (const std::int64_t size : sizes) {
    const double share = static_cast<double>(size) / static_cast<double>(tokens);
    heads += share;
    if (size > 0) sum -= share * std::log(share);
  }
  return sum / heads;
}

}  // namespace focus
