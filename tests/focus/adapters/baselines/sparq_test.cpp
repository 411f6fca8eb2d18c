#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/baseline_case.h"

namespace focus {
namespace {

struct SparqConfig {
  Index tokens, rank, last_keys;
  bool reallocate;
};

/// s^ of one query by some of its numbers.
std::vector<double> approximate(const NaiveQuery& q, const AttentionOptions& options,
                                const std::vector<Index>& kept) {
  double all = 0, some = 0, total = 0;
  for (Index d = 0; d < q.head_dim(); ++d) all += std::abs(q.q(d));
  for (const Index d : kept) some += std::abs(q.q(d));
  std::vector<double> weights;
  const auto cap = static_cast<double>(options.softcap);
  for (Index j = 0; j <= q.token; ++j) {
    double dot = 0;
    for (const Index d : kept) dot += q.q(d) * q.k(j, d);
    double z = static_cast<double>(options.scale) * dot / std::sqrt(some / all);
    if (cap > 0) z = cap * std::tanh(z / cap);
    weights.push_back(q.sees(j, options) ? std::exp(z) : 0);
    total += weights.back();
  }
  for (double& w : weights) w /= total;
  return weights;
}

/// Algorithm 1: each key's part of a query's output, the mean of the values among them.
std::vector<double> parts_of(const NaiveQuery& q, const AttentionOptions& options,
                             const SparqConfig& config) {
  const Index group = q.heads() / q.kv_heads(), first = q.kv_head() * group;
  const auto each_head = [&](auto&& f) {
    for (Index h = first; h < first + group; ++h) f(NaiveQuery{q.x, q.sequence, q.token, h});
  };
  std::vector<std::pair<double, Index>> magnitudes, order;
  for (Index d = 0; d < q.head_dim(); ++d) {
    magnitudes.emplace_back(0, d);
    each_head([&](const NaiveQuery& other) { magnitudes.back().first += std::abs(other.q(d)); });
  }
  const auto kept = largest_places(magnitudes, std::min(config.rank, q.head_dim()));
  std::vector<double> sums(q.token + 1, 0), parts(sums);
  each_head([&](const NaiveQuery& other) {
    const auto weights = approximate(other, options, kept);
    std::ranges::transform(sums, weights, sums.begin(), std::plus());
  });
  for (Index j = 0; j <= q.token; ++j)
    if (q.sees(j, options)) order.emplace_back(q.token - j < config.last_keys ? 1e9 : sums[j], j);
  const auto own = approximate(q, options, kept);
  const auto read = largest_places(order, config.tokens);
  double share = 0, total = 0;
  for (const Index j : read) {
    share += own[j];
    total += std::exp(q.score(j, options));
  }
  if (!config.reallocate || read.size() == order.size()) share = 1;
  for (const Index j : read) parts[j] = share * std::exp(q.score(j, options)) / total;
  for (const auto& [_, j] : order) parts[j] += (1 - share) / static_cast<double>(order.size());
  return parts;
}

TEST(Sparq, IsTheAlgorithmOfThePaper) {
  for (const bool reallocate : {true, false})
    for (const Index heads : {2, 6})
      for (const Index sliding : {Index{0}, Index{20}})
        for (const Index local : {Index{0}, Index{4}})
          for (const Real softcap : {Real(0), Real(1.5)}) {
            const auto x = inputs_of({.seq_len = 45, .heads = heads});
            const AttentionOptions options{
                .scale = Real(0.35), .softcap = softcap, .sliding_window = sliding};
            const SparqConfig config{7, 3, local, reallocate};
            std::vector<double> parts;
            const Tensor expected = naive_attention(x, [&](const NaiveQuery& q, Index j) {
              if (j == 0) parts = parts_of(q, options, config);
              return parts[j];
            });
            const auto mechanism =
                mechanism_of("sparq",
                             fmt::format("{{tokens: 7, rank: 3, last_keys: {}, reallocate: {}}}",
                                         local, reallocate),
                             {.heads = heads});
            EXPECT_LE(relative_difference(attend(*mechanism, x, options), expected),
                      tolerance(1e-5, 1e-12))
                << "reallocate " << reallocate << ", heads " << heads << ", sliding " << sliding;
          }
}

}  // namespace
}  // namespace focus
