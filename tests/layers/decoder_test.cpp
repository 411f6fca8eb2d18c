#include "layers/decoder.h"

#include <cmath>
#include <map>
#include <numbers>
#include <thread>

#include "autograd/gemm/gemm.h"
#include "tests/support/compare.h"
#include "tests/support/random.h"
#include "tests/support/tiny_model.h"

namespace focus {
namespace {

using Ids = std::vector<std::int32_t>;

const std::vector<std::string> kTypes = family_names();

TEST(Decoder, ParametersAreThoseOfTheFamily) {
  Decoder gpt2 = tiny_decoder("gpt2"), llama = tiny_decoder("llama");
  const Index h = 24, inner = 40, vocab = 37, layers = 3;
  EXPECT_EQ(
      count_parameters(gpt2),
      vocab * h + 128 * h + layers * (4 * (h * h + h) + 2 * h * inner + inner + h + 4 * h) + 2 * h);
  EXPECT_EQ(count_parameters(llama),
            2 * vocab * h + layers * (2 * h * h + 2 * 12 * h + 3 * h * inner + 2 * h) + h);
  Decoder neox = tiny_decoder("gpt_neox");
  EXPECT_EQ(count_parameters(neox),
            2 * vocab * h + layers * (4 * (h * h + h) + 2 * h * inner + inner + h + 4 * h) + 2 * h);
}

TEST(Decoder, ShapesAndLoss) {
  for (const std::string& type : kTypes) {
    const Decoder decoder = tiny_decoder(type);
    const Ids ids = random_ids(20, 37, 1);
    const Variable hidden = decoder.hidden_states(ids, 2);
    EXPECT_EQ(hidden.shape(), (Shape{2, 10, 24}));
    const Tensor logits = decoder.logits(hidden).value();
    ASSERT_EQ(logits.shape(), (Shape{2, 10, 37}));
    const Tensor lse = log_sum_exp(logits).value();
    double sum = 0;
    for (Index t = 0; t < 20; ++t)
      if (t % 10 != 9) sum += lse[t] - logits[t * 37 + ids[t + 1]];
    EXPECT_NEAR(decoder.loss(ids, 2).value()[0], sum / 18, tolerance(1e-5, 1e-12));
  }
}

TEST(Decoder, SequencesOfABatchAreIndependent) {
  for (const std::string& type : kTypes) {
    const Decoder decoder = tiny_decoder(type);
    const Ids ids = random_ids(14, 37, 1);
    const Tensor both = decoder.hidden_states(ids, 2).value();
    for (const Index n : {0, 1}) {
      const auto one = std::span(ids).subspan(n * 7, 7);
      const Tensor alone = decoder.hidden_states(one, 1).value();
      const Tensor part = Tensor::from({1, 7, 24}, both.span().subspan(n * 168, 168));
      EXPECT_LE(relative_difference(part, alone), tolerance(1e-5, 1e-12));
    }
  }
}

TEST(Decoder, LaterTokensDoNotMatter) {
  for (const std::string& type : kTypes) {
    const Decoder decoder = tiny_decoder(type);
    Ids ids = random_ids(80, 37, 1);
    const Tensor before = decoder.logits(decoder.hidden_states(ids, 1)).value();
    ids[70] = (ids[70] + 1) % 37;
    const Tensor after = decoder.logits(decoder.hidden_states(ids, 1)).value();
    for (Index i = 0; i < 70 * 37; ++i) ASSERT_EQ(after[i], before[i]) << type;
    EXPECT_NE(after[70 * 37], before[70 * 37]);
  }
}

TEST(Decoder, RejectsWhatItCannotRead) {
  const Decoder gpt2 = tiny_decoder("gpt2"), llama = tiny_decoder("llama");
  EXPECT_NO_THROW(gpt2.hidden_states(Ids(128, 1), 1));
  EXPECT_THROW(gpt2.hidden_states(Ids(129, 1), 1), std::invalid_argument);
  EXPECT_NO_THROW(llama.hidden_states(Ids(129, 1), 1));  // rotary embeddings have no last position
  EXPECT_THROW(llama.hidden_states(Ids{1, 37}, 1), std::invalid_argument);
  EXPECT_THROW(llama.hidden_states(Ids{1, -1}, 1), std::invalid_argument);
  EXPECT_THROW(llama.hidden_states(Ids{1, 2, 3}, 2), std::invalid_argument);
  EXPECT_THROW(llama.hidden_states(Ids{}, 1), std::invalid_argument);
  EXPECT_THROW(llama.hidden_states(Ids{1}, 0), std::invalid_argument);
  ModelConfig broken = tiny_config("llama");
  broken.num_key_value_heads = 3;
  EXPECT_THROW(Decoder{broken}, std::invalid_argument);
}

TEST(Decoder, RotaryTableGrowsWithTheSequence) {
  const Decoder decoder = tiny_decoder("llama");
  const Ids ids = random_ids(30, 37, 1);
  const Tensor before = decoder.hidden_states(std::span(ids).first(10), 1).value();
  decoder.hidden_states(ids, 1);
  EXPECT_TRUE(same_bits(decoder.hidden_states(std::span(ids).first(10), 1).value(), before));
}

TEST(Decoder, MechanismReceivesWhatAttentionWould) {
  for (const std::string& type : kTypes) {
    Decoder decoder = tiny_decoder(type);
    const Ids ids = random_ids(10, 37, 1);
    const Tensor before = decoder.hidden_states(ids, 2).value();
    std::vector<Index> seen;
    for (Block& block : decoder.layers())
      block.self_attn.mechanism = [&](const MechanismInputs& in) {
        seen.push_back(in.layer);
        EXPECT_EQ(in.h.shape(), (Shape{2, 5, 24}));
        EXPECT_EQ(in.q.shape(), (Shape{2, 5, 4, 6}));
        EXPECT_EQ(in.k.shape(), in.v.shape());
        const double scale = type == "granite" ? 0.3 : 1 / std::sqrt(type == "gemma2" ? 11.0 : 6.0);
        EXPECT_NEAR(in.options.scale, scale, 1e-7);
        EXPECT_EQ(in.options.softcap, type == "gemma2" ? Real(0.5) : Real(0));
        const bool slides = type == "mistral" || type == "phi3" ||
                            (type == "gemma2" && in.layer != 1) ||
                            ((type == "gemma3_text" || type == "olmo3") && in.layer != 2);
        EXPECT_EQ(in.options.sliding_window, slides ? 9 : 0);
        return attention(in.q, in.k, in.v, in.options);
      };
    EXPECT_TRUE(same_bits(decoder.hidden_states(ids, 2).value(), before));
    EXPECT_EQ(seen, (std::vector<Index>{0, 1, 2}));
  }
}

TEST(AttachedMechanism, GivesEachLayerItsOwnBack) {
  Decoder decoder = tiny_decoder("llama");
  const Ids ids = random_ids(10, 37, 1);
  const auto named = [](char name, std::string& log) {
    return [name, &log](const MechanismInputs& in) {
      log += name;
      return attention(in.q, in.k, in.v, in.options);
    };
  };
  const auto asked = [&](std::string& log) {
    log.clear();
    decoder.hidden_states(ids, 1);
    return log;
  };
  std::string log;
  decoder.layers()[1].self_attn.mechanism = named('o', log);
  {
    const AttachedMechanism first(decoder, named('a', log));
    EXPECT_EQ(asked(log), "aaa");
    {
      AttachedMechanism second(decoder, named('b', log));
      EXPECT_EQ(asked(log), "bbb");
      const AttachedMechanism moved = std::move(second);
      EXPECT_EQ(asked(log), "bbb");
    }
    EXPECT_EQ(asked(log), "aaa");
    const AttachedMechanism dense(decoder, {});
    EXPECT_EQ(asked(log), "");
  }
  EXPECT_EQ(asked(log), "o");
  for (Block& block : decoder.layers()) block.self_attn.mechanism = {};
  EXPECT_EQ(asked(log), "");
}

TEST(Decoder, FrozenLayersBelowTheLowestParameterRecordNothing) {
  for (const std::string& type : kTypes) {
    Decoder decoder = tiny_decoder(type);
    const Ids ids = random_ids(32, 37, 1);
    EXPECT_FALSE(decoder.loss(ids, 1).requires_grad());

    std::map<Index, bool> h_recorded, q_recorded;
    for (Block& block : decoder.layers())
      block.self_attn.mechanism = [&](const MechanismInputs& in) {
        h_recorded[in.layer] = in.h.requires_grad();
        q_recorded[in.layer] = in.q.requires_grad();
        EXPECT_EQ(in.v.requires_grad(), in.layer > 1);
        return attention(in.q, in.k, in.v, in.options);
      };
    const auto pass = [&](std::size_t layer) {
      set_requires_grad(decoder, false);
      decoder.layers()[layer].self_attn.q_proj.weight.set_requires_grad(true);
    };
    pass(1);
    const std::size_t before = pool_stats().live;
    Variable loss = decoder.loss(ids, 1);
    const std::size_t from_layer_1 = pool_stats().live - before;
    EXPECT_EQ(h_recorded, (std::map<Index, bool>{{0, false}, {1, false}, {2, true}}));
    EXPECT_EQ(q_recorded, (std::map<Index, bool>{{0, false}, {1, true}, {2, true}}));
    backward(loss);
    EXPECT_TRUE(decoder.layers()[1].self_attn.q_proj.weight.grad().defined());

    for (Block& block : decoder.layers()) block.self_attn.mechanism = {};
    pass(0);
    loss = {};
    const std::size_t again = pool_stats().live;
    loss = decoder.loss(ids, 1);
    EXPECT_GT(pool_stats().live - again, from_layer_1);
  }
}

TEST(Decoder, LastLayersAdapterCostsOnlyItsOwnProducts) {
  // Only what lies above q_proj of the last layer is walked.
  Decoder decoder = tiny_decoder("gpt2");
  decoder.layers()[2].self_attn.q_proj.bias.set_requires_grad(true);
  const Ids ids = random_ids(32, 37, 1);
  const Variable loss = decoder.loss(ids, 1);
  const std::uint64_t before = multiply_adds();
  backward(loss);
  const std::uint64_t cost = multiply_adds() - before;
  // Forward attention has two products, and backward three here: scores, dP, dQ.
  const Variable q(randn({1, 32, 4, 6}, 1));
  const std::uint64_t start = multiply_adds();
  attention(q, q, q, {});
  const std::uint64_t attention_q = (multiply_adds() - start) / 2 * 3;
  const Index t = 32, h = 24, inner = 40;
  const Index mlp = 2 * t * h * inner, o_proj = t * h * h;
  EXPECT_EQ(cost, static_cast<std::uint64_t>(mlp + o_proj) + attention_q);
}

TEST(ShiftedTargets, StopAtEachSequencesEnd) {
  EXPECT_EQ(shifted_targets(Ids{5, 6, 7, 8, 9, 10}, 2), (Ids{6, 7, -1, 9, 10, -1}));
  EXPECT_EQ(shifted_targets(Ids{5, 6}, 2), (Ids{-1, -1}));
}

TEST(RotaryTable, AnglesOfEachScaling) {
  const Index dim = 16, seq_len = 9;
  RopeConfig config{.theta = 500};
  const auto expect_frequencies = [&](auto&& frequency) {
    const RotaryTable table = rotary_table(config, dim, seq_len);
    ASSERT_EQ(table.cos.shape(), (Shape{seq_len, dim / 2}));
    for (Index t = 0; t < seq_len; ++t)
      for (Index i = 0; i < dim / 2; ++i) {
        const double angle =
            static_cast<double>(t) * frequency(std::pow(500, -2.0 * static_cast<double>(i) / dim));
        EXPECT_NEAR(table.cos[t * dim / 2 + i], std::cos(angle), 1e-6);
        EXPECT_NEAR(table.sin[t * dim / 2 + i], std::sin(angle), 1e-6);
      }
  };
  expect_frequencies([](double f) { return f; });
  config.scaling = RopeConfig::Scaling::linear;
  config.factor = 4;
  expect_frequencies([](double f) { return f / 4; });
  config = {.theta = 500,
            .scaling = RopeConfig::Scaling::llama3,
            .factor = 8,
            .low_freq_factor = 1,
            .high_freq_factor = 4,
            .original_max_position_embeddings = 100};
  int kept = 0, between = 0, stretched = 0;
  expect_frequencies([&](double f) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength < 100 / 4.0) return ++kept, f;
    if (wavelength > 100 / 1.0) return ++stretched, f / 8;
    const double smooth = (100 / wavelength - 1) / (4 - 1);
    return ++between, (1 - smooth) * f / 8 + smooth * f;
  });
  EXPECT_GT(kept, 0);
  EXPECT_GT(between, 0);
  EXPECT_GT(stretched, 0);
}

TEST(RotaryTable, LongPassesHaveOtherAngles) {
  RopeConfig longrope{.scaling = RopeConfig::Scaling::longrope,
                      .short_factor = {1, 2},
                      .long_factor = {3, 4},
                      .attention_factor = 1.5,
                      .original_max_position_embeddings = 8};
  RopeConfig dynamic{
      .scaling = RopeConfig::Scaling::dynamic, .factor = 2, .original_max_position_embeddings = 8};
  const auto row = [](const RopeConfig& config, Index seq_len) {
    const RotaryTable table = rotary_table(config, 4, seq_len);
    return Tensor::from({2}, table.sin.span().subspan(2, 2));  // of position 1
  };
  EXPECT_NEAR(row(longrope, 8)[0], 1.5 * std::sin(1.0), 1e-6);
  EXPECT_NEAR(row(longrope, 9)[0], 1.5 * std::sin(1.0 / 3), 1e-6);
  EXPECT_NEAR(row(longrope, 9)[1], 1.5 * std::sin(0.01 / 4), 1e-6);
  EXPECT_TRUE(same_bits(row(longrope, 9), row(longrope, 90)));
  EXPECT_NEAR(row(dynamic, 8)[1], std::sin(0.01), 1e-6);
  // 10000 (2 * 16 / 8 - 1)^(4 / 2) is the base of 16 tokens.
  EXPECT_NEAR(row(dynamic, 16)[1], std::sin(0.01 / 3), 1e-7);
  // A cache of tables gives each length its own.
  RotaryCache cache;
  for (const RopeConfig& config : {longrope, dynamic})
    for (const Index seq_len : {5, 9, 12, 7, 12}) {
      const RotaryTable table = cache.covering(seq_len, config, 4, 100);
      EXPECT_GE(table.sin.dim(0), seq_len);
      EXPECT_TRUE(
          same_bits(Tensor::from({2}, table.sin.span().subspan(2, 2)), row(config, seq_len)))
          << seq_len;
    }
}

TEST(Dropout, StandsWhereGpt2HasIt) {
  ModelConfig config = tiny_config("gpt2");
  config.num_hidden_layers = 1;
  Decoder decoder(config);
  Rng rng(5);
  initialise(decoder, rng);
  const std::vector<std::int32_t> ids = {3, 9, 1, 30, 3, 12, 5, 7, 0, 36, 8, 2};
  const NoGrad guard;
  const Tensor without = decoder.hidden_states(ids, 2).value();
  const auto run = [&](std::optional<std::uint64_t> key) {
    return decoder.hidden_states(ids, 2, 0, {.dropout_key = key, .dropout = 0.25}).value();
  };
  EXPECT_TRUE(same_bits(run(std::nullopt), without)) << "without a key";

  std::map<std::string, Variable> parameters;
  for_each_parameter(decoder, [&](const std::string& name, Variable& p) { parameters[name] = p; });
  const Block& block = decoder.layers()[0];
  const auto drop = [](const Variable& x, std::uint64_t place) {
    return dropout(x, 0.25, 11 * 4 + place);  // embeddings, attention, MLP
  };
  const std::vector<std::int32_t> positions = {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5};
  Variable x = drop(add(embedding(parameters.at("embed_tokens.weight"), ids, {2, 6}),
                        embedding(parameters.at("embed_positions.weight"), positions, {2, 6})),
                    0);
  const Variable h = block.input_layernorm(x);
  const auto heads = [&](const Linear& projection) { return reshape(projection(h), {2, 6, 4, 6}); };
  const Attention& attn = block.self_attn;
  const Variable out = attention(
      heads(attn.q_proj), heads(attn.k_proj), heads(attn.v_proj),
      {.scale = static_cast<Real>(1 / std::sqrt(6.0)), .dropout = 0.25, .dropout_key = 11 * 4 + 3});
  x = add(x, drop(attn.o_proj(reshape(out, {2, 6, 24})), 1));
  const Variable up = block.mlp.up_proj(block.post_attention_layernorm(x));
  x = add(x, drop(block.mlp.down_proj(gelu_tanh(up)), 2));
  const Variable wanted = layer_norm(x, parameters.at("norm.weight"), parameters.at("norm.bias"),
                                     block.input_layernorm.eps);
  EXPECT_TRUE(same_bits(run(11), wanted.value()));
  EXPECT_FALSE(same_bits(wanted.value(), without));
  EXPECT_FALSE(same_bits(run(12), wanted.value()));
  EXPECT_TRUE(same_bits(run(11), wanted.value()));
}

TEST(Decoder, ThreadsMayShareIt) {
  // Each asks for a longer rotary table than the one before, while others read theirs.
  const Decoder decoder = tiny_decoder("llama"), other = tiny_decoder("llama");
  const Ids ids = random_ids(100, 37, 1);
  const auto states = [&](const Decoder& of, int length) {
    const NoGrad guard;
    return of.hidden_states(std::span(ids).first(length), 1).value();
  };
  std::vector<std::thread> threads;
  std::vector<Tensor> found(5);
  for (int i = 0; i < 5; ++i)
    threads.emplace_back([&, i] { found[i] = states(decoder, 20 * (i + 1)); });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(found[i], states(other, 20 * (i + 1)))) << i;
}

TEST(Initialise, Statistics) {
  for (const std::string& type : kTypes) {
    ModelConfig config = tiny_config(type);
    config.hidden_size = 96;
    config.intermediate_size = 200;
    config.initializer_range = 0.03;
    Decoder decoder(config);
    Rng rng(5);
    initialise(decoder, rng);
    for_each_parameter(decoder, [&](const std::string& name, Variable& p) {
      double sum = 0, squares = 0;
      for (const Real w : p.value().span()) {
        sum += w;
        squares += static_cast<double>(w) * w;
      }
      const double n = static_cast<double>(p.value().size());
      if (name.ends_with(".bias")) {
        EXPECT_EQ(squares, 0) << name;
      } else if (p.shape().rank() == 1) {
        EXPECT_EQ(sum, n * (1 - config.norm_weight_offset)) << name;
      } else {
        const bool residual = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
        const double wanted = 0.03 / (residual ? std::sqrt(2.0 * 3) : 1);
        // Five standard errors of a mean and of a standard deviation.
        EXPECT_NEAR(sum / n, 0, 5 * wanted / std::sqrt(n)) << name;
        EXPECT_NEAR(std::sqrt(squares / n), wanted, 5 * wanted / std::sqrt(2 * n)) << name;
      }
    });
  }
}

TEST(Initialise, SameSeedSameWeights) {
  Decoder a = tiny_decoder("llama", 3), b = tiny_decoder("llama", 3), c = tiny_decoder("llama", 4);
  const auto first = [](Decoder& d) { return d.layers()[0].self_attn.q_proj.weight.value(); };
  EXPECT_TRUE(same_bits(first(a), first(b)));
  EXPECT_FALSE(same_bits(first(a), first(c)));
}

TEST(ForEachParameter, NamesEveryPresentPart) {
  std::vector<std::string> names;
  Decoder decoder = tiny_decoder("llama");
  for_each_parameter(decoder, [&](const std::string& name, Variable&) { names.push_back(name); });
  EXPECT_EQ(names.front(), "embed_tokens.weight");
  EXPECT_EQ(names.back(), "lm_head.weight");
  EXPECT_EQ(std::ranges::count(names, "layers.2.self_attn.q_proj.weight"), 1);
  EXPECT_EQ(std::ranges::count(names, "layers.2.self_attn.q_proj.bias"), 0);
  set_requires_grad(decoder, true);
  for_each_parameter(decoder, [](const std::string& name, Variable& p) {
    EXPECT_TRUE(p.requires_grad()) << name;
  });
}

}  // namespace
}  // namespace focus
