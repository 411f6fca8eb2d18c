#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/baseline_case.h"

namespace focus {
namespace {

struct SparqConfig {
  Index tokens, rank, last_keys;
  bool reallocate;
};

/// Algorithm 1, one query at a time, every order by a full sort.
Tensor naive(const std::vector<Tensor>& x, const AttentionOptions& options,
             const SparqConfig& config) {
  Tensor out(x[0].shape());
  const Index heads = x[0].dim(2), head_dim = x[0].dim(3), group = heads / x[1].dim(2);
  Real* to = out.data();
  for (Index s = 0; s < x[0].dim(0); ++s)
    for (Index i = 0; i < x[0].dim(1); ++i)
      for (Index h = 0; h < heads; ++h) {
        const Index first_head = h / group * group;
        std::vector<std::pair<double, Index>> magnitudes;
        for (Index d = 0; d < head_dim; ++d) {
          double sum = 0;
          for (Index g = 0; g < group; ++g)
            sum += std::abs(NaiveQuery{x, s, i, first_head + g}.q(d));
          magnitudes.emplace_back(-sum, d);
        }
        std::ranges::sort(magnitudes);
        magnitudes.resize(static_cast<std::size_t>(std::min(config.rank, head_dim)));
        const auto approximate = [&](Index head) {
          const NaiveQuery q{x, s, i, head};
          double all = 0, some = 0, total = 0;
          for (Index d = 0; d < head_dim; ++d) all += std::abs(q.q(d));
          for (const auto& [_, d] : magnitudes) some += std::abs(q.q(d));
          std::vector<double> weights;
          for (Index j = 0; j <= i; ++j) {
            double dot = 0;
            for (const auto& [_, d] : magnitudes) dot += q.q(d) * q.k(j, d);
            double z = static_cast<double>(options.scale) * dot / std::sqrt(some / all);
            if (options.softcap > 0)
              z = static_cast<double>(options.softcap) *
                  std::tanh(z / static_cast<double>(options.softcap));
            weights.push_back(q.sees(j, options) ? std::exp(z) : 0);
            total += weights.back();
          }
          for (double& w : weights) w /= total;
          return weights;
        };
        std::vector<std::pair<double, Index>> order;
        const NaiveQuery q{x, s, i, h};
        for (Index j = 0; j <= i; ++j) {
          double sum = 0;
          for (Index g = 0; g < group; ++g)
            sum += approximate(first_head + g)[static_cast<std::size_t>(j)];
          if (q.sees(j, options)) order.emplace_back(i - j < config.last_keys ? -1e9 : -sum, j);
        }
        std::ranges::sort(order);
        const bool whole = static_cast<Index>(order.size()) <= config.tokens;
        if (!whole) order.resize(static_cast<std::size_t>(config.tokens));
        const auto own = approximate(h);
        double share = 0, total = 0;
        std::vector<double> sum(static_cast<std::size_t>(head_dim), 0), mean(sum);
        for (const auto& [_, j] : order) {
          const double w = std::exp(q.score(j, options));
          share += own[static_cast<std::size_t>(j)];
          total += w;
          for (Index d = 0; d < head_dim; ++d) sum[static_cast<std::size_t>(d)] += w * q.v(j, d);
        }
        if (!config.reallocate || whole) share = 1;
        double visible = 0;
        for (Index j = 0; j <= i; ++j) {
          if (!q.sees(j, options)) continue;
          ++visible;
          for (Index d = 0; d < head_dim; ++d) mean[static_cast<std::size_t>(d)] += q.v(j, d);
        }
        for (std::size_t d = 0; d < sum.size(); ++d)
          *to++ = static_cast<Real>(share * sum[d] / total + (1 - share) * mean[d] / visible);
      }
  return out;
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
            const auto mechanism =
                mechanism_of("sparq",
                             fmt::format("{{tokens: 7, rank: 3, last_keys: {}, reallocate: {}}}",
                                         local, reallocate),
                             {.heads = heads});
            EXPECT_LE(
                relative_difference(attend(*mechanism, x, options), naive(x, options, config)),
                tolerance(1e-5, 1e-12))
                << "reallocate " << reallocate << ", heads " << heads << ", sliding " << sliding;
          }
}

}  // namespace
}  // namespace focus
