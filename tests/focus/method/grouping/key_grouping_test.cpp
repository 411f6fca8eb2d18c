#include "focus/method/grouping/key_grouping.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "focus/method/grouping/group_ids.h"
#include "tests/support/compare.h"

namespace focus {
namespace {

KeyGroups fitted(const Tensor& keys, Index groups, std::uint64_t seed = 3) {
  Rng rng(1);
  KeyGroups made = make_key_groups(groups, keys.dim(1), keys.dim(2), rng);
  made.bias.mutable_value().data()[0] = 5;
  made.summary_bias.mutable_value().data()[0] = 5;
  fit_key_groups(made, keys, seed);
  return made;
}

constexpr Index kPlanted = 3;

/// Keys in three clouds far apart, other ones in each key head; token t is of cloud t % 3.
Tensor planted_keys(Index tokens, Index kv_heads, Index dim) {
  Tensor keys = randn({tokens, kv_heads, dim}, 7, 0.1);
  const Tensor centres = randn({kv_heads, kPlanted, dim}, 8, 5);
  for (Index t = 0; t < tokens; ++t)
    for (Index h = 0; h < kv_heads; ++h)
      for (Index d = 0; d < dim; ++d)
        keys.data()[(t * kv_heads + h) * dim + d] +=
            centres[(h * kPlanted + t % kPlanted) * dim + d];
  return keys;
}

std::vector<std::uint8_t> ids_of_keys(const KeyGroups& groups, const Tensor& keys) {
  return nearest_groups(keys.reshape({1, keys.dim(0), keys.dim(1), keys.dim(2)}),
                        groups.centroids.value(), groups.bias.value())
      .ids;
}

TEST(KeyGroups, PlantedClustersAreFound) {
  const Index tokens = 2500, kv_heads = 2;  // more than one piece of keys
  const Tensor keys = planted_keys(tokens, kv_heads, 6);
  const KeyGroups groups = fitted(keys, 12);
  const auto group_ids = ids_of_keys(groups, keys);
  for (Index h = 0; h < kv_heads; ++h) {
    std::vector<std::set<Index>> clouds(12);
    for (Index t = 0; t < tokens; ++t) clouds[group_ids[t * kv_heads + h]].insert(t % kPlanted);
    for (const auto& of_group : clouds)
      EXPECT_LE(of_group.size(), 1u) << "a group of two clouds in head " << h;
  }
}

TEST(KeyGroups, CentroidsAreTheMeansOfTheirKeys) {
  // Few keys: Lloyd's rounds have come to rest.
  const Index tokens = 30, groups = 4, dim = 3;
  const Tensor keys = randn({tokens, 1, dim}, 5);
  const KeyGroups made = fitted(keys, groups);
  const auto group_ids = ids_of_keys(made, keys);
  for (Index c = 0; c < groups; ++c)
    for (Index d = 0; d < dim; ++d) {
      double sum = 0, count = 0;
      for (Index t = 0; t < tokens; ++t)
        if (group_ids[t] == c) {
          sum += static_cast<double>(keys[t * dim + d]);
          ++count;
        }
      ASSERT_GT(count, 0);
      EXPECT_NEAR(static_cast<double>(made.centroids.value()[c * dim + d]), sum / count,
                  tolerance(1e-5, 1e-12));
    }
  EXPECT_EQ(made.updates, tokens);
  for (const Variable& zero : {made.bias, made.summary_bias})
    for (const Real x : zero.value().span()) EXPECT_EQ(x, 0);
}

TEST(KeyGroups, ACentroidWithoutKeysBecomesAKey) {
  // Two different keys for five centroids: three are left empty in every round.
  Tensor keys({40, 1, 2});
  for (Index t = 0; t < 40; ++t) {
    keys.data()[2 * t] = t % 2 == 0 ? Real(1.5) : Real(-4);
    keys.data()[2 * t + 1] = t % 2 == 0 ? Real(0.25) : Real(8);
  }
  const Tensor centroids = fitted(keys, 5).centroids.value();
  for (Index c = 0; c < 5; ++c) {
    const Real x = centroids[2 * c], y = centroids[2 * c + 1];
    EXPECT_TRUE((x == Real(1.5) && y == Real(0.25)) || (x == -4 && y == 8)) << x << ", " << y;
  }
}

TEST(KeyGroups, AnyNumberOfThreadsAndTheSameSeedGiveTheSameBits) {
  const Tensor keys = randn({1500, 5, 9}, 2);
  expect_same_bits_for_any_threads("key groups", [&] {
    const KeyGroups groups = fitted(keys, 7);
    return std::vector<Tensor>{groups.centroids.value().clone(), groups.temperature.clone(),
                               groups.spread.clone()};
  });
  EXPECT_FALSE(
      same_bits(fitted(keys, 7, 3).centroids.value(), fitted(keys, 7, 4).centroids.value()));
}

TEST(KeyGroups, TheTemperatureMakesSoftClassesSureInTheMean) {
  for (const double scale : {0.2, 1.0, 6.0}) {
    const Tensor keys = randn({900, 2, 8}, 4, scale);
    const KeyGroups groups = fitted(keys, 6);
    const Tensor z =
        group_scores(Variable(keys.reshape({1, 900, 2, 8})), groups.centroids, groups.bias).value();
    const double tau = static_cast<double>(groups.temperature[0]);
    double mean = 0;
    for (Index row = 0; row < 1800; ++row) {
      double sum = 0, most = -INFINITY;
      for (Index c = 0; c < 6; ++c) most = std::max(most, static_cast<double>(z[row * 6 + c]));
      for (Index c = 0; c < 6; ++c)
        sum += std::exp((static_cast<double>(z[row * 6 + c]) - most) / tau);
      mean += 1 / sum / 1800;
    }
    EXPECT_NEAR(mean, 0.85, 1e-3) << "keys of scale " << scale;
  }
}

TEST(KeyGroups, TheSpreadIsTheCentroidsDeviation) {
  const KeyGroups groups = fitted(randn({400, 2, 8}, 4, 3), 6);
  const Tensor& c = groups.centroids.value();
  double mean = 0, squares = 0;
  for (const Real x : c.span()) mean += static_cast<double>(x) / static_cast<double>(c.size());
  for (const Real x : c.span()) squares += std::pow(static_cast<double>(x) - mean, 2);
  EXPECT_NEAR(static_cast<double>(groups.spread[0]),
              std::sqrt(squares / static_cast<double>(c.size())), 1e-5);
}

TEST(KeyGroups, RefuseTooFewTokensAndOtherShapes) {
  EXPECT_THROW(fitted(randn({4, 2, 3}, 1), 5), std::invalid_argument);
  EXPECT_NO_THROW(fitted(randn({5, 2, 3}, 1), 5));
  Rng rng(1);
  KeyGroups groups = make_key_groups(4, 2, 3, rng);
  EXPECT_THROW(fit_key_groups(groups, randn({9, 1, 3}, 1), 1), std::invalid_argument);
  EXPECT_THROW(fit_key_groups(groups, randn({9, 2, 4}, 1), 1), std::invalid_argument);
}

}  // namespace
}  // namespace focus
