#include "focus/adapters/mechanism.h"

#include <gtest/gtest.h>

#include "tests/support/baseline_case.h"
#include "tests/support/tiny_model.h"

namespace focus {
namespace {

constexpr Index kTokens = 60;

Tensor hidden(const Decoder& decoder) {
  const NoGrad guard;
  return decoder.hidden_states(random_ids(2 * kTokens, 37, 4), 2).value();
}

struct Choice {
  const char* kind;
  const char* settings;
};

/// Settings under which each mechanism that can be exact is.
std::vector<Choice> exact_selections() {
  return {{"window", "{local_window: 59}"},
          {"routing_transformer", "{num_clusters: 1, shared_qk: false}"},
          {"routing_transformer", "{num_clusters: 1, choice: balanced, shared_qk: false}"},
          {"sparq", "{tokens: 60, rank: 100}"},
          {"sparq", "{tokens: 60, rank: 100, reallocate: false}"},
          {"magicpig", "{bits: 0}"},
          {"sink_window", "{local_window: 3, sinks: 60}"},
          {"sink_window", "{local_window: 59, sinks: 0}"},
          {"quest", "{pages: 60, page_size: 8, local_window: 3}"},
          {"moba", "{blocks: 60, block_size: 8}"},
          {"oracle", "{tokens: 60, local_window: 3}"},
          {"oracle", "{tokens: 60, local_window: 3, heads: shared}"},
          {"random_groups", "{groups: 1}"},
          {"indexer", "{tokens: 60}"}};
}
std::vector<Choice> all_selections() {
  return {{"window", "{local_window: 7}"},
          {"performer", "{num_features: 16}"},
          {"routing_transformer", "{num_clusters: 4, local_window: 4, shared_qk: false}"},
          {"sparq", "{tokens: 6, rank: 2}"},
          {"magicpig", "{bits: 6, tables: 4, sinks: 1, local_window: 1}"},
          {"sink_window", "{local_window: 3, sinks: 1}"},
          {"quest", "{pages: 1, page_size: 2, local_window: 1, sinks: 1}"},
          {"moba", "{blocks: 1, block_size: 4}"},
          {"oracle", "{tokens: 2, local_window: 1, sinks: 1}"},
          {"oracle", "{tokens: 2, heads: shared, local_window: 1, sinks: 1}"},
          {"random_groups", "{groups: 4, local_window: 2, sinks: 1}"}};
}
std::unique_ptr<Mechanism> make(const Choice& selection, const ModelConfig& shape) {
  return make_mechanism(selection.kind, settings_of(selection.kind, selection.settings), shape);
}

TEST(Mechanism, EveryKindOfTheTableRunsByItsDefaultsAndIsTakenOff) {
  for (const AdapterKind& kind : adapter_kinds()) {
    if (!kind.is_attention() || kind.has_parameters()) continue;
    Decoder decoder = tiny_decoder("gpt2");
    const Tensor dense = hidden(decoder);
    {
      const auto mechanism = make_mechanism(kind.name, kind.defaults, decoder.config());
      EXPECT_EQ(mechanism->kind(), kind.name);
      mechanism->start_counting();
      mechanism->attach(decoder);
      const Tensor states = hidden(decoder);
      for (const Real x : states.span()) ASSERT_TRUE(std::isfinite(x)) << kind.name;
      EXPECT_GT(mechanism->counts().pairs.attended, 0) << kind.name;
    }
    EXPECT_TRUE(same_bits(hidden(decoder), dense)) << kind.name;
  }
}

TEST(Mechanism, ExactSettingsAreDenseOnEveryFamily) {
  for (const std::string& family : family_names()) {
    Decoder decoder = tiny_decoder(family);
    const Tensor dense = hidden(decoder);
    for (const Choice& selection : exact_selections()) {
      const auto baseline = make(selection, decoder.config());
      baseline->start_counting();
      baseline->attach(decoder);
      EXPECT_LE(relative_difference(hidden(decoder), dense), tolerance(1e-4, 1e-10))
          << baseline->name() << " on " << family;
      EXPECT_EQ(baseline->counts().pairs.attended, baseline->counts().pairs.all)
          << baseline->name() << " on " << family;
    }
  }
}

TEST(Mechanism, AttendsFewerPairsOnEveryFamily) {
  for (const std::string& family : family_names())
    for (const Choice& selection : all_selections()) {
      Decoder decoder = tiny_decoder(family);
      const ModelConfig& shape = decoder.config();
      const bool performer = selection.kind == std::string("performer");
      if (performer && (shape.attn_logit_softcapping > 0 || shape.widest_window() > 0)) {
        EXPECT_THROW(make(selection, shape), std::invalid_argument) << family;
        continue;
      }
      const auto baseline = make(selection, shape);
      EXPECT_TRUE(baseline->causal());
      baseline->start_counting();
      baseline->attach(decoder);
      const Tensor states = hidden(decoder);
      for (const Real x : states.span()) ASSERT_TRUE(std::isfinite(x)) << baseline->name();
      const PairCounts pairs = baseline->counts().pairs;
      EXPECT_GT(pairs.attended, 0);
      if (performer)
        EXPECT_EQ(baseline->counts().pairs.attended, baseline->counts().pairs.all);
      else
        EXPECT_LT(pairs.attended, pairs.all) << baseline->name() << " on " << family;
    }
}

// Two sequences of 60 tokens on 3 layers; 4 heads of d = 6 share 2 key heads. A pair is 2 d
// multiply-adds of each of the 4 heads: 48.
TEST(Mechanism, SaysWhatChoosingCosts) {
  Decoder decoder = tiny_decoder("llama");
  const ModelConfig& shape = decoder.config();
  ASSERT_EQ(shape.num_attention_heads * 2 * shape.head_dim, 48);
  ASSERT_EQ(shape.num_key_value_heads, 2);
  const auto selection_cost = [&](const char* kind, const char* settings) {
    const auto baseline = make({kind, settings}, shape);
    baseline->start_counting();
    baseline->attach(decoder);
    hidden(decoder);
    return static_cast<double>(baseline->counts().pairs.selection_cost) /
           (3 * 2);  // layers, sequences
  };
  constexpr double kAll = kTokens * (kTokens + 1) / 2.0;
  double pages = 0, blocks = 0;
  for (Index i = 0; i < kTokens; ++i) {
    pages += static_cast<double>(std::max<Index>(0, i - 3) / 4);  // before that which i - 3 is in
    blocks += static_cast<double>(i / 8);
  }
  EXPECT_EQ(selection_cost("quest", "{pages: 2, page_size: 4, local_window: 3, sinks: 0}"),
            pages * 2 * 2 * 6 / 48);
  EXPECT_EQ(selection_cost("moba", "{blocks: 1, block_size: 8}"), blocks * 4 * 6 / 48);
  EXPECT_EQ(selection_cost("sparq", "{tokens: 6, rank: 2}"), kAll * 4 * 2 / 48);
  EXPECT_EQ(selection_cost("sparq", "{tokens: 6, rank: 99}"), kAll * 4 * 6 / 48);
  EXPECT_EQ(selection_cost("magicpig", "{bits: 6, tables: 4}"),
            kTokens * (4 + 2) * 6 * 4 * 6 / 48.0);
  const double read = 1 + 2 + (kTokens - 2) * 3;
  EXPECT_EQ(selection_cost("oracle", "{tokens: 1, local_window: 1, sinks: 0}"),
            (kAll - read) * 4 * 6 / 48);
  double distant = 0;
  for (Index i = 0; i < kTokens; ++i) distant += static_cast<double>(std::max<Index>(0, i - 3));
  const double projections = static_cast<double>(kTokens * shape.hidden_size * (2 * 16 + 16 + 2));
  // The same where every distant key is among the selected: it is scored all the same.
  for (const char* settings : {"{tokens: 4, heads: 2, local_window: 3, sinks: 0}",
                               "{tokens: 99, heads: 2, local_window: 3, sinks: 0}"})
    EXPECT_EQ(selection_cost("indexer", settings), (projections + distant * 2 * 17) / 48);
  EXPECT_EQ(selection_cost("routing_transformer", "{num_clusters: 5, shared_qk: false}"),
            kTokens * 2 * 5 * 6 / 48.0);
  for (const char* kind : {"window", "sink_window", "random_groups"})
    EXPECT_EQ(selection_cost(kind, "{}"), 0) << kind;
}

TEST(Mechanism, RefusesSharedKeysOfGroupedQueries) {
  const Decoder llama = tiny_decoder("llama");
  EXPECT_THROW(make({"routing_transformer", "{}"}, llama.config()), std::invalid_argument);
  EXPECT_NO_THROW(make({"routing_transformer", "{}"}, tiny_decoder("gpt2").config()));
}

TEST(Mechanism, OnlyBalancedRoutingIsNotCausal) {
  const ModelConfig shape = tiny_config("gpt2");
  const auto balanced = make({"routing_transformer", "{choice: balanced}"}, shape);
  EXPECT_FALSE(balanced->causal());
  EXPECT_EQ(balanced->name(), "routing 8 shared balanced");
}

TEST(Mechanism, TrainsThroughEveryMechanismThatHasAGradient) {
  for (const Choice& selection : std::vector<Choice>{
           {"window", "{local_window: 7}"},
           {"sink_window", "{local_window: 5, sinks: 2}"},
           {"random_groups", "{groups: 3, local_window: 4}"},
           {"performer", "{num_features: 16}"},
           {"routing_transformer", "{num_clusters: 4, local_window: 4}"},
           {"routing_transformer", "{ num_clusters: 4, choice: balanced, local_window: 4}"}}) {
    Decoder decoder = tiny_decoder("gpt2");
    set_requires_grad(decoder, true);
    const auto baseline = make(selection, decoder.config());
    baseline->attach(decoder);
    const auto ids = random_ids(2 * kTokens, 37, 4);
    const auto loss = [&] { return decoder.loss(ids, 2); };
    const double before = static_cast<double>(loss().value()[0]);
    for (int step = 0; step < 5; ++step) {
      backward(loss());
      baseline->after_forward();
      for_each_parameter(decoder, [](const std::string&, Variable& p) {
        if (!p.grad().defined()) return;  // shared keys leave k_proj without one
        for (Index i = 0; i < p.value().size(); ++i)
          p.mutable_value().data()[i] -= Real(0.1) * p.grad()[i];
        p.zero_grad();
      });
    }
    EXPECT_LT(static_cast<double>(loss().value()[0]), before - 0.05) << baseline->name();
  }
}

TEST(Mechanism, CentroidsFollowTrainingAlone) {
  Decoder decoder = tiny_decoder("gpt2");
  set_requires_grad(decoder, true);
  const auto baseline = make({"routing_transformer", "{num_clusters: 4}"}, decoder.config());
  baseline->attach(decoder);
  const Tensor start = baseline->layers[0].constants;
  hidden(decoder);  // without a graph
  baseline->after_forward();
  EXPECT_TRUE(same_bits(baseline->layers[0].constants, start));
  EXPECT_EQ(baseline->layers[0].updates, 0);
  decoder.loss(random_ids(2 * kTokens, 37, 4), 2);
  baseline->after_forward();
  EXPECT_FALSE(same_bits(baseline->layers[0].constants, start));
  EXPECT_EQ(baseline->layers[0].updates, 1);
}

}  // namespace
}  // namespace focus
