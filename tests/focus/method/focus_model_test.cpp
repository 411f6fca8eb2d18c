#include "focus/method/focus_model.h"

#include <cmath>

#include "optim/training_step.h"
#include "tests/support/compare.h"
#include "tests/support/grouping_layers.h"
#include "tests/support/tiny_focus.h"

namespace focus {
namespace {

using Kind = AttentionKind;

TEST(FocusModel, ParametersOfGpt2Small) {
  Rng rng(1);
  FocusConfig config;
  config.num_groups = 4;
  config.tokens().routing_dim = 16;
  FocusModel focus(config, 768, 12, rng);
  EXPECT_EQ(count_parameters(focus), 148224);
  EXPECT_EQ(token_layers(focus).size(), 12u);
}

TEST(FocusModel, RejectsAnotherNumberOfLayersAndABadConfig) {
  Rng rng(1);
  Decoder decoder = tiny_decoder("gpt2");
  FocusModel focus(tiny_focus(), 24, 2, rng);
  EXPECT_THROW(focus.attach(decoder), std::invalid_argument);
  FocusConfig bad;
  bad.tokens().temperature = -1;
  EXPECT_THROW(FocusModel(bad, 24, 3, rng), std::invalid_argument);
}

TEST(FocusModel, StartsInTheModeOfItsConfig) {
  Rng rng(1);
  FocusConfig config = tiny_focus(Balance::sequence);
  config.tokens().hard_gate = HardGate::keep;
  FocusModel focus(config, 24, 3, rng);
  EXPECT_EQ(focus.mode.kind, Kind::soft);
  EXPECT_EQ(focus.mode.balance, Balance::sequence);
  focus.mode.kind = Kind::hard;
  EXPECT_EQ(focus.runnable_mode(focus.mode).gate, HardGate::keep);
}

TEST(FocusModel, DenseModeIsNoMechanismBitForBit) {
  for (const std::string& type : family_names()) {
    TinyFocus model(type);
    const auto ids = random_ids(80, 37, 1);
    model.focus->mode.kind = Kind::dense;
    const Tensor dense = model.logits(ids, 2);
    model.focus->mode.kind = Kind::soft;
    const Tensor soft = model.logits(ids, 2);
    for (Block& block : model.decoder.layers()) block.self_attn.mechanism = {};
    EXPECT_TRUE(same_bits(dense, model.logits(ids, 2)));
    EXPECT_FALSE(same_bits(dense, soft));
  }
}

TEST(FocusModel, HardWithAllGroupsIsDense) {
  TinyFocus model("llama");
  const auto ids = random_ids(80, 37, 1);
  model.focus->mode = {.kind = Kind::hard, .top_k = 4, .gate = HardGate::drop};
  const Tensor hard = model.logits(ids);
  model.focus->mode.kind = Kind::dense;
  EXPECT_LE(relative_difference(hard, model.logits(ids)), tolerance(2e-5, 1e-12));
  model.focus->mode = {.kind = Kind::hard, .top_k = 5, .gate = HardGate::drop};
  EXPECT_THROW(model.logits(ids), std::invalid_argument);
}

TEST(FocusModel, OnlySequenceLeaksLaterTokens) {
  for (const std::string& type : family_names())
    for (const Balance balance : {Balance::carried, Balance::none, Balance::sequence}) {
      TinyFocus model(type, tiny_focus(balance));
      for (const AttentionSpec& mode :
           {AttentionSpec{.kind = Kind::soft},
            AttentionSpec{.kind = Kind::hard, .top_k = 1, .gate = HardGate::drop},
            AttentionSpec{.kind = Kind::hard, .top_k = 2, .gate = HardGate::keep}}) {
        model.focus->mode = mode;
        model.focus->mode.balance = balance;
        auto ids = random_ids(100, 37, 1);
        const std::size_t changed = 80;
        const Tensor before = model.logits(ids);
        for (std::size_t t = changed; t < ids.size(); ++t) ids[t] = (ids[t] + 5) % 37;
        const Tensor after = model.logits(ids);
        bool leaked = false;
        for (Index i = 0; i < static_cast<Index>(changed) * 37; ++i)
          leaked = leaked || after[i] != before[i];
        EXPECT_EQ(leaked, balance == Balance::sequence)
            << type << ", " << mode.name() << ", balance " << value_text(balance);
      }
    }
}

TEST(FocusModel, CarriedPotentialsEnterOnceAndNotByAForwardPass) {
  Rng rng(3);
  Decoder decoder = tiny_decoder("llama");
  FocusModel focus(tiny_focus(), 24, 3, rng);
  focus.attach(decoder);
  decoder.hidden_states(random_ids(60, 37, 1), 2);
  EXPECT_TRUE(same_bits(token_layers(focus)[1].potentials, Tensor::zeros({4})));
  for (const std::int64_t batches : {1, 2}) {
    carry_potentials(focus);
    EXPECT_EQ(token_layers(focus)[2].updates, batches);
  }
  EXPECT_FALSE(same_bits(token_layers(focus)[1].potentials, Tensor::zeros({4})));
}

TEST(FocusModel, StatisticsAddUp) {
  TinyFocus model("llama");
  const Index batch = 2, seq_len = 40;
  const auto ids = random_ids(80, 37, 1);
  model.logits(ids, batch);
  EXPECT_TRUE(model.focus->counts().layers.empty());  // not gathered unless asked

  model.focus->start_counting();
  model.focus->mode = {.kind = Kind::hard, .top_k = 1, .gate = HardGate::drop};
  model.logits(ids, batch);
  const std::vector<GroupStatistics> once = model.focus->counts().layers;
  ASSERT_EQ(once.size(), 3u);
  for (const GroupStatistics& s : once) {
    std::int64_t members = 0;
    for (const std::int64_t size : s.sizes) members += size;
    EXPECT_EQ(members, batch * seq_len);
    EXPECT_EQ(s.tokens, batch * seq_len);
    EXPECT_EQ(s.pairs.all, batch * seq_len * (seq_len + 1) / 2);
    EXPECT_EQ(s.pairs.distant, batch * (seq_len - 5) * (seq_len - 4) / 2);
    EXPECT_GE(s.pairs.attended, s.pairs.all - s.pairs.distant);
    EXPECT_LT(s.pairs.attended, s.pairs.all);
    EXPECT_GT(s.entropy, 0);
    EXPECT_LE(s.entropy, static_cast<double>(s.tokens) * std::log(4.0));
    EXPECT_GE(s.confidence, static_cast<double>(s.tokens) / 4);
    EXPECT_LE(s.confidence, static_cast<double>(s.tokens) * 1.000001);
    GroupStatistics last;
    last.add(token_grouping_of(*model.focus).last_routings()[&s - once.data()]);
    EXPECT_EQ(last.sizes, s.sizes);
    EXPECT_EQ(last.dominance(), s.dominance());
    EXPECT_GE(s.dominance(), 0.25);
    EXPECT_LE(s.dominance(), 1);
  }
  model.logits(ids, batch);
  const GroupStatistics twice = model.focus->counts().layers[1];
  EXPECT_EQ(twice.tokens, 2 * once[1].tokens);
  EXPECT_EQ(twice.sizes[2], 2 * once[1].sizes[2]);
  EXPECT_EQ(twice.pairs.attended, 2 * once[1].pairs.attended);
  EXPECT_NEAR(twice.entropy, 2 * once[1].entropy, 1e-9);

  model.focus->start_counting();
  EXPECT_EQ(model.focus->counts().layers[1].tokens, 0);
  EXPECT_EQ(model.focus->counts().layers[1].dominance(), 0);
  model.focus->mode.kind = Kind::soft;
  model.logits(ids, batch);
  const PairCounts pairs = model.focus->counts().layers[1].pairs;
  EXPECT_EQ(pairs.attended, pairs.all);
}

TEST(FocusModel, CentroidsThatFollowTheirTokensHaveNoGradient) {
  FocusConfig config = tiny_focus(Balance::none);
  config.ablations.centroid_update = CentroidUpdate::average;
  config.ablations.centroid_rate = 0.5;
  TinyFocus model("llama", config);
  model.focus->set_trainable(true);
  EXPECT_TRUE(token_layers(*model.focus)[1].projection.requires_grad());
  EXPECT_FALSE(token_layers(*model.focus)[1].centroids.requires_grad());
  const Tensor before = token_layers(*model.focus)[1].centroids.value().clone();
  model.logits(random_ids(60, 37, 1));
  EXPECT_TRUE(same_bits(token_layers(*model.focus)[1].centroids.value(), before));
  model.focus->grouping().after_forward();
  EXPECT_FALSE(same_bits(token_layers(*model.focus)[1].centroids.value(), before));
}

TEST(FocusModel, ReclustersWhereItIsDue) {
  FocusConfig config = tiny_focus(Balance::none);
  config.ablations.recluster_every = 3;
  TinyFocus model("llama", config);
  const Tensor before = token_layers(*model.focus)[2].centroids.value().clone();
  for (const std::int64_t steps : {1, 2, 4}) model.focus->end_step(steps);
  EXPECT_TRUE(same_bits(token_layers(*model.focus)[2].centroids.value(), before));
  model.focus->end_step(6);
  EXPECT_FALSE(same_bits(token_layers(*model.focus)[2].centroids.value(), before));
}

TEST(FocusModel, AuxiliaryLossIsTheLayersSumOnceAndOnlyWithAGraph) {
  FocusConfig config = tiny_focus(Balance::none);
  config.ablations.balance_loss = 0.5;
  TinyFocus model("llama", config);
  const auto ids = random_ids(60, 37, 1);
  model.logits(ids);
  EXPECT_FALSE(model.focus->take_auxiliary_loss().defined());
  model.focus->set_trainable(true);
  model.decoder.hidden_states(ids, 1);
  const Variable terms = model.focus->take_auxiliary_loss();
  ASSERT_TRUE(terms.defined());
  EXPECT_FALSE(model.focus->take_auxiliary_loss().defined());
  double sum = 0;
  for (const Routing& routing : token_grouping_of(*model.focus).last_routings())
    sum += 0.5 * static_cast<double>(balance_loss(routing).value()[0]);
  EXPECT_NEAR(terms.value()[0], sum, 1e-5);
  backward(terms);
  for (const FocusLayer& layer : token_layers(*model.focus))
    EXPECT_TRUE(layer.centroids.grad().defined());
}

TEST(FocusModel, RetrofitReachesEveryAdapterAndNoFrozenWeight) {
  for (const Balance balance : {Balance::carried, Balance::sequence}) {
    TinyFocus model("gpt2", tiny_focus(balance));
    model.focus->set_trainable(true);
    backward(model.decoder.loss(random_ids(60, 37, 1), 1));
    model.focus->visit_parameters([](const std::string& name, Variable& p) {
      ASSERT_TRUE(p.grad().defined()) << name;
      double size = 0;
      for (const Real g : p.grad().span()) size += std::abs(g);
      EXPECT_GT(size, 0) << name;
      EXPECT_TRUE(std::isfinite(size)) << name;
    });
    for_each_parameter(model.decoder, [](const std::string& name, Variable& p) {
      EXPECT_FALSE(p.requires_grad()) << name;
    });
  }
}

TEST(FocusModel, TrainingStepsGiveTheSameBitsForAnyThreads) {
  struct Setting {
    Balance balance;
    AttentionSpec mode;
    bool full;           // all parameters, or the adapter alone
    bool cures = false;  // every option against dominance
  };
  const std::vector<Setting> settings = {
      {Balance::carried, {.kind = Kind::soft}, true},
      {Balance::sequence, {.kind = Kind::soft}, false},
      {Balance::carried, {.kind = Kind::hard, .top_k = 2, .gate = HardGate::keep}, false},
      {Balance::none, {.kind = Kind::soft}, true, true},
  };
  for (const std::string& type : family_names())
    for (const Setting& setting : settings)
      expect_same_bits_for_any_threads(fmt::format("{} {}", type, setting.mode.name()), [&] {
        FocusConfig focus_config = tiny_focus(setting.balance);
        if (setting.cures) {
          focus_config.ablations.balance_loss = 0.1;
          focus_config.ablations.entropy_loss = 0.1;
          focus_config.ablations.stop_gradient = true;
          focus_config.ablations.centroid_update = CentroidUpdate::average;
          focus_config.ablations.recluster_every = 2;
        }
        TinyFocus model(type, focus_config);
        model.focus->mode = setting.mode;
        model.focus->mode.balance = setting.balance;
        std::vector<Tensor> frozen;
        for_each_parameter(model.decoder, [&](const std::string&, Variable& p) {
          frozen.push_back(p.value().clone());
        });
        model.focus->set_trainable(true);
        if (setting.full) set_requires_grad(model.decoder, true);
        NamedParameters parameters;
        const auto collect = [&](const std::string& name, Variable& p) {
          if (p.requires_grad()) parameters.push_back({name, p});
        };
        model.focus->visit_parameters(collect);
        for_each_parameter(model.decoder, collect);
        const OptimConfig config{.lr = 0.01, .warmup_steps = 0};
        AdamW adamw(parameters, config);
        for (std::int64_t step = 0; step < 2; ++step) {
          const auto ids = random_ids(2 * 90, 37, 10 + static_cast<std::uint64_t>(step));
          training_step(adamw, {config, 0, 2}, step, 1, [&](int) {
            const Variable loss = model.decoder.loss(ids, 2);
            const Variable terms = model.focus->take_auxiliary_loss();
            EXPECT_EQ(terms.defined(), setting.cures);
            return terms.defined() ? add(loss, terms) : loss;
          });
          carry_potentials(*model.focus);
          model.focus->grouping().after_forward();
          model.focus->end_step(step + 1);
        }
        std::vector<Tensor> results;
        for (const NamedParameter& p : adamw.parameters()) results.push_back(p.variable.value());
        for (const FocusLayer& layer : token_layers(*model.focus)) {
          results.push_back(layer.potentials);
          results.push_back(layer.centroids.value());
        }
        if (!setting.full) {
          std::size_t n = 0;
          for_each_parameter(model.decoder, [&](const std::string& name, Variable& p) {
            EXPECT_TRUE(same_bits(p.value(), frozen[n++])) << name << " is frozen";
          });
        }
        return results;
      });
}

TEST(FocusModel, CheckpointedBlocksGiveTheSameGradients) {
  const auto run = [](bool again) {
    TinyFocus model("llama");
    model.focus->set_trainable(true);
    const auto ids = random_ids(60, 37, 1);
    const auto forward = [&](const Variable& anchor) {
      const Variable hidden = model.decoder.hidden_states(ids, 1);
      return anchor.defined() ? hidden : Variable();
    };
    const Variable anchor(Tensor::zeros({1}));
    backward(multiply(again ? recompute(forward, anchor) : forward(anchor),
                      Variable(randn({1, 60, 24}, 2))));
    return token_layers(*model.focus)[0].centroids.grad();
  };
  EXPECT_TRUE(same_bits(run(true), run(false)));
}

}  // namespace
}  // namespace focus
