#include "layers/weights.h"

#include <map>

#include "tests/support/compare.h"
#include "tests/support/map_source.h"
#include "tests/support/random.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace focus {
namespace {

/// Every parameter with numbers of its own, biases and norms included.
Decoder random_decoder(const ModelConfig& config) {
  Decoder decoder(config);
  std::uint64_t seed = 1;
  for_each_parameter(decoder, [&](const std::string&, Variable& p) {
    p.mutable_value() = randn(p.shape(), ++seed);
  });
  return decoder;
}

std::string load_error(const std::map<std::string, Tensor>& tensors, const ModelConfig& config) {
  Decoder decoder(config);
  try {
    load_weights(decoder, MapSource(tensors));
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

TEST(Weights, WhatIsPublishedLoadsBack) {
  for (const std::string& type : family_names())
    for (const bool tied : {true, false}) {
      ModelConfig config = tiny_config(type);
      config.tie_word_embeddings = tied;
      Decoder original = random_decoder(config), loaded(config);
      load_weights(loaded, MapSource(published(original)));
      expect_same_weights(original, loaded);
    }
}

TEST(Weights, StreamedTensorsAreThePublishedOnes) {
  for (const char* model_type : {"gpt2", "llama"}) {
    Decoder decoder = random_decoder(tiny_config(model_type));
    const auto expected = published(decoder);
    Decoder passing(decoder.config());
    const auto shapes = published_shapes(passing);
    std::size_t parameters = 0, tensors = 0;
    stream_weights(
        passing, MapSource(expected), [&](const std::string&, Tensor&) { ++parameters; },
        [&](const std::string& name, const Tensor& tensor) {
          ASSERT_LT(tensors, shapes.size());
          EXPECT_EQ(name, shapes[tensors].first) << "not in the order announced";
          EXPECT_EQ(tensor.shape(), shapes[tensors].second) << name;
          EXPECT_TRUE(same_bits(tensor, expected.at(name))) << name;
          ++tensors;
        });
    EXPECT_EQ(tensors, expected.size());
    EXPECT_GE(parameters, tensors);
    Index left = 0;
    for_each_parameter(passing, [&](const std::string&, Variable&) { ++left; });
    EXPECT_EQ(left, 0) << "parameters kept their values";
  }
}

TEST(Weights, Gpt2IsPublishedFusedAndTransposed) {
  Decoder decoder = random_decoder(tiny_config("gpt2"));
  const auto tensors = published(decoder);
  const Tensor& fused = tensors.at("transformer.h.1.attn.c_attn.weight");
  ASSERT_EQ(fused.shape(), (Shape{24, 72}));
  const Attention& attention = decoder.layers()[1].self_attn;
  const Linear* parts[] = {&attention.q_proj, &attention.k_proj, &attention.v_proj};
  const Tensor& bias = tensors.at("transformer.h.1.attn.c_attn.bias");
  for (Index part = 0; part < 3; ++part)
    for (Index out = 0; out < 24; ++out) {
      EXPECT_EQ(bias[part * 24 + out], parts[part]->bias.value()[out]);
      for (Index in = 0; in < 24; ++in)
        ASSERT_EQ(fused[in * 72 + part * 24 + out], parts[part]->weight.value()[out * 24 + in]);
    }
  EXPECT_EQ(tensors.at("transformer.h.2.mlp.c_fc.weight").shape(), (Shape{24, 40}));
  EXPECT_EQ(tensors.at("transformer.wpe.weight").shape(), (Shape{128, 24}));
  EXPECT_FALSE(tensors.contains("lm_head.weight"));
}

TEST(Weights, GptNeoxIsPublishedFusedHeadByHead) {
  Decoder decoder = random_decoder(tiny_config("gpt_neox"));
  const auto tensors = published(decoder);
  const Tensor& fused = tensors.at("gpt_neox.layers.1.attention.query_key_value.weight");
  ASSERT_EQ(fused.shape(), (Shape{72, 24}));
  const Attention& attention = decoder.layers()[1].self_attn;
  const Linear* parts[] = {&attention.q_proj, &attention.k_proj, &attention.v_proj};
  const Tensor& bias = tensors.at("gpt_neox.layers.1.attention.query_key_value.bias");
  // Heads of 6: q, k and v of the first head, then those of the second.
  for (Index row = 0; row < 72; ++row) {
    const Linear& part = *parts[row / 6 % 3];
    const Index ours = row / 18 * 6 + row % 6;
    EXPECT_EQ(bias[row], part.bias.value()[ours]) << row;
    for (Index in = 0; in < 24; ++in)
      ASSERT_EQ(fused[row * 24 + in], part.weight.value()[ours * 24 + in]) << row;
  }
  EXPECT_EQ(tensors.at("embed_out.weight").shape(), (Shape{37, 24}));
}

TEST(Weights, GemmasFourNormsHaveTheirPublishedNames) {
  Decoder decoder = random_decoder(tiny_config("gemma2"));
  const auto tensors = published(decoder);
  const Block& block = decoder.layers()[2];
  const auto expect = [&](const char* name, const Norm& norm) {
    EXPECT_TRUE(same_bits(tensors.at(std::string("model.layers.2.") + name + ".weight"),
                          norm.weight.value()))
        << name;
  };
  expect("input_layernorm", block.input_layernorm);
  expect("post_attention_layernorm", block.attention_out_norm);
  expect("pre_feedforward_layernorm", block.post_attention_layernorm);
  expect("post_feedforward_layernorm", block.mlp_out_norm);
}

TEST(Weights, BareBaseModelsLackThePrefix) {
  for (const std::string& type : family_names()) {
    const std::string prefix = find_family(type, "test").base_prefix;
    Decoder original = random_decoder(tiny_config(type)), loaded(tiny_config(type));
    std::map<std::string, Tensor> bare;
    for (const auto& [name, tensor] : published(original))
      bare[name.starts_with(prefix) ? name.substr(prefix.size()) : name] = tensor;
    load_weights(loaded, MapSource(bare));
    expect_same_weights(original, loaded);
  }
}

TEST(Weights, TiedHeadUnderEitherNameOrBoth) {
  struct Names {
    const char *type, *embedding, *head;
  };
  for (const auto& [type, embedding, head] :
       {Names{"gpt2", "transformer.wte.weight", "lm_head.weight"},
        Names{"gpt_neox", "gpt_neox.embed_in.weight", "embed_out.weight"}}) {
    ModelConfig config = tiny_config(type);
    config.tie_word_embeddings = true;
    Decoder original = random_decoder(config);
    auto tensors = published(original);
    tensors[head] = tensors.at(embedding);
    for (const bool embedding_too : {true, false}) {
      if (!embedding_too) tensors.erase(embedding);
      Decoder loaded(config);
      load_weights(loaded, MapSource(tensors));
      expect_same_weights(original, loaded);
    }
  }
}

TEST(Weights, IgnoresBuffers) {
  for (const std::string type : {"gpt2", "llama"}) {
    Decoder original = random_decoder(tiny_config(type)), loaded(tiny_config(type));
    auto tensors = published(original);
    if (type == "gpt2") {
      tensors["transformer.h.0.attn.bias"] = Tensor::zeros({1, 1, 8, 8});
      tensors["transformer.h.0.attn.masked_bias"] = Tensor::zeros({});
    } else {
      tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = Tensor::zeros({3});
    }
    load_weights(loaded, MapSource(tensors));
    expect_same_weights(original, loaded);
  }
}

TEST(Weights, ErrorsNameSourceAndTensor) {
  const ModelConfig config = tiny_config("llama");
  Decoder original = random_decoder(config);
  const auto tensors = published(original);
  EXPECT_EQ(load_error(tensors, config), "");
  const std::string victim = "model.layers.1.mlp.up_proj.weight";
  const auto expect_named = [](const std::string& error, std::initializer_list<const char*> parts) {
    for (const char* part : parts)
      EXPECT_NE(error.find(part), std::string::npos) << part << " is not in: " << error;
  };

  auto missing = tensors;
  missing.erase(victim);
  expect_named(load_error(missing, config), {"some/model", victim.c_str(), "missing"});

  auto wrong = tensors;
  wrong[victim] = Tensor::zeros({24, 40});
  expect_named(load_error(wrong, config), {"some/model", victim.c_str(), "[24, 40]", "[40, 24]"});

  auto extra = tensors;
  extra["model.layers.3.mlp.up_proj.weight"] = Tensor::zeros({40, 24});
  expect_named(load_error(extra, config), {"some/model", "model.layers.3.mlp.up_proj.weight"});

  auto headless = tensors;
  headless.erase("lm_head.weight");
  expect_named(load_error(headless, config), {"lm_head.weight", "missing"});
}

}  // namespace
}  // namespace focus
