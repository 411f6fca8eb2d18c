#include "focus/method/grouping/centroids.h"

#include <bit>
#include <cmath>

#include "tests/support/compare.h"
#include "tests/support/random.h"

namespace focus {
namespace {

FocusConfig centroid_config(int groups) {
  FocusConfig config;
  config.num_groups = groups;
  config.tokens().routing_dim = 2;
  return config;
}

/// A layer whose routing vectors are h itself.
FocusLayer identity_layer(const std::vector<Real>& centroids) {
  return {Tensor::from({2, 2}, std::vector<Real>{1, 0, 0, 1}),
          Tensor::from({static_cast<Index>(centroids.size()) / 2, 2}, centroids),
          Tensor::zeros({static_cast<Index>(centroids.size()) / 2})};
}

double largest_share(const Routing& routing, int groups) {
  std::vector<double> sizes(static_cast<std::size_t>(groups), 0.0);
  const auto sets = membership(routing, 1);
  for (const std::uint64_t set : sets) ++sizes[static_cast<std::size_t>(std::countr_zero(set))];
  return *std::ranges::max_element(sizes) / static_cast<double>(sets.size());
}

TEST(AverageCentroids, ByHand) {
  const FocusConfig config = centroid_config(3);
  FocusLayer layer = identity_layer({1, 0, 0, 1, -5, -5});
  const Tensor h = Tensor::from({1, 3, 2}, std::vector<Real>{3, 1, 1, 2, 5, 3});
  average_centroids(layer, route(h, layer, config, Balance::none), 0.25);
  // Tokens 0 and 2 are of group 0, token 1 is of group 1, and group 2 has none.
  const std::vector<double> expected = {0.75 + 0.25 * 4, 0.25 * 2, 0.25 * 1,
                                        0.75 + 0.25 * 2, -5,       -5};
  for (Index i = 0; i < 6; ++i)
    EXPECT_NEAR(layer.centroids.value()[i], expected[static_cast<std::size_t>(i)], 1e-6) << i;
}

TEST(AverageCentroids, CopiesOfTheVariableSeeIt) {
  const FocusConfig config = centroid_config(2);
  FocusLayer layer = identity_layer({1, 0, 0, 1});
  const Variable copy = layer.centroids;
  average_centroids(layer, route(randn({1, 9, 2}, 1), layer, config, Balance::none), 0.5);
  EXPECT_TRUE(same_bits(copy.value(), layer.centroids.value()));
  EXPECT_NE(copy.value()[0], 1);
}

/// Tokens in four narrow directions, as many of each.
Tensor four_directions() {
  Tensor h = randn({1, 400, 2}, 5, 0.1);
  for (Index i = 0; i < 400; ++i) {
    const double angle = 0.4 + 1.57 * static_cast<double>(i % 4);
    const double length = 1 + static_cast<double>(i % 3);
    h.data()[2 * i] += static_cast<Real>(length * std::cos(angle));
    h.data()[2 * i + 1] += static_cast<Real>(length * std::sin(angle));
  }
  return h;
}

TEST(Recluster, FindsTheClustersOfACollapsedLayer) {
  const FocusConfig config = centroid_config(4);
  const Tensor h = four_directions();
  for (const std::uint64_t seed : {1, 2, 3}) {
    // One centroid is so long that it or its opposite wins nearly every token.
    FocusLayer layer = identity_layer({30, 1, Real(0.1), 0, 0, Real(0.1), 0, 0});
    const Routing before = route(h, layer, config, Balance::none);
    EXPECT_GE(largest_share(before, 4), 0.5);
    recluster(layer, before, config.tokens(), seed);
    EXPECT_NEAR(largest_share(route(h, layer, config, Balance::none), 4), 0.25, 0.01) << seed;
    const Tensor& c = layer.centroids.value();
    for (Index k = 0; k < 4; ++k)
      EXPECT_NEAR(std::hypot(c[2 * k], c[2 * k + 1]), (std::hypot(30, 1) + 0.2) / 4, 1e-4);
  }
}

TEST(Recluster, TheSameSeedGivesTheSameBitsAndPotentialsOfTheBatch) {
  const FocusConfig config = centroid_config(4);
  const Tensor h = four_directions();
  std::vector<FocusLayer> layers = {identity_layer({1, 0, 0, 1, 1, 1, -1, 0}),
                                    identity_layer({1, 0, 0, 1, 1, 1, -1, 0})};
  for (FocusLayer& layer : layers) {
    layer.potentials = Tensor::from({4}, std::vector<Real>{9, -9, 0, 0});
    recluster(layer, route(h, layer, config, Balance::carried), config.tokens(), 7);
  }
  EXPECT_TRUE(same_bits(layers[0].centroids.value(), layers[1].centroids.value()));
  for (const Real b : layers[0].potentials.span()) EXPECT_LT(std::abs(b), 2);
  EXPECT_NEAR(largest_share(route(h, layers[0], config, Balance::carried), 4), 0.25, 0.02);
}

TEST(Recluster, TokensThatAreAllEqualOrZero) {
  const FocusConfig config = centroid_config(4);
  for (const double x : {0.0, 1.0}) {
    FocusLayer layer = identity_layer({1, 0, 0, 1, 1, 1, -1, 0});
    Tensor h = Tensor::zeros({1, 3, 2});
    for (Real& value : h.span()) value = static_cast<Real>(x);
    recluster(layer, route(h, layer, config, Balance::none), config.tokens(), 1);
    for (const Real c : layer.centroids.value().span()) EXPECT_TRUE(std::isfinite(c));
  }
}

}  // namespace
}  // namespace focus
