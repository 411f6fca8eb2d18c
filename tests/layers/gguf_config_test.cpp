#include <gmock/gmock.h>

#include <limits>

#include "layers/gguf_settings.h"
#include "layers/weights.h"
#include "tests/support/gguf_model.h"
#include "tests/support/map_source.h"
#include "tests/support/random.h"

namespace focus {
namespace {

using testing::HasSubstr;
using Model = GgufModel;

TEST(GgufConfig, DefaultsOfKeysThatAreAbsent) {
  // norm_eps is the decimal, not the float32.
  EXPECT_EQ(Model().config(), (ModelConfig{.model_type = "llama",
                                           .vocab_size = 37,
                                           .hidden_size = 24,
                                           .intermediate_size = 40,
                                           .num_hidden_layers = 2,
                                           .num_attention_heads = 4,
                                           .num_key_value_heads = 4,
                                           .head_dim = 6,
                                           .max_position_embeddings = 64,
                                           .norm_eps = 1e-5,
                                           .tie_word_embeddings = true}));
}

TEST(GgufConfig, IsThatOfConfigJson) {
  const ModelConfig c = Model()
                            .u32("attention.head_count_kv", 2)
                            .f32("rope.freq_base", 1e6f)
                            .u32("rope.dimension_count", 6)
                            .tensor("output.weight", {24, 37})
                            .config();
  const ModelConfig json = parse_model_config(
      R"({"model_type": "llama", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0})",
      "config.json");
  EXPECT_EQ(c, json);
  EXPECT_EQ(write_model_config(c), write_model_config(json));
}

TEST(GgufConfig, Heads) {
  EXPECT_EQ(Model("qwen3").u32("attention.key_length", 8).config().head_dim, 8);
  EXPECT_EQ(Model("qwen3")
                .u32("attention.key_length", 8)
                .u32("attention.value_length", 8)
                .config()
                .head_dim,
            8);
  expect_refused(Model("qwen3").u32("attention.value_length", 8),
                 "qwen3.attention.value_length is 8, but keys have width 6");
  expect_refused(Model().u32("attention.head_count", 0),
                 "llama.attention.head_count must be from 1");
  expect_refused(Model().u32("attention.head_count", 5),
                 "llama.attention.head_count 5 does not divide llama.embedding_length 24");
  expect_refused(Model().u32("attention.head_count_kv", 3), "does not divide");
  expect_refused(Model().u32("attention.head_count_kv", 0),
                 "llama.attention.head_count_kv must be from 1");
}

TEST(GgufConfig, NumbersByLayer) {
  const ModelConfig c = Model()
                            .by_layer("attention.head_count", {4, 4})
                            .by_layer("attention.head_count_kv", {2, 2})
                            .by_layer("feed_forward_length", {40, 40})
                            .config();
  EXPECT_EQ(c.num_key_value_heads, 2);
  EXPECT_EQ(c.intermediate_size, 40);
  expect_refused(Model().by_layer("attention.head_count", {4, 2}),
                 "llama.attention.head_count differs between layers");
  expect_refused(Model().by_layer("feed_forward_length", {40, 40, 40}),
                 "has 3 values for 2 layers");
  expect_refused(Model().by_layer("feed_forward_length", {}), "has 0 values");
}

TEST(GgufConfig, RefusesAbsurdNumbers) {
  expect_refused(Model().u32("block_count", 1u << 31), "llama.block_count must be from 1 to 4096");
  expect_refused(Model().u32("block_count", 0), "llama.block_count must be");
  expect_refused(Model().u32("embedding_length", 0), "llama.embedding_length");
  expect_refused(Model().u32("context_length", ~0u), "llama.context_length");
  expect_refused(Model().u32("vocab_size", 36), "token_embd.weight has 37 rows");
  for (const char* name :
       {"block_count", "embedding_length", "feed_forward_length", "context_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon"})
    expect_refused(Model().without(name), fmt::format("key llama.{} is missing", name));
  for (const float eps : {0.0f, -1e-5f, 1.0f})
    expect_refused(Model().f32("attention.layer_norm_rms_epsilon", eps),
                   "layer_norm_rms_epsilon must be in (0, 1)");
  expect_refused(Model("gpt2").f32("attention.layer_norm_epsilon", 0),
                 "gpt2.attention.layer_norm_epsilon must be in (0, 1)");
  for (const float x :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    expect_refused(Model().f32("attention.layer_norm_rms_epsilon", x), "must be finite");
    expect_refused(Model().f32("rope.freq_base", x), "must be finite");
  }
  for (const float theta : {0.0f, -1.0f})
    expect_refused(Model().f32("rope.freq_base", theta), "llama.rope.freq_base must be positive");
  expect_refused(Model().text("block_count", "2"), "must be an integer");
}

TEST(GgufConfig, RefusesAttentionThatIsNotCausal) {
  EXPECT_THAT(Model().flag("attention.causal", false).error(),
              HasSubstr("llama.attention.causal is false"));
  EXPECT_EQ(Model().flag("attention.causal", true).config().model_type, "llama");
  EXPECT_THAT(Model().f32("attention.clamp_kqv", 8).error(), HasSubstr("clamp_kqv is 8"));
  EXPECT_THAT(Model().u32("expert_count", 8).error(), HasSubstr("llama.expert_count is 8"));
}

TEST(GgufConfig, SlidingWindows) {
  using Windows = std::vector<Index>;
  const ModelConfig mistral = Model().u32("attention.sliding_window", 7).config();
  EXPECT_EQ(mistral.model_type, "mistral");
  EXPECT_EQ(mistral.sliding_windows, (Windows{7, 7}));
  EXPECT_EQ(Model().u32("attention.sliding_window", 0).config().model_type, "llama");
  EXPECT_EQ(Model("gemma2").config().sliding_windows, (Windows{4096, 0}));
  EXPECT_EQ(Model("gemma2").u32("attention.sliding_window", 9).config().sliding_windows,
            (Windows{9, 0}));
  EXPECT_TRUE(Model("gemma2").u32("attention.sliding_window", 0).config().sliding_windows.empty());
  Model four("gemma2");
  four.u32("block_count", 4).u32("attention.sliding_window", 9);
  EXPECT_EQ(Model(four).u32("attention.sliding_window_pattern", 3).config().sliding_windows,
            (Windows{9, 9, 0, 9}));
  EXPECT_EQ(
      Model(four).flags("attention.sliding_window_pattern", {0, 1, 1, 0}).config().sliding_windows,
      (Windows{0, 9, 9, 0}));
  expect_refused(Model(four).flags("attention.sliding_window_pattern", {0, 1}),
                 "has 2 values for 4 layers");
  expect_refused(Model("qwen2").u32("attention.sliding_window", 9),
                 "it is unknown which layers have the window");
  EXPECT_EQ(Model("qwen3")
                .u32("attention.sliding_window", 9)
                .flags("attention.sliding_window_pattern", {0, 1})
                .config()
                .sliding_windows,
            (Windows{0, 9}));
}

TEST(GgufConfig, Gemma2) {
  const ModelConfig c = Model("gemma2").tensor("output.weight", {24, 37}).config();
  EXPECT_TRUE(c.tie_word_embeddings && c.scaled_embeddings);
  EXPECT_EQ(c.attn_logit_softcapping, 50);
  EXPECT_EQ(c.final_logit_softcapping, 30);
  EXPECT_EQ(c.query_pre_attn_scalar, 0);
  EXPECT_EQ(c.norm_weight_offset, 1);
  const ModelConfig large = Model("gemma2")
                                .u32("block_count", 46)
                                .u32("attention.key_length", 8)
                                .f32("attn_logit_softcapping", 5)
                                .f32("final_logit_softcapping", 0)
                                .config();
  EXPECT_EQ(large.query_pre_attn_scalar, 6);
  EXPECT_EQ(large.attn_logit_softcapping, 5);
  EXPECT_EQ(large.final_logit_softcapping, 0);
  expect_refused(Model("gemma2").f32("attn_logit_softcapping", -5),
                 "gemma2.attn_logit_softcapping must be from");
}

TEST(GgufConfig, Biases) {
  Model both;
  both.tensor("blk.0.attn_q.bias", {24}).tensor("blk.0.attn_output.bias", {24});
  EXPECT_TRUE(both.config().attention_bias && both.config().attention_out_bias);
  expect_refused(Model().tensor("blk.0.attn_qkv.bias", {72}), "biases only on q, k and v");
  EXPECT_TRUE(Model().tensor("blk.0.ffn_up.bias", {40}).config().mlp_bias);
  EXPECT_TRUE(Model("qwen2").config().attention_bias);
  EXPECT_TRUE(Model("gpt2").config().mlp_bias);
  EXPECT_FALSE(Model("gptneox").flag("use_parallel_residual", false).config().parallel_residual);
}

TEST(GgufConfig, FamiliesOfTheirOwnKeys) {
  const ModelConfig granite = Model("granite")
                                  .f32("embedding_scale", 3)
                                  .f32("residual_scale", 0.5)
                                  .f32("logit_scale", 8)
                                  .f32("attention.scale", 0.25)
                                  .config();
  EXPECT_EQ(granite.embedding_multiplier, 3);
  EXPECT_EQ(granite.residual_multiplier, 0.5);
  EXPECT_EQ(granite.logits_scaling, 8);
  EXPECT_EQ(granite.attention_multiplier, 0.25);
  EXPECT_EQ(Model("granite").config().logits_scaling, 1);
  expect_refused(Model("granite").f32("logit_scale", -1), "logits_scaling must be");
  const ModelConfig smollm3 = Model("smollm3").u32("block_count", 5).config();
  EXPECT_EQ(smollm3.rotary_layers, (std::vector<bool>{true, true, true, false, true}));
  const ModelConfig c =
      Model("olmo2").u32("block_count", 5).u32("attention.sliding_window", 9).config();
  EXPECT_EQ(c.model_type, "olmo3");
  EXPECT_EQ(c.sliding_windows, (std::vector<Index>{9, 9, 9, 0, 9}));
  EXPECT_EQ(Model("olmo2").config().model_type, "olmo2");
}

TEST(GgufConfig, NamesWhatIsNoModelItKnows) {
  expect_refused(Model("gemma4"), "architecture \"gemma4\" is not supported (gpt2,");
  expect_refused(Model("x\n"), "architecture \"x\\n\"");
  const auto kind = [](const std::string& type) {
    return Model()
        .set("general.type", [=](GgufFile& f, const std::string& key) { f.text(key, type); })
        .error();
  };
  EXPECT_EQ(kind("model"), "");
  EXPECT_THAT(kind("adapter"), HasSubstr("this file as --adapter"));
  EXPECT_THAT(kind("mmproj"), HasSubstr("general.type is \"mmproj\""));
}

TEST(GgufConfig, SpecialTokensOfTheVocabularyAlone) {
  const auto with = [](std::uint32_t bos, std::uint32_t eos, const char* model) {
    return Model()
        .set("tokenizer.ggml.model",
             [=](GgufFile& f, const std::string& key) { f.text(key, model); })
        .set("tokenizer.ggml.bos_token_id",
             [=](GgufFile& f, const std::string& key) { f.u32(key, bos); })
        .set("tokenizer.ggml.eos_token_id",
             [=](GgufFile& f, const std::string& key) { f.u32(key, eos); })
        .config();
  };
  EXPECT_EQ(with(1, 36, "llama").bos_token_id, 1);
  EXPECT_EQ(with(1, 36, "llama").eos_token_ids, std::vector<Index>{36});
  EXPECT_TRUE(with(1, 37, "llama").eos_token_ids.empty());
  EXPECT_FALSE(with(1, 2, "none").bos_token_id);
}

}  // namespace
}  // namespace focus
