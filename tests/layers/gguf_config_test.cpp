#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "layers/gguf_settings.h"
#include "layers/weights.h"
#include "tests/support/compare.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/map_source.h"
#include "tests/support/random.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace focus {
namespace {

using testing::HasSubstr;

/// The settings of a tiny model, to be changed, and what read_gguf_config makes of them.
class Model {
 public:
  explicit Model(std::string architecture = "llama") : architecture_(std::move(architecture)) {
    set("general.architecture",
        [this](GgufFile& f, const std::string& key) { f.text(key, architecture_); });
    const bool gpt = architecture_ == "gpt2" || architecture_ == "gptneox";
    for (const auto& [name, value] :
         std::map<std::string, std::uint32_t>{{"block_count", 2},
                                              {"embedding_length", 24},
                                              {"feed_forward_length", 40},
                                              {"context_length", 64},
                                              {"attention.head_count", 4}})
      u32(name, value);
    f32(gpt ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-5f);
    tensor("token_embd.weight", {24, 37});
  }

  using Write = std::function<void(GgufFile&, const std::string& key)>;
  Model& set(const std::string& key, Write write) {
    keys_[key] = std::move(write);
    return *this;
  }
  Model& u32(const std::string& name, std::uint32_t x) {
    return own(name, [x](GgufFile& f, const std::string& key) { f.u32(key, x); });
  }
  Model& f32(const std::string& name, float x) {
    return own(name, [x](GgufFile& f, const std::string& key) { f.f32(key, x); });
  }
  Model& flag(const std::string& name, bool x) {
    return own(name, [x](GgufFile& f, const std::string& key) { f.flag(key, x); });
  }
  Model& text(const std::string& name, const std::string& x) {
    return own(name, [x](GgufFile& f, const std::string& key) { f.text(key, x); });
  }
  Model& by_layer(const std::string& name, const std::vector<std::uint32_t>& x) {
    return own(name, [x](GgufFile& f, const std::string& key) { f.numbers(key, 4, x); });
  }
  Model& flags(const std::string& name, const std::vector<std::uint8_t>& x) {
    return own(name, [x](GgufFile& f, const std::string& key) { f.numbers(key, 7, x); });
  }
  Model& without(const std::string& name) {
    keys_.erase(architecture_ + "." + name);
    return *this;
  }
  Model& tensor(const std::string& name, const std::vector<std::uint64_t>& dims,
                std::vector<float> numbers = {}) {
    std::uint64_t size = 1;
    for (const std::uint64_t dim : dims) size *= dim;
    numbers.resize(size);
    tensors_.emplace_back(name, dims, numbers);
    return *this;
  }

  ModelConfig config() const {
    GgufFile file;
    for (const auto& [key, write] : keys_) write(file, key);
    for (const auto& [name, dims, numbers] : tensors_) file.floats(name, dims, numbers);
    const TempFolder folder;
    write_text(folder / "x.gguf", file.bytes());
    return read_gguf_config(GgufSource(folder / "x.gguf"));
  }
  std::string error() const {
    const std::string text = error_of([&] { config(); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_THAT(text, testing::AnyOf("", HasSubstr("x.gguf")));
    return text;
  }

 private:
  Model& own(const std::string& name, Write write) {
    return set(architecture_ + "." + name, std::move(write));
  }
  std::string architecture_;
  std::map<std::string, Write> keys_;
  std::vector<std::tuple<std::string, std::vector<std::uint64_t>, std::vector<float>>> tensors_;
};

TEST(GgufConfig, DefaultsOfKeysThatAreAbsent) {
  const ModelConfig c = Model().config();
  EXPECT_EQ(c.model_type, "llama");
  EXPECT_EQ(c.vocab_size, 37);
  EXPECT_EQ(c.hidden_size, 24);
  EXPECT_EQ(c.intermediate_size, 40);
  EXPECT_EQ(c.num_hidden_layers, 2);
  EXPECT_EQ(c.num_attention_heads, 4);
  EXPECT_EQ(c.num_key_value_heads, 4);
  EXPECT_EQ(c.head_dim, 6);
  EXPECT_EQ(c.max_position_embeddings, 64);
  EXPECT_EQ(c.norm_eps, 1e-5);  // the decimal, not the float32
  EXPECT_EQ(c.rope, RopeConfig());
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_FALSE(c.attention_bias || c.attention_out_bias || c.mlp_bias);
  EXPECT_FALSE(c.bos_token_id || c.eos_token_id);
  EXPECT_TRUE(c.sliding_windows.empty());
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
  EXPECT_THAT(Model("qwen3").u32("attention.value_length", 8).error(),
              HasSubstr("qwen3.attention.value_length is 8, but keys have width 6"));
  EXPECT_THAT(Model().u32("attention.head_count", 0).error(),
              HasSubstr("llama.attention.head_count must be from 1"));
  EXPECT_THAT(Model().u32("attention.head_count", 5).error(),
              HasSubstr("llama.attention.head_count 5 does not divide llama.embedding_length 24"));
  EXPECT_THAT(Model().u32("attention.head_count_kv", 3).error(), HasSubstr("does not divide"));
  EXPECT_THAT(Model().u32("attention.head_count_kv", 0).error(),
              HasSubstr("llama.attention.head_count_kv must be from 1"));
}

TEST(GgufConfig, NumbersByLayer) {
  const ModelConfig c = Model()
                            .by_layer("attention.head_count", {4, 4})
                            .by_layer("attention.head_count_kv", {2, 2})
                            .by_layer("feed_forward_length", {40, 40})
                            .config();
  EXPECT_EQ(c.num_key_value_heads, 2);
  EXPECT_EQ(c.intermediate_size, 40);
  EXPECT_THAT(Model().by_layer("attention.head_count", {4, 2}).error(),
              HasSubstr("llama.attention.head_count differs between layers"));
  EXPECT_THAT(Model().by_layer("feed_forward_length", {40, 40, 40}).error(),
              HasSubstr("has 3 values for 2 layers"));
  EXPECT_THAT(Model().by_layer("feed_forward_length", {}).error(), HasSubstr("has 0 values"));
}

TEST(GgufConfig, RefusesAbsurdNumbers) {
  EXPECT_THAT(Model().u32("block_count", 1u << 31).error(),
              HasSubstr("llama.block_count must be from 1 to 4096"));
  EXPECT_THAT(Model().u32("block_count", 0).error(), HasSubstr("llama.block_count must be"));
  EXPECT_THAT(Model().u32("embedding_length", 0).error(), HasSubstr("llama.embedding_length"));
  EXPECT_THAT(Model().u32("context_length", ~0u).error(), HasSubstr("llama.context_length"));
  EXPECT_THAT(Model().u32("vocab_size", 36).error(), HasSubstr("token_embd.weight has 37 rows"));
  for (const char* name :
       {"block_count", "embedding_length", "feed_forward_length", "context_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon"})
    EXPECT_THAT(Model().without(name).error(),
                HasSubstr(fmt::format("key llama.{} is missing", name)));
  for (const float eps : {0.0f, -1e-5f, 1.0f})
    EXPECT_THAT(Model().f32("attention.layer_norm_rms_epsilon", eps).error(),
                HasSubstr("layer_norm_rms_epsilon must be in (0, 1)"));
  EXPECT_THAT(Model("gpt2").f32("attention.layer_norm_epsilon", 0).error(),
              HasSubstr("gpt2.attention.layer_norm_epsilon must be in (0, 1)"));
  for (const float x :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(Model().f32("attention.layer_norm_rms_epsilon", x).error(),
                HasSubstr("must be finite"));
    EXPECT_THAT(Model().f32("rope.freq_base", x).error(), HasSubstr("must be finite"));
  }
  for (const float theta : {0.0f, -1.0f})
    EXPECT_THAT(Model().f32("rope.freq_base", theta).error(),
                HasSubstr("llama.rope.freq_base must be positive"));
  EXPECT_THAT(Model().text("block_count", "2").error(), HasSubstr("must be an integer"));
}

TEST(GgufConfig, RotaryEmbeddings) {
  for (const std::uint32_t dims : {0u, 1u, 5u, 8u, ~0u})
    EXPECT_THAT(Model().u32("rope.dimension_count", dims).error(),
                HasSubstr("llama.rope.dimension_count must be even and from 2 to 6"));
  EXPECT_THAT(Model().u32("rope.dimension_count", 4).error(), HasSubstr("rotates whole heads"));
  EXPECT_EQ(Model("gptneox").u32("rope.dimension_count", 4).config().rotary_dim(), 4);
  EXPECT_EQ(Model("gptneox").config().rope.partial_rotary_factor, 1);
  for (const std::uint32_t head : {4u, 8u, 49u, 80u, 98u, 103u, 128u})
    for (std::uint32_t dims = 2; dims <= head; dims += 2) {
      const ModelConfig c = Model("gptneox")
                                .u32("attention.key_length", head)
                                .u32("rope.dimension_count", dims)
                                .config();
      EXPECT_EQ(c.rotary_dim(), dims) << head;
      EXPECT_EQ(parse_model_config(write_model_config([&] {
                                     ModelConfig whole = c;
                                     whole.hidden_size = 4 * head;
                                     return whole;
                                   }()),
                                   "x")
                    .rotary_dim(),
                dims);
    }
  // A share that configs say stays what they say.
  EXPECT_EQ(Model("gptneox")
                .u32("attention.key_length", 10)
                .u32("rope.dimension_count", 2)
                .config()
                .rope.partial_rotary_factor,
            0.25);
}

TEST(GgufConfig, RotaryScaling) {
  const auto linear = [](const Model& model) { return model.config().rope; };
  const RopeConfig none, two{.scaling = RopeConfig::Scaling::linear, .factor = 2};
  EXPECT_EQ(linear(Model().text("rope.scaling.type", "linear").f32("rope.scaling.factor", 2)), two);
  EXPECT_EQ(linear(Model().f32("rope.scaling.factor", 2)), two);
  EXPECT_EQ(linear(Model().f32("rope.scale_linear", 2)), two);
  EXPECT_EQ(linear(Model().text("rope.scaling.type", "none").f32("rope.scaling.factor", 2)), none);
  EXPECT_EQ(linear(Model().text("rope.scaling.type", "linear")), none);
  for (const char* type : {"longrope", "dynamic"})
    EXPECT_THAT(Model().text("rope.scaling.type", type).error(),
                HasSubstr(fmt::format("llama.rope.scaling.type \"{}\" is not supported", type)));
  EXPECT_THAT(Model().f32("rope.scaling.factor", 0.5f).error(), HasSubstr("at least 1, not 0.5"));
  EXPECT_THAT(Model().f32("rope.scaling.factor", -1).error(), HasSubstr(""));
}

std::vector<float> factors_of(const RopeConfig& rope, Index dims) {
  RopeConfig plain = rope;
  plain.scaling = RopeConfig::Scaling::none;
  std::vector<float> factors;
  for (Index i = 0; i < dims / 2; ++i)
    factors.push_back(static_cast<float>(plain.frequency(i, dims) / rope.frequency(i, dims)));
  return factors;
}

TEST(GgufConfig, Llama3ScalingFromItsFactors) {
  const RopeConfig cases[] = {{.theta = 5e5,
                               .factor = 8,
                               .low_freq_factor = 1,
                               .high_freq_factor = 4,
                               .original_max_position_embeddings = 8192},
                              {.theta = 5e5,
                               .factor = 32,
                               .low_freq_factor = 1,
                               .high_freq_factor = 4,
                               .original_max_position_embeddings = 8192},
                              {.theta = 5e4,
                               .factor = 4,
                               .low_freq_factor = 1,
                               .high_freq_factor = 4,
                               .original_max_position_embeddings = 32},
                              {.theta = 1e4,
                               .factor = 2.5,
                               .low_freq_factor = 1,
                               .high_freq_factor = 4,
                               .original_max_position_embeddings = 3000},
                              {.theta = 5e5,
                               .factor = 16,
                               .low_freq_factor = 1,
                               .high_freq_factor = 3,
                               .original_max_position_embeddings = 5000},
                              {.theta = 5e5,
                               .factor = 8,
                               .low_freq_factor = 1,
                               .high_freq_factor = 2.5,
                               .original_max_position_embeddings = 4096}};
  for (RopeConfig wanted : cases) {
    wanted.scaling = RopeConfig::Scaling::llama3;
    for (const std::uint32_t dims : {64u, 128u}) {
      const ModelConfig c = Model()
                                .u32("embedding_length", 4 * dims)
                                .f32("rope.freq_base", static_cast<float>(wanted.theta))
                                .tensor("rope_freqs.weight", {dims / 2}, factors_of(wanted, dims))
                                .config();
      EXPECT_EQ(c.rope, wanted) << wanted.original_max_position_embeddings << " " << dims;
    }
  }
}

TEST(GgufConfig, FactorsOfOneAreNoScaling) {
  EXPECT_EQ(Model().tensor("rope_freqs.weight", {3}, {1, 1, 1}).config().rope, RopeConfig());
}

TEST(GgufConfig, RefusesOtherFactors) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& factors :
       {std::vector<float>{1, 7, 3}, {0, 0, 0}, {1, kNan, 2}, {-1, 1, 1}, {1, 1, 1e30f}})
    EXPECT_THAT(Model().tensor("rope_freqs.weight", {3}, factors).error(),
                HasSubstr("not those of llama3 scaling"));
  EXPECT_THAT(Model().tensor("rope_freqs.weight", {4}).error(), HasSubstr("must be 3 F32 values"));
  EXPECT_THAT(
      Model().f32("rope.scale_linear", 2).tensor("rope_freqs.weight", {3}, {1, 1, 2}).error(),
      HasSubstr("not those of llama3 scaling"));
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
  EXPECT_THAT(Model(four).flags("attention.sliding_window_pattern", {0, 1}).error(),
              HasSubstr("has 2 values for 4 layers"));
  EXPECT_THAT(Model("qwen2").u32("attention.sliding_window", 9).error(),
              HasSubstr("it is unknown which layers have the window"));
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
  EXPECT_THAT(Model("gemma2").f32("attn_logit_softcapping", -5).error(),
              HasSubstr("gemma2.attn_logit_softcapping must be from"));
}

TEST(GgufConfig, Biases) {
  Model both;
  both.tensor("blk.0.attn_q.bias", {24}).tensor("blk.0.attn_output.bias", {24});
  EXPECT_TRUE(both.config().attention_bias && both.config().attention_out_bias);
  EXPECT_THAT(Model().tensor("blk.0.attn_qkv.bias", {72}).error(),
              HasSubstr("biases only on q, k and v"));
  EXPECT_TRUE(Model().tensor("blk.0.ffn_up.bias", {40}).config().mlp_bias);
  EXPECT_TRUE(Model("qwen2").config().attention_bias);
  EXPECT_TRUE(Model("gpt2").config().mlp_bias);
  EXPECT_FALSE(Model("gptneox").flag("use_parallel_residual", false).config().parallel_residual);
}

TEST(GgufConfig, Gemma3HasTwoRotaryBases) {
  ModelConfig c = Model("gemma3")
                      .u32("attention.sliding_window", 9)
                      .f32("rope.freq_base", 1e6)
                      .f32("rope.scaling.factor", 8)
                      .config();
  EXPECT_EQ(c.model_type, "gemma3_text");
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.rope.scaling, RopeConfig::Scaling::linear);
  EXPECT_EQ(c.local_rope.value(), RopeConfig()) << "10000, and no scaling";
  EXPECT_EQ(c.sliding_windows, (std::vector<Index>{9, 9})) << "the sixth would be global";
  EXPECT_EQ(c.query_pre_attn_scalar, 0);
  c = Model("gemma3")
          .u32("attention.sliding_window", 9)
          .u32("attention.sliding_window_pattern", 2)
          .f32("rope.freq_base_swa", 500)
          .f32("final_logit_softcapping", 7)
          .config();
  EXPECT_EQ(c.local_rope.value().theta, 500);
  EXPECT_EQ(c.sliding_windows, (std::vector<Index>{9, 0}));
  EXPECT_EQ(c.final_logit_softcapping, 7);
}

TEST(GgufConfig, Yarn) {
  const auto yarn = [](Model&& model) -> Model& {
    return model.text("rope.scaling.type", "yarn")
        .f32("rope.scaling.factor", 4)
        .u32("rope.scaling.original_context_length", 16);
  };
  RopeConfig rope = yarn(Model()).config().rope;
  EXPECT_EQ(rope.scaling, RopeConfig::Scaling::yarn);
  EXPECT_EQ(rope.factor, 4);
  EXPECT_EQ(rope.original_max_position_embeddings, 16);
  EXPECT_EQ(rope.beta_fast, 32);
  const double usual = 0.1 * std::log(4.0) + 1;
  EXPECT_NEAR(rope.attention_factor, usual, 1e-12);
  rope = yarn(Model())
             .f32("rope.scaling.yarn_beta_fast", 8)
             .f32("rope.scaling.attn_factor", 2)
             .config()
             .rope;
  EXPECT_EQ(rope.beta_fast, 8);
  EXPECT_NEAR(rope.attention_factor, 2 * usual, 1e-12);
  rope =
      yarn(Model()).f32("rope.scaling.yarn_attn_factor", static_cast<float>(usual)).config().rope;
  EXPECT_EQ(rope.attention_factor, usual) << "the number whose float32 that is";
  EXPECT_THAT(yarn(Model()).without("rope.scaling.original_context_length").error(),
              HasSubstr("original_context_length is missing"));
  EXPECT_THAT(yarn(Model()).u32("rope.scaling.original_context_length", 0).error(),
              HasSubstr("original_context_length must be positive"));
  EXPECT_THAT(yarn(Model()).f32("rope.scaling.yarn_beta_slow", 40).error(),
              HasSubstr("yarn_beta_fast 32 must be at least"));
}

TEST(GgufConfig, Phi3HasLongropeByItsTensors) {
  const auto half = [](Model&& model) -> Model& { return model.u32("rope.dimension_count", 4); };
  const auto factors = [](Model& model) -> Model& {
    return model.tensor("rope_factors_long.weight", {2}, {3, 4})
        .tensor("rope_factors_short.weight", {2}, {1, 2});
  };
  EXPECT_EQ(half(Model("phi3")).config().rope.scaling, RopeConfig::Scaling::none);
  EXPECT_EQ(half(Model("phi3")).config().rotary_dim(), 4);
  const RopeConfig rope = factors(half(Model("phi3")))
                              .u32("rope.scaling.original_context_length", 16)
                              .f32("rope.scaling.attn_factor", 1.25)
                              .config()
                              .rope;
  EXPECT_EQ(rope.scaling, RopeConfig::Scaling::longrope);
  EXPECT_EQ(rope.long_factor, (std::vector<double>{3, 4}));
  EXPECT_EQ(rope.short_factor, (std::vector<double>{1, 2}));
  EXPECT_EQ(rope.attention_factor, 1.25);
  EXPECT_EQ(rope.original_max_position_embeddings, 16);
  EXPECT_THAT(half(Model("phi3")).tensor("rope_factors_long.weight", {2}, {3, 4}).error(),
              HasSubstr("must both be set"));
  EXPECT_THAT(half(Model("phi3")).f32("rope.scaling.factor", 2).error(),
              HasSubstr("phi3 supports only longrope scaling"));
  Model whole("phi3");
  EXPECT_THAT(factors(whole).error(), HasSubstr("must be 3 F32 values"));
  EXPECT_THAT(half(Model("phi3")).text("rope.scaling.type", "longrope").error(),
              HasSubstr("rope_factors_long.weight is missing"));
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
  EXPECT_THAT(Model("granite").f32("logit_scale", -1).error(), HasSubstr("logits_scaling must be"));
  const ModelConfig smollm3 = Model("smollm3").u32("block_count", 5).config();
  EXPECT_EQ(smollm3.rotary_layers, (std::vector<bool>{true, true, true, false, true}));
  const ModelConfig c =
      Model("olmo2").u32("block_count", 5).u32("attention.sliding_window", 9).config();
  EXPECT_EQ(c.model_type, "olmo3");
  EXPECT_EQ(c.sliding_windows, (std::vector<Index>{9, 9, 9, 0, 9}));
  EXPECT_EQ(Model("olmo2").config().model_type, "olmo2");
}

TEST(GgufConfig, NamesWhatIsNoModelItKnows) {
  EXPECT_THAT(Model("gemma4").error(),
              HasSubstr("architecture \"gemma4\" is not supported (gpt2,"));
  EXPECT_THAT(Model("x\n").error(), HasSubstr("architecture \"x\\n\""));
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
  EXPECT_EQ(with(1, 36, "llama").eos_token_id, 36);
  EXPECT_FALSE(with(1, 37, "llama").eos_token_id);
  EXPECT_FALSE(with(1, 2, "none").bos_token_id);
}

}  // namespace
}  // namespace focus
