#include "focus/mechanism.h"

#include <gtest/gtest.h>

#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/support/tiny_model.h"

namespace focus {
namespace {

constexpr Index kTokens = 60;

Tensor hidden(const Decoder& decoder) {
  const NoGrad guard;
  return decoder.hidden_states(random_ids(2 * kTokens, 37, 4), 2).value();
}

/// Settings under which each mechanism that can be exact is.
std::vector<RivalConfig> exact_rivals() {
  return {WindowConfig{.local_window = kTokens - 1},
          RoutingTransformerConfig{.num_clusters = 1, .shared_qk = false},
          SparqConfig{.tokens = kTokens, .rank = 100}, MagicPigConfig{.bits = 0}};
}
std::vector<RivalConfig> all_rivals() {
  return {WindowConfig{.local_window = 7}, PerformerConfig{.num_features = 16},
          RoutingTransformerConfig{.num_clusters = 4, .local_window = 4, .shared_qk = false},
          SparqConfig{.tokens = 6, .rank = 2},
          MagicPigConfig{.bits = 6, .tables = 4, .sinks = 1, .local_window = 1}};
}

TEST(RivalModel, ExactSettingsAreDenseOnEveryFamily) {
  for (const std::string& family : family_names()) {
    Decoder decoder = tiny_decoder(family);
    const Tensor dense = hidden(decoder);
    for (const RivalConfig& config : exact_rivals()) {
      RivalModel rival(config, decoder.config());
      rival.gather_statistics = true;
      rival.compose(decoder);
      EXPECT_LE(relative_difference(hidden(decoder), dense), tolerance(1e-4, 1e-10))
          << rival.name() << " on " << family;
      EXPECT_EQ(rival.pairs.attended, rival.pairs.all) << rival.name() << " on " << family;
    }
  }
}

TEST(RivalModel, AttendsFewerPairsOnEveryFamily) {
  for (const std::string& family : family_names())
    for (const RivalConfig& config : all_rivals()) {
      Decoder decoder = tiny_decoder(family);
      const ModelConfig& shape = decoder.config();
      const bool performer = std::holds_alternative<PerformerConfig>(config);
      if (performer && (shape.attn_logit_softcapping > 0 || shape.widest_window() > 0)) {
        EXPECT_THROW(RivalModel(config, shape), std::invalid_argument) << family;
        continue;
      }
      RivalModel rival(config, shape);
      EXPECT_TRUE(rival.causal());
      rival.gather_statistics = true;
      rival.compose(decoder);
      for (const Real x : hidden(decoder).span()) ASSERT_TRUE(std::isfinite(x)) << rival.name();
      EXPECT_GT(rival.pairs.attended, 0);
      if (performer)
        EXPECT_EQ(rival.pairs.attended, rival.pairs.all);
      else
        EXPECT_LT(rival.pairs.attended, rival.pairs.all) << rival.name() << " on " << family;
    }
}

TEST(RivalModel, RefusesSharedKeysOfGroupedQueries) {
  const Decoder llama = tiny_decoder("llama");
  EXPECT_THROW(RivalModel(RoutingTransformerConfig{}, llama.config()), std::invalid_argument);
  EXPECT_NO_THROW(RivalModel(RoutingTransformerConfig{}, tiny_decoder("gpt2").config()));
}

TEST(RivalModel, OnlyBalancedRoutingIsNotCausal) {
  const ModelConfig shape = tiny_config("gpt2");
  const RivalModel balanced(RoutingTransformerConfig{.choice = ClusterChoice::balanced}, shape);
  EXPECT_FALSE(balanced.causal());
  EXPECT_EQ(balanced.name(), "routing 8 shared balanced");
}

TEST(RivalModel, TrainsThroughEveryMechanismThatHasAGradient) {
  for (const RivalConfig& config : std::vector<RivalConfig>{
           WindowConfig{.local_window = 7}, PerformerConfig{.num_features = 16},
           RoutingTransformerConfig{.num_clusters = 4, .local_window = 4},
           RoutingTransformerConfig{
               .num_clusters = 4, .choice = ClusterChoice::balanced, .local_window = 4}}) {
    Decoder decoder = tiny_decoder("gpt2");
    set_requires_grad(decoder, true);
    RivalModel rival(config, decoder.config());
    rival.compose(decoder);
    const auto ids = random_ids(2 * kTokens, 37, 4);
    const auto loss = [&] { return decoder.loss(ids, 2); };
    const double before = static_cast<double>(loss().value()[0]);
    for (int step = 0; step < 5; ++step) {
      backward(loss());
      rival.update();
      for_each_parameter(decoder, [](const std::string&, Variable& p) {
        if (!p.grad().defined()) return;  // shared keys leave k_proj without one
        for (Index i = 0; i < p.value().size(); ++i)
          p.mutable_value().data()[i] -= Real(0.1) * p.grad()[i];
        p.zero_grad();
      });
    }
    EXPECT_LT(static_cast<double>(loss().value()[0]), before - 0.05) << rival.name();
  }
}

TEST(RivalModel, CentroidsFollowTrainingAlone) {
  Decoder decoder = tiny_decoder("gpt2");
  set_requires_grad(decoder, true);
  RivalModel rival(RoutingTransformerConfig{.num_clusters = 4}, decoder.config());
  rival.compose(decoder);
  const Tensor start = rival.layers[0].constants;
  hidden(decoder);  // without a graph
  rival.update();
  EXPECT_TRUE(same_bits(rival.layers[0].constants, start));
  EXPECT_EQ(rival.layers[0].updates, 0);
  decoder.loss(random_ids(2 * kTokens, 37, 4), 2);
  rival.update();
  EXPECT_FALSE(same_bits(rival.layers[0].constants, start));
  EXPECT_EQ(rival.layers[0].updates, 1);
}

}  // namespace
}  // namespace focus
