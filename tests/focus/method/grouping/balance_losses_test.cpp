#include "focus/method/grouping/balance_losses.h"

#include <cmath>

#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

FocusConfig loss_config(double temperature) {
  FocusConfig config;
  config.num_groups = 3;
  config.tokens().routing_dim = 4;
  config.tokens().temperature = temperature;
  return config;
}

FocusLayer loss_layer(const FocusConfig& config) {
  return {randn({6, config.tokens().routing_dim}, 11, 0.5),
          randn({config.num_groups, config.tokens().routing_dim}, 12),
          randn({config.num_groups}, 13)};
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

TEST(BalanceLoss, FromOneAtBalanceToKAtCollapse) {
  EXPECT_NEAR(value_of(balance_loss(loss_routing({1, 0, 0, 1, 1, 0, 0, 1}))), 1, 1e-6);
  EXPECT_NEAR(value_of(balance_loss(loss_routing({1, 0, 1, 0, 1, 0, 1, 0}))), 2, 1e-6);
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
      FocusConfig config = loss_config(1.3);
      config.ablations.balance_loss = 0.7;
      config.ablations.entropy_loss = 1.1;
      config.ablations.entropy_of = of;
      const FocusLayer fixed = loss_layer(config);
      expect_gradients(
          [&](const Variables& v) {
            return auxiliary_loss(route(v[0], {v[1], v[2], fixed.potentials}, config, balance),
                                  config.ablations);
          },
          {randn({2, 7, 6}, 1), fixed.projection.value(), fixed.centroids.value()});
    }
}

TEST(AuxiliaryLoss, SumsTheTermsByTheirWeights) {
  FocusConfig config = loss_config(1);
  const Routing routing = route(randn({2, 7, 6}, 1), loss_layer(config), config, Balance::none);
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
    FocusConfig config = loss_config(1);
    (entropy ? config.ablations.entropy_loss : config.ablations.balance_loss) = 1;
    FocusLayer layer = loss_layer(config);
    Tensor h = randn({1, 300, 6}, 1);
    // All tokens lie on one side of the routing space, and so does one centroid.
    for (Index i = 0; i < 300; ++i) h.data()[6 * i] += 1;
    layer.projection.mutable_value().data()[0] += 2;
    for (Real& c : layer.centroids.mutable_value().span()) c *= Real(0.2);
    layer.centroids.mutable_value().data()[0] += Real(1.5);
    const auto mass = [&] {
      const Tensor g = route(h, layer, config, Balance::none).assignments.value();
      std::vector<double> sums(3, 0.0);
      for (Index i = 0; i < g.size(); ++i)
        sums[static_cast<std::size_t>(i % 3)] += static_cast<double>(g[i]) / 300;
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
