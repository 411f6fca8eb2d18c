// How a GGUF file's keys and tensors say what rotary embeddings are and how they are scaled.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "layers/gguf_settings.h"
#include "tests/support/gguf_model.h"

namespace focus {
namespace {

using Model = GgufModel;

TEST(GgufRope, RotaryEmbeddings) {
  for (const std::uint32_t dims : {0u, 1u, 5u, 8u, ~0u})
    expect_refused(Model().u32("rope.dimension_count", dims),
                   "llama.rope.dimension_count must be even and from 2 to 6");
  expect_refused(Model().u32("rope.dimension_count", 4), "rotates whole heads");
  EXPECT_EQ(Model("gptneox").u32("rope.dimension_count", 4).config().rotary_dim(), 4);
  EXPECT_EQ(Model("gptneox").config().rope.partial_rotary_factor, 1);
  for (const std::uint32_t head : {4u, 8u, 49u, 80u, 98u, 103u, 128u})
    for (std::uint32_t dims = 2; dims <= head; dims += 2) {
      ModelConfig c = Model("gptneox")
                          .u32("attention.key_length", head)
                          .u32("rope.dimension_count", dims)
                          .config();
      EXPECT_EQ(c.rotary_dim(), dims) << head;
      c.hidden_size = 4 * head;
      EXPECT_EQ(parse_model_config(write_model_config(c), "x").rotary_dim(), dims);
    }
  // A share that configs say stays what they say.
  EXPECT_EQ(Model("gptneox")
                .u32("attention.key_length", 10)
                .u32("rope.dimension_count", 2)
                .config()
                .rope.partial_rotary_factor,
            0.25);
}

TEST(GgufRope, RotaryScaling) {
  const auto linear = [](const Model& model) { return model.config().rope; };
  const RopeConfig none, two{.scaling = RopeConfig::Scaling::linear, .factor = 2};
  EXPECT_EQ(linear(Model().text("rope.scaling.type", "linear").f32("rope.scaling.factor", 2)), two);
  EXPECT_EQ(linear(Model().f32("rope.scaling.factor", 2)), two);
  EXPECT_EQ(linear(Model().f32("rope.scale_linear", 2)), two);
  EXPECT_EQ(linear(Model().text("rope.scaling.type", "none").f32("rope.scaling.factor", 2)), none);
  EXPECT_EQ(linear(Model().text("rope.scaling.type", "linear")), none);
  for (const char* type : {"longrope", "dynamic"})
    expect_refused(Model().text("rope.scaling.type", type),
                   fmt::format("llama.rope.scaling.type \"{}\" is not supported", type));
  expect_refused(Model().f32("rope.scaling.factor", 0.5f), "at least 1, not 0.5");
  expect_refused(Model().f32("rope.scaling.factor", -1), "");
}

std::vector<float> factors_of(const RopeConfig& rope, Index dims) {
  RopeConfig plain = rope;
  plain.scaling = RopeConfig::Scaling::none;
  std::vector<float> factors;
  for (Index i = 0; i < dims / 2; ++i)
    factors.push_back(static_cast<float>(plain.frequency(i, dims) / rope.frequency(i, dims)));
  return factors;
}

TEST(GgufRope, Llama3ScalingFromItsFactors) {
  const RopeConfig cases[] = {
      {.theta = 5e5, .factor = 8, .original_max_position_embeddings = 8192},
      {.theta = 5e5, .factor = 32, .original_max_position_embeddings = 8192},
      {.theta = 5e4, .factor = 4, .original_max_position_embeddings = 32}};
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

TEST(GgufRope, FactorsOfOneAreNoScaling) {
  EXPECT_EQ(Model().tensor("rope_freqs.weight", {3}, {1, 1, 1}).config().rope, RopeConfig());
}

TEST(GgufRope, RefusesOtherFactors) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& factors :
       {std::vector<float>{1, 7, 3}, {0, 0, 0}, {1, kNan, 2}, {-1, 1, 1}, {1, 1, 1e30f}})
    expect_refused(Model().tensor("rope_freqs.weight", {3}, factors),
                   "not those of llama3 scaling");
  RopeConfig other{.theta = 1e4, .scaling = RopeConfig::Scaling::llama3, .factor = 2.5};
  other.original_max_position_embeddings = 3000;
  expect_refused(Model().tensor("rope_freqs.weight", {3}, factors_of(other, 6)),
                 "with the parameters of published models");
  expect_refused(Model().tensor("rope_freqs.weight", {4}), "must be 3 F32 values");
  expect_refused(Model().f32("rope.scale_linear", 2).tensor("rope_freqs.weight", {3}, {1, 1, 2}),
                 "not those of llama3 scaling");
}

TEST(GgufRope, Gemma3HasTwoRotaryBases) {
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

TEST(GgufRope, Yarn) {
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
  expect_refused(yarn(Model()).without("rope.scaling.original_context_length"),
                 "original_context_length is missing");
  expect_refused(yarn(Model()).u32("rope.scaling.original_context_length", 0),
                 "original_context_length must be positive");
  expect_refused(yarn(Model()).f32("rope.scaling.yarn_beta_slow", 40),
                 "yarn_beta_fast 32 must be at least");
}

TEST(GgufRope, Phi3HasLongropeByItsTensors) {
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
  expect_refused(half(Model("phi3")).tensor("rope_factors_long.weight", {2}, {3, 4}),
                 "must both be set");
  expect_refused(half(Model("phi3")).f32("rope.scaling.factor", 2),
                 "phi3 supports only longrope scaling");
  Model whole("phi3");
  expect_refused(factors(whole), "must be 3 F32 values");
  expect_refused(half(Model("phi3")).text("rope.scaling.type", "longrope"),
                 "rope_factors_long.weight is missing");
}

}  // namespace
}  // namespace focus
