#include "focus/method/grouping/routing.h"

#include <bit>
#include <cmath>

#include "focus/method/grouping/group_statistics.h"
#include "focus/method/grouping/sinkhorn.h"
#include "tests/support/gradcheck.h"
#include "tests/support/grouping_layers.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

constexpr Balance kBalances[] = {Balance::sequence, Balance::carried, Balance::none};
std::string name_of(Balance balance) { return value_text(balance); }

/// The logits of token i, by the definition.
std::vector<double> naive_logits(const Tensor& h, const FocusLayer& layer, double temperature,
                                 Index i) {
  const Tensor &w = layer.projection.value(), &c = layer.centroids.value();
  std::vector<double> logits;
  for (Index k = 0; k < c.dim(0); ++k) {
    double sum = 0;
    for (Index r = 0; r < c.dim(1); ++r)
      for (Index d = 0; d < w.dim(0); ++d)
        sum += static_cast<double>(h[i * w.dim(0) + d]) * w[d * w.dim(1) + r] * c[k * c.dim(1) + r];
    logits.push_back(sum / temperature);
  }
  return logits;
}

TEST(Route, AgreesWithTheDefinition) {
  const FocusConfig config = routing_config(3, 0.1);
  const FocusLayer layer = routing_layer(config, 6);
  const Index batch = 2, seq_len = 130;
  const Tensor h = randn({batch, seq_len, 6}, 1);
  for (const Balance balance : kBalances) {
    SCOPED_TRACE(name_of(balance));
    const Routing routing = route(h, layer, config, balance);
    ASSERT_EQ(routing.assignments.shape(), (Shape{batch, seq_len, 3}));
    ASSERT_EQ(routing.potentials.size(), 6u);
    std::vector<double> logits;
    for (Index i = 0; i < batch * seq_len; ++i)
      for (const double logit : naive_logits(h, layer, 0.1, i)) logits.push_back(logit);
    for (Index s = 0; s < batch; ++s) {
      std::vector<double> b(3, 0.0);
      if (balance == Balance::carried) {
        b.assign(layer.potentials.data(), layer.potentials.data() + 3);
      } else if (balance == Balance::sequence) {
        const auto trace = sinkhorn(logits.data() + s * seq_len * 3, seq_len, 3, 10);
        b.assign(trace.potentials(), trace.potentials() + 3);
      }
      for (Index i = s * seq_len; i < (s + 1) * seq_len; ++i) {
        double sum = 0;
        for (Index k = 0; k < 3; ++k) sum += std::exp(logits[i * 3 + k] + b[k]);
        for (Index k = 0; k < 3; ++k) {
          const auto n = static_cast<std::size_t>(i * 3 + k);
          EXPECT_NEAR((*routing.logits)[n], logits[n], 1e-10);
          EXPECT_NEAR(routing.assignments.value()[i * 3 + k], std::exp(logits[n] + b[k]) / sum,
                      tolerance(1e-6, 1e-11));
        }
      }
    }
  }
}

TEST(Route, Gradients) {
  const FocusConfig config = routing_config(3, 1.3);
  const FocusLayer fixed = routing_layer(config, 6);
  for (const Balance balance : kBalances)
    for (const Index seq_len : {1, 7}) {
      SCOPED_TRACE(name_of(balance));
      expect_gradients(
          [&](const Variables& v) {
            return route(v[0], {v[1], v[2], fixed.potentials}, config, balance).assignments;
          },
          {randn({2, seq_len, 6}, 1), fixed.projection.value(), fixed.centroids.value()});
    }
}

TEST(Route, FrozenInputsReceiveNothing) {
  const FocusConfig config = routing_config(3, 1);
  FocusLayer layer = routing_layer(config, 6);
  EXPECT_FALSE(
      route(randn({1, 5, 6}, 1), layer, config, Balance::sequence).assignments.requires_grad());
  layer.centroids.set_requires_grad(true);
  backward(multiply(route(randn({1, 5, 6}, 1), layer, config, Balance::sequence).assignments,
                    Variable(randn({1, 5, 3}, 2))));
  EXPECT_TRUE(layer.centroids.grad().defined());
}

TEST(Route, StopGradientReachesTheAdapterAlone) {
  FocusConfig config = routing_config(3, 1);
  const auto gradients = [&](const Variable& h) {
    FocusLayer layer = routing_layer(config, 6);
    layer.projection.set_requires_grad(true);
    layer.centroids.set_requires_grad(true);
    const Variable g = route(h, layer, config, Balance::sequence).assignments;
    backward(multiply(g, Variable(randn({1, 5, 3}, 2))));
    return std::vector<Tensor>{g.value(), layer.projection.grad(), layer.centroids.grad()};
  };
  const Variable open = leaf(randn({1, 5, 6}, 1)), stopped = leaf(randn({1, 5, 6}, 1));
  const auto before = gradients(open);
  config.ablations.stop_gradient = true;
  const auto after = gradients(stopped);
  expect_same_bits(before, after, "stopped");
  EXPECT_TRUE(open.grad().defined());
  EXPECT_FALSE(stopped.grad().defined());
}

TEST(Route, BitsDoNotDependOnThreads) {
  const FocusConfig config = routing_config(4, 0.1);
  const FocusLayer fixed = routing_layer(config, 70);
  for (const Balance balance : kBalances)
    expect_same_bits_for_any_threads(name_of(balance), [&] {
      return value_and_gradients(
          {randn({2, 300, 70}, 1), fixed.projection.value(), fixed.centroids.value()},
          [&](const Variables& v) {
            return route(v[0], {v[1], v[2], fixed.potentials}, config, balance).assignments;
          });
    });
}

TEST(Route, RejectsAnotherWidth) {
  const FocusConfig config = routing_config(3, 1);
  EXPECT_THROW(route(Tensor::zeros({1, 5, 7}), routing_layer(config, 6), config, Balance::none),
               std::invalid_argument);
  EXPECT_THROW(route(Tensor::zeros({5, 6}), routing_layer(config, 6), config, Balance::none),
               std::invalid_argument);
}

// ---- membership --------------------------------------------------------------------------------

/// Two sequences of two tokens each over four groups; the second has potentials of its own.
Routing routing_of(const std::vector<double>& logits, const std::vector<double>& potentials) {
  return {.assignments = Variable(Tensor::zeros({2, 2, 4})),
          .logits = std::make_shared<const std::vector<double>>(logits),
          .potentials = potentials,
          .starts = {0, 2, 4}};
}

TEST(Membership, TakesTheHighestAndTiesGoToTheLowerGroup) {
  const Routing routing = routing_of({1, 2, 3, 4,  //
                                      5, 5, 5, 5,  //
                                      0, 1, 0, 1,  //
                                      9, 0, 0, -9},
                                     {0, 0, 0, 0, 0, -2, 3, 0});
  using Sets = std::vector<std::uint64_t>;
  EXPECT_EQ(membership(routing, 1), (Sets{0b1000, 0b0001, 0b0100, 0b0001}));
  EXPECT_EQ(membership(routing, 2), (Sets{0b1100, 0b0011, 0b1100, 0b0101}));
  EXPECT_EQ(membership(routing, 3), (Sets{0b1110, 0b0111, 0b1101, 0b0111}));
  EXPECT_EQ(membership(routing, 4), Sets(4, 0b1111));
}

TEST(Membership, DecidesWhereAssignmentsUnderflow) {
  // g of the last three groups is 0 in any floating point; their order is in the logits.
  const Routing routing = routing_of({2000, 1, 3, 2,  //
                                      2000, 3, 2, 1,  //
                                      2000, 1, 2, 3,  //
                                      2000, 1, 1, 1},
                                     std::vector<double>(8, 0.0));
  EXPECT_EQ(membership(routing, 2), (std::vector<std::uint64_t>{0b0101, 0b0011, 0b1001, 0b0011}));
}

TEST(Membership, SetsOfSixtyFourGroups) {
  FocusConfig config = routing_config(64, 1);
  const Routing routing =
      route(randn({1, 20, 6}, 1), routing_layer(config, 6), config, Balance::none);
  for (const int top_k : {1, 5, 64})
    for (const std::uint64_t set : membership(routing, top_k)) EXPECT_EQ(std::popcount(set), top_k);
}

TEST(Membership, RejectsMoreThanThereAre) {
  const Routing routing = routing_of(std::vector<double>(16, 0.0), std::vector<double>(8, 0.0));
  EXPECT_THROW(membership(routing, 0), std::invalid_argument);
  EXPECT_THROW(membership(routing, 5), std::invalid_argument);
}

// ---- carried potentials ------------------------------------------------------------------------

TEST(Potentials, AverageOfCentredSinkhornPotentials) {
  FocusLayer layer = routing_layer(routing_config(2, 1), 6);
  layer.potentials = tensor_of({2}, {0.5, -0.5});
  layer.updates = 1;
  // One round over two tokens: b_k = -log(e^L_0k + e^L_1k).
  absorb_potentials(layer, centred_potentials({1, 2, 3, 4}, 2, 1), 0.25);
  const double b0 = -std::log(std::exp(1) + std::exp(3)), b1 = -std::log(std::exp(2) + std::exp(4));
  EXPECT_NEAR(layer.potentials[0], 0.75 * 0.5 + 0.25 * (b0 - (b0 + b1) / 2), 1e-6);
  EXPECT_NEAR(layer.potentials[1], -layer.potentials[0], 1e-6);
}

/// Lets a batch enter the carried potentials.
void absorb(FocusLayer& layer, const Routing& routing, const FocusConfig& config) {
  const TokenSettings& tokens = config.tokens();
  absorb_potentials(layer,
                    centred_potentials(*routing.logits, config.num_groups, tokens.sinkhorn_iters),
                    tokens.carried_rate);
}

TEST(Potentials, FirstBatchSetsThemAndLaterOnesMoveThem) {
  const FocusConfig config = routing_config(4, 0.1);
  FocusLayer layer = routing_layer(config, 6);
  const Routing first = route(randn({2, 50, 6}, 1), layer, config, Balance::carried);
  absorb(layer, first, config);
  EXPECT_EQ(layer.updates, 1);
  const std::vector<double> set = centred_potentials(*first.logits, 4, 10);
  for (Index k = 0; k < 4; ++k) EXPECT_EQ(layer.potentials[k], static_cast<Real>(set[k]));

  const Routing second = route(randn({2, 50, 6}, 2), layer, config, Balance::carried);
  absorb(layer, second, config);
  EXPECT_EQ(layer.updates, 2);
  const std::vector<double> target = centred_potentials(*second.logits, 4, 10);
  double mean = 0;
  for (Index k = 0; k < 4; ++k) {
    const auto at = static_cast<std::size_t>(k);
    EXPECT_NEAR(layer.potentials[k], 0.9 * set[at] + 0.1 * target[at], 1e-5);
    mean += layer.potentials[k] / 4;
  }
  EXPECT_NEAR(mean, 0, 1e-6);
}

TEST(Potentials, CarriedOnesBalanceNewData) {
  const FocusConfig config = routing_config(4, 0.5);
  Rng rng(3);
  FocusLayer layer = make_focus_layer(config, 6, rng);
  // Tokens around a common direction prefer one group.
  const auto tokens = [](std::uint64_t seed) {
    Tensor h = randn({1, 2000, 6}, seed, 0.7);
    for (Real& x : h.span()) x += 1;
    return h;
  };
  const double before = largest_share(route(tokens(1), layer, config, Balance::carried));
  absorb(layer, route(tokens(1), layer, config, Balance::carried), config);
  const double after = largest_share(route(tokens(2), layer, config, Balance::carried));
  EXPECT_GT(before, 0.6);
  EXPECT_LT(after, 0.5);
}

// ---- config ------------------------------------------------------------------------------------

TEST(FocusConfig, RefusesByName) {
  using Change = void (*)(FocusConfig&);
  const std::vector<std::pair<const char*, Change>> wrong = {
      {"num_groups", [](FocusConfig& c) { c.num_groups = 0; }},
      {"num_groups", [](FocusConfig& c) { c.num_groups = 65; }},
      {"tokens.routing_dim", [](FocusConfig& c) { c.tokens().routing_dim = 0; }},
      {"tokens.temperature", [](FocusConfig& c) { c.tokens().temperature = 0; }},
      {"tokens.temperature", [](FocusConfig& c) { c.tokens().temperature = std::nan(""); }},
      {"tokens.sinkhorn_iters", [](FocusConfig& c) { c.tokens().sinkhorn_iters = 0; }},
      {"local_window", [](FocusConfig& c) { c.local_window = -1; }},
      {"tokens.affinity_floor", [](FocusConfig& c) { c.tokens().affinity_floor = 0; }},
      {"tokens.carried_rate", [](FocusConfig& c) { c.tokens().carried_rate = 1.5; }},
      {"ablations.balance_loss", [](FocusConfig& c) { c.ablations.balance_loss = -1; }},
      {"ablations.entropy_loss", [](FocusConfig& c) { c.ablations.entropy_loss = std::nan(""); }},
      {"ablations.centroid_rate", [](FocusConfig& c) { c.ablations.centroid_rate = 0; }},
      {"ablations.recluster_every", [](FocusConfig& c) { c.ablations.recluster_every = -1; }},
      {"num_groups",
       [](FocusConfig& c) {
         c.num_groups = 1;
         c.ablations.balance_loss = 0.1;
       }},
      {"num_groups",
       [](FocusConfig& c) {
         c.num_groups = 1;
         c.ablations.recluster_every = 5;
       }},
  };
  EXPECT_NO_THROW(FocusConfig{}.validate());
  for (const auto& [key, change] : wrong) {
    FocusConfig config;
    change(config);
    EXPECT_THROW(config.validate(), std::invalid_argument) << key;
    const std::string error = error_of([&] { config.validate(); });
    EXPECT_NE(error.find(std::string("focus.") + key + " "), std::string::npos) << error;
  }
}

TEST(MakeFocusLayer, StatisticsAndShapes) {
  FocusConfig config = routing_config(8, 1);
  config.tokens().routing_dim = 64;
  Rng rng(1);
  const FocusLayer layer = make_focus_layer(config, 100, rng);
  EXPECT_EQ(layer.projection.shape(), (Shape{100, 64}));
  EXPECT_EQ(layer.centroids.shape(), (Shape{8, 64}));
  const auto deviation = [](const Tensor& x) {
    double squares = 0;
    for (const Real value : x.span()) squares += static_cast<double>(value) * value;
    return std::sqrt(squares / static_cast<double>(x.size()));
  };
  EXPECT_NEAR(deviation(layer.projection.value()), 0.1, 0.005);
  EXPECT_NEAR(deviation(layer.centroids.value()), 1, 0.15);
  for (const Real b : layer.potentials.span()) EXPECT_EQ(b, 0);
}

TEST(GroupStatistics, EntropyOfTheSizes) {
  GroupStatistics even{.sizes = {5, 5, 5, 5}, .tokens = 20};
  EXPECT_NEAR(even.size_entropy(), std::log(4.0), 1e-12);
  GroupStatistics one{.sizes = {0, 20}, .tokens = 20};
  EXPECT_EQ(one.size_entropy(), 0);
  EXPECT_EQ(GroupStatistics{}.size_entropy(), 0);
  // Two heads of two groups: one even, one with a quarter and three quarters.
  GroupStatistics heads;
  heads.add_sizes(std::vector<std::uint8_t>{0, 1, 1, 1, 0, 1, 1, 0}, 2, 2);
  EXPECT_EQ(heads.tokens, 4);
  EXPECT_EQ(heads.sizes, (std::vector<std::int64_t>{2, 2, 1, 3}));
  EXPECT_NEAR(heads.size_entropy(),
              (std::log(2.0) + 0.25 * std::log(4.0) + 0.75 * std::log(4.0 / 3)) / 2, 1e-12);
  EXPECT_EQ(heads.weighed, 0);  // there are no assignments of group_ids
}

}  // namespace
}  // namespace focus
