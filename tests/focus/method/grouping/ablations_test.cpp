#include <cmath>

#include "tests/support/gradcheck.h"
#include "tests/support/grouping_layers.h"

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

TEST(AverageCentroids, ByHand) {
  const FocusConfig config = centroid_config(3);
  FocusLayer layer = identity_layer({1, 0, 0, 1, -5, -5});
  const Tensor h = Tensor::from({1, 3, 2}, std::vector<Real>{3, 1, 1, 2, 5, 3});
  average_centroids(layer, route(h, layer, config, Balance::none), 0.25);
  // Tokens 0 and 2 are of group 0, token 1 is of group 1, and group 2 has none.
  const std::vector<double> expected = {0.75 + 0.25 * 4, 0.25 * 2, 0.25 * 1,
                                        0.75 + 0.25 * 2, -5,       -5};
  for (Index i = 0; i < 6; ++i) EXPECT_NEAR(layer.centroids.value()[i], expected[i], 1e-6) << i;
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
    EXPECT_GE(largest_share(before), 0.5);
    recluster(layer, before, config.tokens(), seed);
    EXPECT_NEAR(largest_share(route(h, layer, config, Balance::none)), 0.25, 0.01) << seed;
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
  EXPECT_NEAR(largest_share(route(h, layers[0], config, Balance::carried)), 0.25, 0.02);
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

/// Two sequences of two tokens over two groups, by their assignments.
Routing loss_routing(const std::vector<double>& g) {
  std::vector<double> logits;
  Tensor assignments({2, 2, 2});
  for (std::size_t i = 0; i < g.size(); ++i) {
    logits.push_back(std::log(g[i] + 1e-300));
    assignments.data()[i] = static_cast<Real>(g[i]);
  }
  return {.assignments = leaf(assignments),
          .logits = std::make_shared<const std::vector<double>>(logits),
          .potentials = std::vector<double>(4, 0.0),
          .starts = {0, 2, 4}};
}

double value_of(const Variable& x) { return static_cast<double>(x.value()[0]); }

TEST(BalanceLoss, ByHand) {
  // f = (3/4, 1/4), p = (0.65, 0.35)
  const Routing routing = loss_routing({0.9, 0.1, 0.8, 0.2, 0.6, 0.4, 0.3, 0.7});
  const Variable loss = balance_loss(routing);
  EXPECT_NEAR(value_of(loss), 2 * (0.75 * 0.65 + 0.25 * 0.35), 1e-6);
  backward(loss);
  for (Index i = 0; i < 8; ++i)
    EXPECT_NEAR(routing.assignments.grad()[i], 2 * (i % 2 == 0 ? 0.75 : 0.25) / 4, 1e-6);
}

TEST(EntropyLoss, ByHand) {
  const auto h = [](double p) { return -p * std::log(p) - (1 - p) * std::log(1 - p); };
  const Variable g = loss_routing({0.9, 0.1, 0.8, 0.2, 0.6, 0.4, 0.3, 0.7}).assignments;
  EXPECT_NEAR(value_of(entropy_loss(g, EntropyOf::mean)), std::log(2) - h(0.65), 1e-6);
  EXPECT_NEAR(value_of(entropy_loss(g, EntropyOf::token)),
              std::log(2) - (h(0.9) + h(0.8) + h(0.6) + h(0.3)) / 4, 1e-6);
}

TEST(EntropyLoss, SureAssignmentsInBalance) {
  const Variable g = loss_routing({1, 0, 0, 1, 1, 0, 0, 1}).assignments;
  EXPECT_NEAR(value_of(entropy_loss(g, EntropyOf::mean)), 0, 1e-6);
  const Variable token = entropy_loss(g, EntropyOf::token);
  EXPECT_NEAR(value_of(token), std::log(2), 1e-6);
  backward(token);
  for (const Real d : g.grad().span()) EXPECT_TRUE(std::isfinite(d));
}

TEST(AuxiliaryLoss, Gradients) {
  for (const Balance balance : {Balance::none, Balance::sequence})
    for (const EntropyOf of : {EntropyOf::mean, EntropyOf::token}) {
      FocusConfig config = routing_config(3, 1.3);
      config.ablations.balance_loss = 0.7;
      config.ablations.entropy_loss = 1.1;
      config.ablations.entropy_of = of;
      const FocusLayer fixed = routing_layer(config, 6);
      expect_gradients(
          [&](const Variables& v) {
            return auxiliary_loss(route(v[0], {v[1], v[2], fixed.potentials}, config, balance),
                                  config.ablations);
          },
          {randn({2, 7, 6}, 1), fixed.projection.value(), fixed.centroids.value()});
    }
}

TEST(AuxiliaryLoss, SumsTheTermsByTheirWeights) {
  FocusConfig config = routing_config(3, 1);
  const Routing routing =
      route(randn({2, 7, 6}, 1), routing_layer(config, 6), config, Balance::none);
  EXPECT_FALSE(auxiliary_loss(routing, config.ablations).defined());
  config.ablations.balance_loss = 0.25;
  EXPECT_NEAR(value_of(auxiliary_loss(routing, config.ablations)),
              0.25 * value_of(balance_loss(routing)), 1e-6);
  config.ablations.entropy_loss = 3;
  EXPECT_NEAR(value_of(auxiliary_loss(routing, config.ablations)),
              0.25 * value_of(balance_loss(routing)) +
                  3 * value_of(entropy_loss(routing.assignments, EntropyOf::mean)),
              1e-6);
}

/// Gradient descent on one term alone, from a layer that gives nearly all tokens to one group.
TEST(AuxiliaryLoss, DescentBalancesACollapsedLayer) {
  for (const bool entropy : {false, true}) {
    FocusConfig config = routing_config(3, 1);
    (entropy ? config.ablations.entropy_loss : config.ablations.balance_loss) = 1;
    FocusLayer layer = routing_layer(config, 6);
    Tensor h = randn({1, 300, 6}, 1);
    // All tokens lie on one side of the routing space, and so does one centroid.
    for (Index i = 0; i < 300; ++i) h.data()[6 * i] += 1;
    layer.projection.mutable_value().data()[0] += 2;
    for (Real& c : layer.centroids.mutable_value().span()) c *= Real(0.2);
    layer.centroids.mutable_value().data()[0] += Real(1.5);
    const auto mass = [&] {
      const Tensor g = route(h, layer, config, Balance::none).assignments.value();
      std::vector<double> sums(3, 0.0);
      for (Index i = 0; i < g.size(); ++i) sums[i % 3] += static_cast<double>(g[i]) / 300;
      return *std::ranges::max_element(sums);
    };
    const double before = mass();
    for (int step = 0; step < 200; ++step) {
      layer.centroids = leaf(layer.centroids.value());
      backward(auxiliary_loss(route(h, layer, config, Balance::none), config.ablations));
      Tensor moved = layer.centroids.value().clone();
      for (Index i = 0; i < moved.size(); ++i)
        moved.data()[i] -= Real(0.3) * layer.centroids.grad()[i];
      layer.centroids = Variable(moved);
    }
    EXPECT_GT(before, 0.5);
    EXPECT_LT(mass(), 0.42) << (entropy ? "entropy" : "balance");
  }
}

}  // namespace
}  // namespace focus
