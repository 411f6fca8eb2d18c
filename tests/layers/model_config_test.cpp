#include "layers/model_config.h"

#include <cmath>

#include "layers/family.h"
#include "tests/support/config_json.h"
#include "tests/support/golden.h"
#include "tests/support/notices.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace focus {
namespace {

TEST(ModelConfig, ReadsGpt2) {
  const ModelConfig c = parse(gpt2_json());
  EXPECT_EQ(c.model_type, "gpt2");
  EXPECT_EQ(c.vocab_size, 50257);
  EXPECT_EQ(c.hidden_size, 768);
  EXPECT_EQ(c.intermediate_size, 4 * 768);
  EXPECT_EQ(c.num_hidden_layers, 12);
  EXPECT_EQ(c.num_key_value_heads, 12);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.max_position_embeddings, 1024);
  EXPECT_EQ(c.norm, NormKind::layer_norm);
  EXPECT_EQ(c.activation, Activation::gelu_tanh);
  EXPECT_FALSE(c.gated_mlp);
  EXPECT_TRUE(c.learned_positions && c.tie_word_embeddings);
  EXPECT_TRUE(c.attention_bias && c.attention_out_bias && c.mlp_bias);
  EXPECT_FALSE(c.bos_token_id.has_value());
}

TEST(ModelConfig, ReadsLlama) {
  Json json = llama_json();
  json["rope_theta"] = 5e5;
  json["attention_bias"] = true;
  json["bos_token_id"] = 1;
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.head_dim, 8);
  EXPECT_EQ(c.num_key_value_heads, 4);
  EXPECT_EQ(c.norm, NormKind::rms_norm);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_EQ(c.rope.theta, 5e5);
  EXPECT_EQ(c.rope.scaling, RopeConfig::Scaling::none);
  EXPECT_TRUE(c.gated_mlp && c.attention_bias && c.attention_out_bias);
  EXPECT_FALSE(c.learned_positions || c.tie_word_embeddings || c.mlp_bias);
  EXPECT_EQ(c.bos_token_id, 1);
  json.erase("num_key_value_heads");
  EXPECT_EQ(parse(json).num_key_value_heads, 8);
}

/// The defaults of transformers' config classes, where a key is absent.
TEST(ModelConfig, AbsentKeysHaveTheirFamilysDefaults) {
  Json json = short_json("mistral");
  json["num_attention_heads"] = 24;
  ModelConfig c = parse(json);
  EXPECT_EQ(c.num_key_value_heads, 8);
  EXPECT_EQ(c.head_dim, 2);
  EXPECT_EQ(c.max_position_embeddings, 131072);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_EQ(c.sliding_windows, (std::vector<Index>{4096, 4096, 4096, 4096}));
  EXPECT_FALSE(c.attention_bias || c.tie_word_embeddings);

  json = short_json("qwen2");
  json["num_key_value_heads"] = nullptr;
  c = parse(json);
  EXPECT_EQ(c.num_key_value_heads, 8);
  EXPECT_EQ(c.max_position_embeddings, 32768);
  EXPECT_TRUE(c.sliding_windows.empty());
  EXPECT_TRUE(c.attention_bias);
  EXPECT_FALSE(c.attention_out_bias || c.mlp_bias || c.tie_word_embeddings);

  json = short_json("qwen3");
  json["num_key_value_heads"] = 4;
  c = parse(json);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.qk_norm, QkNorm::per_head);
  EXPECT_FALSE(c.attention_bias || c.attention_out_bias);

  c = parse(short_json("olmo2"));
  EXPECT_EQ(c.num_key_value_heads, 8);
  EXPECT_EQ(c.max_position_embeddings, 2048);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_EQ(c.qk_norm, QkNorm::full_width);
  EXPECT_TRUE(c.norm_after && !c.norm_before);

  c = parse(short_json("gemma2"));
  EXPECT_EQ(c.num_key_value_heads, 4);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.max_position_embeddings, 8192);
  EXPECT_EQ(c.activation, Activation::gelu_tanh);
  EXPECT_EQ(c.query_pre_attn_scalar, 0) << "256 is the head_dim";
  EXPECT_EQ(c.attn_logit_softcapping, 50);
  EXPECT_EQ(c.final_logit_softcapping, 30);
  EXPECT_EQ(c.sliding_windows, (std::vector<Index>{4096, 0, 4096, 0}));
  EXPECT_EQ(c.norm_weight_offset, 1);
  EXPECT_TRUE(c.tie_word_embeddings && c.scaled_embeddings && c.norm_before && c.norm_after);

  json = short_json("gpt_neox");
  json["num_attention_heads"] = 6;
  c = parse(json);
  EXPECT_EQ(c.rotary_dim(), 2);
  EXPECT_EQ(c.num_key_value_heads, 6);
  EXPECT_EQ(c.rope.partial_rotary_factor, 0.25);
  EXPECT_EQ(c.rope.theta, 10000);
  EXPECT_EQ(c.norm, NormKind::layer_norm);
  EXPECT_EQ(c.activation, Activation::gelu);
  EXPECT_TRUE(c.parallel_residual && c.attention_bias && c.attention_out_bias && c.mlp_bias);
  EXPECT_FALSE(c.tie_word_embeddings || c.gated_mlp || c.learned_positions);
}

TEST(ModelConfig, Gemma3ReadsRopesOldAndNew) {
  using Scaling = RopeConfig::Scaling;
  Json json = short_json("gemma3_text");
  ModelConfig c = parse(json);
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.local_rope.value().theta, 1e4);
  EXPECT_EQ(c.sliding_windows, (std::vector<Index>(4, 4096)));
  EXPECT_EQ(c.final_logit_softcapping, 0);
  json["num_hidden_layers"] = 7;
  EXPECT_EQ(parse(json).sliding_windows,
            (std::vector<Index>{4096, 4096, 4096, 4096, 4096, 0, 4096}));
  json["sliding_window_pattern"] = 2;
  EXPECT_EQ(parse(json).sliding_window(1), 0);
  json["rope_theta"] = 5e5;
  json["rope_local_base_freq"] = 2e4;
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  c = parse(json);
  EXPECT_EQ(c.rope.theta, 5e5);
  EXPECT_EQ(c.rope.scaling, Scaling::linear);
  EXPECT_EQ(c.local_rope.value(), (RopeConfig{.theta = 2e4}));
  json.erase("rope_scaling");
  json["rope_parameters"] = R"({"sliding_attention": {"rope_type": "default"},
      "full_attention": {"rope_type": "yarn", "rope_theta": 3e5, "factor": 4.0,
                         "original_max_position_embeddings": 64}})"_json;
  c = parse(json);
  EXPECT_EQ(c.rope.theta, 3e5);
  EXPECT_EQ(c.rope.scaling, Scaling::yarn);
  EXPECT_NEAR(c.rope.attention_factor, 0.1 * std::log(4.0) + 1, 1e-15);
  EXPECT_EQ(c.local_rope.value().theta, 2e4);
}

TEST(ModelConfig, Phi3ReadsLongropeByAllItsNames) {
  Json json = short_json("phi3");
  EXPECT_EQ(parse(json).norm_eps, 1e-5);
  EXPECT_EQ(parse(json).sliding_windows, std::vector<Index>());
  json["sliding_window"] = 7;
  EXPECT_EQ(parse(json).sliding_windows, std::vector<Index>(4, 7));
  json["max_position_embeddings"] = 8192;
  json["partial_rotary_factor"] = 0.7;  // 4 of 6
  for (const char* type : {"longrope", "su", "yarn"}) {
    json["rope_scaling"] = {{"type", type}, {"short_factor", {1, 1.5}}, {"long_factor", {2, 3}}};
    const RopeConfig rope = parse(json).rope;
    EXPECT_EQ(rope.scaling, RopeConfig::Scaling::longrope) << type;
    EXPECT_EQ(rope.original_max_position_embeddings, 4096) << "that of the family";
    EXPECT_EQ(rope.factor, 2);
    EXPECT_NEAR(rope.attention_factor, std::sqrt(1 + std::log(2.0) / std::log(4096.0)), 1e-15);
  }
  json["original_max_position_embeddings"] = 1024;
  EXPECT_EQ(parse(json).rope.factor, 8);
}

TEST(ModelConfig, Olmo3StretchesGlobalLayersAlone) {
  Json json = short_json("olmo3");
  EXPECT_EQ(parse(json).rope.theta, 5e5);
  EXPECT_FALSE(parse(json).local_rope);
  EXPECT_EQ(parse(json).sliding_windows, (std::vector<Index>{4096, 4096, 4096, 0}));
  json["rope_theta"] = 5e5;
  json["rope_scaling"] = R"({"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.25,
                             "original_max_position_embeddings": 256})"_json;
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.rope.scaling, RopeConfig::Scaling::yarn);
  EXPECT_EQ(c.rope.attention_factor, 1.25);
  EXPECT_EQ(c.local_rope.value(), (RopeConfig{.theta = 5e5}));
}

TEST(ModelConfig, GraniteAndSmolLm3ReadWhatIsTheirs) {
  Json json = short_json("granite");
  EXPECT_EQ(parse(json).attention_scale(), 1) << "what its config class says";
  json.update(R"({"embedding_multiplier": 12, "residual_multiplier": 0.22, "logits_scaling": 8,
                  "attention_multiplier": 0.0625})"_json);
  ModelConfig c = parse(json);
  EXPECT_EQ(c.embedding_multiplier, 12);
  EXPECT_EQ(c.residual_multiplier, 0.22);
  EXPECT_EQ(c.logits_scaling, 8);
  EXPECT_EQ(c.attention_scale(), 0.0625);
  json = short_json("smollm3");
  EXPECT_EQ(parse(json).rotary_layers, (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(parse(json).rope.theta, 2e6);
  json["no_rope_layer_interval"] = 2;
  c = parse(json);
  EXPECT_TRUE(c.is_rotary(0) && !c.is_rotary(1) && c.is_rotary(2) && !c.is_rotary(3));
  json["use_sliding_window"] = true;
  json["sliding_window"] = 9;
  EXPECT_EQ(parse(json).sliding_windows, (std::vector<Index>{0, 9, 0, 9}));
  json["no_rope_layers"] = {1, 1, 1, 1};
  EXPECT_TRUE(parse(json).rotary_layers.empty());
}

TEST(ModelConfig, GptNeoxReadsItsOwnRopeKeysOldAndNew) {
  Json json = short_json("gpt_neox");
  json["rotary_pct"] = 0.5;  // 3 of 6 numbers
  EXPECT_THROW(parse(json), std::invalid_argument);
  json["rotary_pct"] = 0.7;
  json["rotary_emb_base"] = 500;
  json["use_parallel_residual"] = false;
  ModelConfig c = parse(json);
  EXPECT_EQ(c.rotary_dim(), 4);
  EXPECT_EQ(c.rope.theta, 500);
  EXPECT_FALSE(c.parallel_residual);
  json["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 7e3}, {"partial_rotary_factor", 1.0}};
  c = parse(json);
  EXPECT_EQ(c.rotary_dim(), 6);
  EXPECT_EQ(c.rope.theta, 7e3);
}

TEST(ModelConfig, SlidingWindowsByLayer) {
  using Windows = std::vector<Index>;
  const Json types = {"full_attention", "sliding_attention", "sliding_attention", "full_attention"};
  for (const char* type : {"qwen2", "qwen3"}) {
    Json json = short_json(type);
    json["num_key_value_heads"] = 8;
    json["sliding_window"] = 7;
    json["max_window_layers"] = 3;
    EXPECT_EQ(parse(json).sliding_windows, Windows{});  // use_sliding_window is false
    json["use_sliding_window"] = true;
    EXPECT_EQ(parse(json).sliding_windows, (Windows{0, 0, 0, 7}));
    json["max_window_layers"] = 4;
    EXPECT_EQ(parse(json).sliding_windows, Windows{});
    json["layer_types"] = types;
    EXPECT_EQ(parse(json).sliding_windows, (Windows{0, 7, 7, 0}));
  }
  Json gemma = short_json("gemma2");
  gemma["sliding_window"] = 5;
  EXPECT_EQ(parse(gemma).sliding_windows, (Windows{5, 0, 5, 0}));
  gemma["layer_types"] = types;
  EXPECT_EQ(parse(gemma).sliding_windows, (Windows{0, 5, 5, 0}));
  Json mistral = short_json("mistral");
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(parse(mistral).sliding_windows, Windows{});
}

TEST(ModelConfig, NullSoftcapsAreNone) {
  Json json = short_json("gemma2");
  json["attn_logit_softcapping"] = nullptr;
  json["final_logit_softcapping"] = nullptr;
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.attn_logit_softcapping, 0);
  EXPECT_EQ(c.final_logit_softcapping, 0);
}

TEST(ModelConfig, ReadsRopeScalingOldAndNew) {
  Json json = llama_json();
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.5}};
  EXPECT_EQ(parse(json).rope.scaling, RopeConfig::Scaling::linear);
  EXPECT_EQ(parse(json).rope.factor, 2.5);
  json.erase("rope_scaling");
  json["rope_parameters"] = R"({"rope_type": "llama3", "rope_theta": 7e4, "factor": 8,
      "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64})"_json;
  const RopeConfig rope = parse(json).rope;
  EXPECT_EQ(rope.scaling, RopeConfig::Scaling::llama3);
  EXPECT_EQ(rope.theta, 7e4);
  EXPECT_EQ(rope.original_max_position_embeddings, 64);
}

TEST(ModelConfig, ReadsScalingsOfLongContexts) {
  using Scaling = RopeConfig::Scaling;
  Json json = llama_json();
  const auto read = [&](const Json& scaling) {
    json["rope_scaling"] = scaling;
    const RopeConfig rope = parse(json).rope;
    EXPECT_EQ(parse(write_model_config(parse(json))).rope, rope);
    return rope;
  };
  RopeConfig rope = read({{"type", "dynamic"}, {"factor", 2.0}});
  EXPECT_EQ(rope.scaling, Scaling::dynamic);
  EXPECT_EQ(rope.original_max_position_embeddings, 512);
  EXPECT_EQ(parse(json).max_position_embeddings, 1024) << "as long as texts may be";
  rope = read(R"({"rope_type": "yarn", "factor": null, "beta_fast": 16, "truncate": false,
                  "original_max_position_embeddings": 128})"_json);
  EXPECT_EQ(rope.scaling, Scaling::yarn);
  EXPECT_EQ(rope.factor, 4) << "512 / 128";
  EXPECT_EQ(rope.beta_fast, 16);
  EXPECT_FALSE(rope.truncate);
  rope = read(R"({"rope_type": "yarn", "factor": 4, "mscale": 0.5, "mscale_all_dim": 2.0,
                  "original_max_position_embeddings": 128})"_json);
  EXPECT_NEAR(rope.attention_factor, (0.05 * std::log(4.0) + 1) / (0.2 * std::log(4.0) + 1), 1e-15);
  rope = read(R"({"rope_type": "longrope", "short_factor": [1, 1, 2, 3],
                  "long_factor": [1, 2, 3, 4], "original_max_position_embeddings": 128})"_json);
  EXPECT_EQ(rope.scaling, Scaling::longrope);
  EXPECT_EQ(rope.long_factor.back(), 4);
  EXPECT_NEAR(rope.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(128.0)), 1e-15);
}

TEST(ModelConfig, SeveralEndTokensAreKept) {
  Json json = llama_json();
  json["eos_token_id"] = {7, 9};
  const ModelConfig several = parse(json);
  EXPECT_EQ(several.eos_token_ids, (std::vector<Index>{7, 9}));
  EXPECT_EQ(parse_model_config(write_model_config(several), "again"), several);
  json["eos_token_id"] = 5;
  EXPECT_EQ(parse(json).eos_token_ids, std::vector<Index>{5});
  json["eos_token_id"] = nullptr;
  EXPECT_TRUE(parse(json).eos_token_ids.empty());
}

TEST(ModelConfig, OfTwoRotarySettingsTransformersOneHolds) {
  Json json = llama_json();
  const Notices notices;
  // Under a separate name: a notice is printed once.
  const auto read = [](const Json& file) {
    return parse_model_config(file.dump(), "two/config.json");
  };
  json["rope_theta"] = 5000;
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 6000}};
  EXPECT_EQ(read(json).rope.theta, 6000);
  EXPECT_NE(notices.text().find("rope_theta 5000 differs from rope_theta 6000"), std::string::npos)
      << notices.text();
  // rope_scaling takes the place of all of rope_parameters.
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 3}};
  EXPECT_EQ(read(json).rope.theta, 5000);
  EXPECT_EQ(read(json).rope.factor, 3);
  EXPECT_NE(notices.text().find("rope_scaling is used"), std::string::npos) << notices.text();
  json["rope_scaling"] = Json::object();
  EXPECT_EQ(read(json).rope.theta, 6000);
  json["rope_scaling"] = R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                             "high_freq_factor": 4, "original_max_position_embeddings": 64})"_json;
  json["original_max_position_embeddings"] = 32;
  EXPECT_EQ(read(json).rope.original_max_position_embeddings, 32);
  json.erase("original_max_position_embeddings");
  json["rope_scaling"].erase("original_max_position_embeddings");
  json["max_position_embeddings"] = 512;
  EXPECT_EQ(read(json).rope.original_max_position_embeddings, 512);
  EXPECT_NE(notices.text().find("max_position_embeddings is used"), std::string::npos);
}

void expect_equal(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_TRUE(a == b) << write_model_config(a) << "is not\n" << write_model_config(b);
}

TEST(ModelConfig, WhatIsWrittenReadsBack) {
  for (const std::string& type : family_names())
    for (const Activation activation :
         {Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
      ModelConfig c = tiny_config(type);
      c.activation = activation;
      c.norm_eps = 3e-6;
      c.eos_token_ids = {11};
      c.tie_word_embeddings = !c.tie_word_embeddings;
      if (c.norm == NormKind::rms_norm) c.head_dim = 10;  // not hidden_size / heads
      if (type == "llama") c.attention_bias = c.attention_out_bias = c.mlp_bias = true;
      if (type == "gpt_neox") c.parallel_residual = false;
      if (type == "qwen2" || type == "qwen3") c.sliding_windows = {0, 5, 5};
      if (!c.learned_positions)
        c.rope = {.theta = 123,
                  .scaling = RopeConfig::Scaling::llama3,
                  .factor = 3,
                  .low_freq_factor = 2,
                  .high_freq_factor = 5,
                  .original_max_position_embeddings = 99,
                  .partial_rotary_factor = c.rope.partial_rotary_factor};
      if (type == "phi3")
        c.rope = {.theta = 123,
                  .scaling = RopeConfig::Scaling::longrope,
                  .factor = 4,
                  .short_factor = {1, 2},
                  .long_factor = {3, 4},
                  .attention_factor = 1.3,
                  .original_max_position_embeddings = 99,
                  .partial_rotary_factor = 0.4};
      expect_equal(parse_model_config(write_model_config(c), "written"), c);
    }
  ModelConfig uncapped = tiny_config("gemma2");
  uncapped.attn_logit_softcapping = uncapped.final_logit_softcapping = 0;
  uncapped.query_pre_attn_scalar = 0;
  uncapped.sliding_windows.clear();
  expect_equal(parse_model_config(write_model_config(uncapped), "written"), uncapped);
  ModelConfig one_rope = tiny_config("gemma3_text");
  one_rope.local_rope.reset();
  expect_equal(parse_model_config(write_model_config(one_rope), "written"), one_rope);
  ModelConfig linear = tiny_config("llama");
  linear.rope.scaling = RopeConfig::Scaling::linear;
  linear.rope.factor = 4;
  expect_equal(parse_model_config(write_model_config(linear), "written"), linear);
}

TEST(ModelConfig, GoldenConfigsReadAndRoundTrip) {
  const auto files = golden_entries("arch", "config.json");
  ASSERT_FALSE(files.empty()) << "no arch/*/config.json under " << golden_folder();
  for (const std::string& file : files) {
    if (!file.ends_with("/config.json")) continue;  // generation_config.json
    SCOPED_TRACE(file);
    const std::string text = read_text(golden_folder() / file);
    const Json json = Json::parse(text);
    const std::string type = json.at("model_type");
    if (std::ranges::none_of(families(), [&](const Family& f) { return f.model_type == type; })) {
      EXPECT_NE(error_of([&] { parse_model_config(text, file); }).find(type), std::string::npos);
      continue;
    }
    const ModelConfig c = parse_model_config(text, file);
    const auto either = [&](const char* one, const char* other) -> Index {
      return json.contains(one) ? json.at(one) : json.at(other);
    };
    EXPECT_EQ(c.hidden_size, either("hidden_size", "n_embd"));
    EXPECT_EQ(c.num_hidden_layers, either("num_hidden_layers", "n_layer"));
    EXPECT_EQ(c.num_attention_heads, either("num_attention_heads", "n_head"));
    const bool grows = c.rope.scaling == RopeConfig::Scaling::dynamic;
    EXPECT_EQ(grows ? c.rope.original_max_position_embeddings : c.max_position_embeddings,
              either("max_position_embeddings", "n_positions"));
    EXPECT_EQ(c.vocab_size, json.at("vocab_size"));
    expect_equal(parse_model_config(write_model_config(c), "written"), c);
  }
}

}  // namespace
}  // namespace focus
