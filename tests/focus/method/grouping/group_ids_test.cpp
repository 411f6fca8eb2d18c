#include "focus/method/grouping/group_ids.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "tests/support/gradcheck.h"

namespace focus {
namespace {

TEST(FirstLargest, IsTheFirstOfEquals) {
  for (const Index n : {1, 7, 8, 9, 16, 100, 256, 259})
    for (int seed = 0; seed < 50; ++seed) {
      Tensor x = randn({n}, static_cast<std::uint64_t>(seed));
      for (Real& value : x.span()) value = std::round(2 * value);  // many equal ones
      EXPECT_EQ(first_largest(x.data(), n), std::max_element(x.data(), x.data() + n) - x.data())
          << n << " " << seed;
    }
}

TEST(GroupIds, ScoresAreWhatTheFormulaSays) {
  const Tensor k = randn({2, 150, 3, 20}, 1), centroids = randn({3, 7, 20}, 2),
               bias = randn({3, 7}, 3);
  const Variable z = group_scores(k, centroids, bias);
  ASSERT_EQ(z.shape(), Shape({2, 150, 3, 7}));
  for (Index token = 0; token < 300; ++token)
    for (Index h = 0; h < 3; ++h)
      for (Index c = 0; c < 7; ++c) {
        double expected = static_cast<double>(bias[h * 7 + c]);
        for (Index d = 0; d < 20; ++d) {
          const auto of_centroid = static_cast<double>(centroids[(h * 7 + c) * 20 + d]);
          expected +=
              of_centroid * (static_cast<double>(k[(token * 3 + h) * 20 + d]) - of_centroid / 2);
        }
        ASSERT_NEAR(static_cast<double>(z.value()[(token * 3 + h) * 7 + c]), expected,
                    tolerance(1e-4, 1e-11));
      }
}

TEST(GroupIds, Gradient) {
  expect_gradients([](const Variables& v) { return group_scores(v[0], v[1], v[2]); },
                   {randn({2, 5, 2, 3}, 1), randn({2, 4, 3}, 2), randn({2, 4}, 3)});
}

TEST(GroupIds, AreTheNearestCentroids) {
  const Tensor k = randn({2, 150, 2, 5}, 1), centroids = randn({2, 9, 5}, 2);
  const Tensor none = Tensor::zeros({2, 9});
  const GroupIds nearest = nearest_groups(k, centroids, none);
  EXPECT_EQ(nearest.groups, 9);
  EXPECT_EQ(nearest.heads, 2);
  EXPECT_FALSE(nearest.shares.defined());
  for (Index row = 0; row < 600; ++row) {
    Index best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (Index c = 0; c < 9; ++c) {
      double distance = 0;
      for (Index d = 0; d < 5; ++d)
        distance += std::pow(static_cast<double>(k[row * 5 + d]) -
                                 static_cast<double>(centroids[(row % 2 * 9 + c) * 5 + d]),
                             2);
      if (distance < least) best = c, least = distance;
    }
    EXPECT_EQ(nearest.ids[row], best) << "row " << row;
  }
  EXPECT_EQ(group_ids_of(group_scores(k, centroids, none), 1).ids, nearest.ids);
}

TEST(GroupIds, OfEqualScoresTheFirstWins) {
  const GroupIds group_ids =
      group_ids_of(Variable(tensor_of({1, 3, 1, 4}, {0, 2, 2, 1, 5, 5, 5, 5, -3, -4, -3, -2})), 1);
  EXPECT_EQ(group_ids.ids, (std::vector<std::uint8_t>{1, 0, 3}));
  // Two equal centroids, and two more.
  const Tensor centroids = tensor_of({1, 4, 2}, {0, 0, 1, 1, 1, 1, 0, 0});
  const GroupIds nearest =
      nearest_groups(tensor_of({1, 2, 1, 2}, {3, 3, -1, -1}), centroids, Tensor::zeros({1, 4}));
  EXPECT_EQ(nearest.ids, (std::vector<std::uint8_t>{1, 0}));
}

TEST(GroupIds, RefuseWhatDoesNotFit) {
  const Tensor k = randn({1, 4, 2, 3}, 1);
  const auto refuses = [&](const Tensor& centroids, const Tensor& bias) {
    EXPECT_THROW(nearest_groups(k, centroids, bias), std::invalid_argument);
    EXPECT_THROW(group_scores(k, centroids, bias), std::invalid_argument);
  };
  refuses(randn({1, 4, 3}, 1), randn({1, 4}, 2));
  refuses(randn({2, 4, 2}, 1), randn({2, 4}, 2));
  refuses(randn({2, 4, 3}, 1), randn({2, 5}, 2));
  refuses(randn({2, 257, 3}, 1), randn({2, 257}, 2));
  EXPECT_THROW(group_ids_of(Variable(randn({4, 3}, 1)), 1), std::invalid_argument);
  EXPECT_THROW(group_ids_of(Variable(randn({1, 4, 1, 257}, 1)), 1), std::invalid_argument);
}

}  // namespace
}  // namespace focus
