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
  return error_of([&] { load_weights(decoder, MapSource(tensors)); });
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
    const auto shapes = published_shapes(decoder.config());
    std::size_t tensors = 0;
    stream(decoder.config(), MapSource(expected),
           [&](const std::string& name, const Tensor& tensor) {
             ASSERT_LT(tensors, shapes.size());
             EXPECT_EQ(name, shapes[tensors].first) << "not in the order announced";
             EXPECT_EQ(tensor.shape(), shapes[tensors].second) << name;
             EXPECT_TRUE(same_bits(tensor, expected.at(name))) << name;
             ++tensors;
           });
    EXPECT_EQ(tensors, expected.size());
  }
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
  for (const auto& [type, embedding, head] :
       {std::tuple("gpt2", "transformer.wte.weight", "lm_head.weight"),
        std::tuple("gpt_neox", "gpt_neox.embed_in.weight", "embed_out.weight")}) {
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
  const std::string extra = "model.layers.3.mlp.up_proj.weight";
  const auto expect_named = [&](auto&& change, const std::vector<std::string>& parts) {
    auto changed = tensors;
    change(changed);
    const std::string error = load_error(changed, config);
    for (const std::string& part : parts)
      EXPECT_NE(error.find(part), std::string::npos) << part << " is not in: " << error;
  };
  expect_named([&](auto& all) { all.erase(victim); }, {"some/model", victim, "missing"});
  expect_named(
      [&](auto& all) {
        all[victim] = Tensor::zeros({24, 40});
      },
      {"some/model", victim, "[24, 40]", "[40, 24]"});
  expect_named([&](auto& all) { all[extra] = Tensor::zeros({40, 24}); }, {"some/model", extra});
  expect_named([](auto& all) { all.erase("lm_head.weight"); }, {"lm_head.weight", "missing"});
}

}  // namespace
}  // namespace focus
