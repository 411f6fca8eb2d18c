#include "focus/method/grouping/sinkhorn.h"

#include <cmath>
#include <stdexcept>

#include "autograd/base/random.h"
#include "tests/support/compare.h"

namespace focus {
namespace {

std::vector<double> normals(std::size_t count, std::uint64_t seed, double size = 1) {
  Rng rng(seed);
  std::vector<double> x(count);
  for (double& value : x) value = size * rng.normal();
  return x;
}

/// Q = exp(L + u + b) of the last round.
std::vector<double> assignments(const std::vector<double>& logits, const SinkhornTrace& trace) {
  std::vector<double> q(logits.size());
  const double* u = trace.u.data() + trace.rounds * trace.tokens;
  for (Index i = 0; i < trace.tokens; ++i)
    for (Index k = 0; k < trace.groups; ++k) {
      const auto n = static_cast<std::size_t>(i * trace.groups + k);
      q[n] = std::exp(logits[n] + u[i] + trace.potentials()[k]);
    }
  return q;
}

/// Such logits that Q's entries are scaled, or that those of one token are too small for that.
std::vector<double> logits_of(Index tokens, Index groups, std::uint64_t seed, bool scaled) {
  auto logits = normals(static_cast<std::size_t>(tokens * groups), seed, 1.5);
  for (Index k = 0; k < groups && !scaled; ++k) logits[k] -= 300;
  return logits;
}

TEST(Sinkhorn, EqualsThePapersRoundsOnPlainNumbers) {
  for (const Index tokens : {2, 9, 700})
    for (const int rounds : {1, 2, 10})
      for (const bool scaled : {true, false}) {
        const Index groups = 4;
        const auto logits = logits_of(tokens, groups, 1, scaled);
        std::vector<double> q;
        for (const double logit : logits) q.push_back(std::exp(logit));
        const auto at = [&](Index i, Index k) -> double& { return q[i * groups + k]; };
        for (int n = 0; n < rounds; ++n) {
          for (Index k = 0; k < groups; ++k) {
            double sum = 0;
            for (Index i = 0; i < tokens; ++i) sum += at(i, k);
            for (Index i = 0; i < tokens; ++i) at(i, k) /= sum;
          }
          for (Index i = 0; i < tokens; ++i) {
            double sum = 0;
            for (Index k = 0; k < groups; ++k) sum += at(i, k);
            for (Index k = 0; k < groups; ++k) at(i, k) /= sum;
          }
        }
        const SinkhornTrace trace = sinkhorn(logits.data(), tokens, groups, rounds);
        EXPECT_EQ(trace.scaled, scaled);
        const auto actual = assignments(logits, trace);
        for (std::size_t n = 0; n < q.size(); ++n) EXPECT_NEAR(actual[n], q[n], 1e-12);
      }
}

TEST(Sinkhorn, RowsSumToOneAndGroupsBalance) {
  const Index tokens = 300, groups = 5;
  const auto logits = normals(static_cast<std::size_t>(tokens * groups), 2, 3);
  double before = INFINITY;
  for (const int rounds : {1, 3, 10, 2000}) {
    const auto q = assignments(logits, sinkhorn(logits.data(), tokens, groups, rounds));
    std::vector<double> mass(groups);
    for (Index i = 0; i < tokens; ++i) {
      double sum = 0;
      for (Index k = 0; k < groups; ++k) {
        sum += q[i * groups + k];
        mass[k] += q[i * groups + k];
      }
      EXPECT_NEAR(sum, 1, 1e-11);  // u and -b grow by log(tokens / groups) a round
    }
    double imbalance = 0;
    for (const double m : mass) imbalance = std::max(imbalance, std::abs(m - 60));
    EXPECT_LT(imbalance, before) << rounds;
    before = imbalance;
  }
  EXPECT_LT(before, 1e-8);
}

TEST(Sinkhorn, BackwardAgreesWithDifferences) {
  for (const Index tokens : {2, 6, 300})
    for (const int rounds : {1, 2, 5})
      for (const bool scaled : {true, false}) {
        const Index groups = 3;
        auto logits = logits_of(tokens, groups, 3, scaled);
        const auto weights = normals(static_cast<std::size_t>(groups), 4);
        const auto projected = [&] {
          const SinkhornTrace trace = sinkhorn(logits.data(), tokens, groups, rounds);
          EXPECT_EQ(trace.scaled, scaled);
          double sum = 0;
          for (Index k = 0; k < groups; ++k) sum += weights[k] * trace.potentials()[k];
          return sum;
        };
        std::vector<double> gradient(logits.size(), 7.0);  // backward adds to what is there
        sinkhorn_backward(logits.data(), sinkhorn(logits.data(), tokens, groups, rounds),
                          weights.data(), gradient.data());
        for (std::size_t n = 0; n<logits.size(); n += logits.size()> 100 ? 37 : 1) {
          const double here = logits[n], step = 1e-5;
          logits[n] = here + step;
          const double above = projected();
          logits[n] = here - step;
          const double numeric = (above - projected()) / (2 * step);
          logits[n] = here;
          EXPECT_NEAR(gradient[n] - 7, numeric, 2e-8)
              << tokens << " tokens, " << rounds << " rounds, logit " << n << ", scaled " << scaled;
        }
      }
}

TEST(Sinkhorn, ExtremeLogitsStayFinite) {
  const Index tokens = 8, groups = 3;
  auto logits = normals(static_cast<std::size_t>(tokens * groups), 5, 1e4);
  for (Index i = 0; i < tokens; ++i) logits[i * groups] = -1e4;
  const SinkhornTrace trace = sinkhorn(logits.data(), tokens, groups, 10);
  for (const auto* numbers : {&trace.u, &trace.b})
    for (const double x : *numbers) EXPECT_TRUE(std::isfinite(x));
  std::vector<double> gradient(logits.size(), 0.0);
  sinkhorn_backward(logits.data(), trace, std::vector<double>{1, -2, 3}.data(), gradient.data());
  for (const double g : gradient) EXPECT_TRUE(std::isfinite(g));
}

TEST(Sinkhorn, ATokenAloneSharesItself) {
  const std::vector<double> logits = {0.3, -2, 5};
  const SinkhornTrace trace = sinkhorn(logits.data(), 1, 3, 4);
  for (const double q : assignments(logits, trace)) EXPECT_NEAR(q, 1 / 3.0, 1e-14);
}

TEST(Sinkhorn, BitsDoNotDependOnThreads) {
  const auto logits = normals(2000 * 4, 6);
  const auto potentials = [&] { return sinkhorn(logits.data(), 2000, 4, 10).b; };
  const auto one = with_threads(1, potentials);
  EXPECT_EQ(with_threads(2, potentials), one);
  EXPECT_EQ(with_threads(3, potentials), one);
}

TEST(Sinkhorn, RejectsNothingToDo) {
  const double logit = 0;
  EXPECT_THROW(sinkhorn(&logit, 1, 1, 0), std::invalid_argument);
  EXPECT_THROW(sinkhorn(&logit, 0, 1, 1), std::invalid_argument);
  EXPECT_THROW(sinkhorn(&logit, 1, 0, 1), std::invalid_argument);
}

}  // namespace
}  // namespace focus
