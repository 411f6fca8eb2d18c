#include "focus/method/grouping/group_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace focus {

void GroupStatistics::add_sizes(const Routing& routing) {
  sizes.resize(static_cast<std::size_t>(routing.assignments.value().cols()));
  for (const std::uint64_t mask : membership(routing, 1))
    ++sizes[static_cast<std::size_t>(std::countr_zero(mask))];
  tokens += routing.assignments.value().rows();
}

void GroupStatistics::add_sizes(std::span<const std::uint8_t> group_ids, Index heads,
                                Index groups) {
  sizes.resize(static_cast<std::size_t>(heads * groups));
  for (std::size_t i = 0; i < group_ids.size(); ++i)
    ++sizes[i % static_cast<std::size_t>(heads) * static_cast<std::size_t>(groups) + group_ids[i]];
  tokens += static_cast<std::int64_t>(group_ids.size()) / heads;
}

void GroupStatistics::add(const Routing& routing) {
  add_sizes(routing);
  const Tensor& g = routing.assignments.value();
  weighed += g.rows();
  const Index groups = g.cols();
  for (Index i = 0; i < g.rows(); ++i) {
    const Real* row = g.data() + i * groups;
    confidence += static_cast<double>(*std::max_element(row, row + groups));
    for (Index k = 0; k < groups; ++k)
      if (row[k] > 0)
        entropy -= static_cast<double>(row[k]) * std::log(static_cast<double>(row[k]));
  }
}

void GroupStatistics::append_to(std::vector<double>& list) const {
  list.push_back(static_cast<double>(sizes.size()));
  for (const std::int64_t size : sizes) list.push_back(static_cast<double>(size));
  list.insert(list.end(),
              {static_cast<double>(tokens), static_cast<double>(weighed), entropy, confidence});
}

std::size_t GroupStatistics::add(std::span<const double> list) {
  const auto groups = static_cast<std::size_t>(list[0]);
  sizes.resize(groups);
  for (std::size_t g = 0; g < groups; ++g) sizes[g] += static_cast<std::int64_t>(list[1 + g]);
  const std::span<const double> rest = list.subspan(1 + groups, 4);
  tokens += static_cast<std::int64_t>(rest[0]);
  weighed += static_cast<std::int64_t>(rest[1]);
  entropy += rest[2];
  confidence += rest[3];
  return 1 + groups + rest.size();
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
