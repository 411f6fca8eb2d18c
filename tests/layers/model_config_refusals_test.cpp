#include "tests/support/config_json.h"
#include "tests/support/temp_folder.h"

// What a config.json must not say.
namespace focus {
namespace {

/// Every error must name the file and hold `named`.
void expect_refused(const Json& json, const std::string& named) {
  EXPECT_THROW(parse(json), std::invalid_argument) << json.dump();
  const std::string error = error_of([&] { parse(json); });
  EXPECT_NE(error.find("some/config.json"), std::string::npos) << error;
  EXPECT_NE(error.find(named), std::string::npos) << named << " is not named in: " << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

TEST(ModelConfig, RefusesNumbersUnderTheFilesOwnKeys) {
  for (const auto& [key, named] : {std::pair("rotary_emb_base", "rotary_emb_base must be positive"),
                                   std::pair("layer_norm_eps", "layer_norm_eps must be in")}) {
    Json json = short_json("gpt_neox");
    json["num_attention_heads"] = 3;  // a quarter of 16 numbers is rotated
    EXPECT_NO_THROW(parse(json));
    json[key] = 0;
    expect_refused(json, named);
  }
}

struct Refusal {
  const char* base;
  const char* key;
  Json value;  // null: the key is taken away
  const char* named;
};

const std::vector<Refusal> kRefusals = {
    {"llama", "model_type", nullptr, "model_type is missing"},
    {"llama", "model_type", "t5", "\"t5\" is not supported (gpt2, llama"},
    {"llama", "model_type", 3, "model_type must be a string"},
    {"llama", "model_type", "ll\nama", "model_type must be a short string, not \"ll\\nama\""},
    {"llama", "vocab_size", nullptr, "vocab_size is missing"},
    {"llama", "hidden_size", nullptr, "hidden_size is missing"},
    {"llama", "hidden_size", 0, "hidden_size must be from 1"},
    {"llama", "hidden_size", -64, "hidden_size must be a non-negative integer"},
    {"llama", "hidden_size", 64.5, "hidden_size must be a non-negative integer"},
    {"llama", "hidden_size", "64", "hidden_size must be a non-negative integer"},
    {"llama", "hidden_size", 1ULL << 60, "hidden_size"},
    {"llama", "hidden_size", 1 << 21, "hidden_size"},
    {"llama", "hidden_size", 60, "num_attention_heads 8 does not divide hidden_size 60"},
    {"llama", "intermediate_size", 0, "intermediate_size"},
    {"llama", "num_hidden_layers", 0, "num_hidden_layers"},
    {"llama", "num_hidden_layers", 100000, "num_hidden_layers"},
    {"llama", "num_attention_heads", 0, "num_attention_heads"},
    {"llama", "num_key_value_heads", 0, "num_key_value_heads"},
    {"llama", "num_key_value_heads", 3, "num_key_value_heads 3 does not divide"},
    {"llama", "num_key_value_heads", 16, "num_key_value_heads"},
    {"llama", "head_dim", 0, "head_dim"},
    {"llama", "head_dim", 7, "even head_dim"},
    {"llama", "max_position_embeddings", 0, "max_position_embeddings"},
    {"llama", "vocab_size", 1LL << 30, "vocab_size"},
    {"llama", "rms_norm_eps", 0, "rms_norm_eps must be in"},
    {"llama", "rms_norm_eps", "small", "rms_norm_eps must be a number"},
    {"llama", "rope_theta", 0, "rope_theta"},
    {"llama", "hidden_act", "relu", "activation \"relu\""},
    {"llama", "tie_word_embeddings", 1, "tie_word_embeddings must be true or false"},
    {"llama", "pretraining_tp", 2, "pretraining_tp"},
    {"llama", "quantization_config", Json::object(), "quantised"},
    {"llama", "rope_scaling", "linear", "rope_scaling must be an object"},
    {"llama", "rope_scaling", {{"rope_type", "ntk"}, {"factor", 2}}, "\"ntk\""},
    {"llama", "rope_scaling",
     R"({"rope_type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 2})"_json,
     "beta_fast 1 must be at least beta_slow 2"},
    {"llama", "rope_scaling", {{"rope_type", "dynamic"}}, "factor is missing"},
    {"llama", "rope_parameters", R"({"rope_type": "yarn", "rope_theta": 1, "factor": 2})"_json,
     "yarn needs rope_theta other than 1"},
    {"llama", "rope_scaling", R"({"rope_type": "yarn", "factor": 2, "attention_factor": -1})"_json,
     "attention_factor must be from 0.001 to 1000, not -1"},
    {"llama", "rope_scaling", {{"type", "linear"}}, "rope_scaling: factor is missing"},
    {"llama", "rope_scaling", {{"type", "linear"}, {"factor", 0.5}}, "factor must be at least 1"},
    {"llama", "rope_parameters",
     R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
         "original_max_position_embeddings": 64})"_json,
     "high_freq_factor 4"},
    {"llama", "rope_parameters", R"({"full_attention": {"rope_type": "default"}})"_json,
     "full_attention is not supported"},
    {"llama", "rope_parameters", R"({"rope_type": "default", "partial_rotary_factor": 0.5})"_json,
     "partial_rotary_factor 0.5"},
    {"mistral", "model_type", "qwen2_moe", "\"qwen2_moe\""},
    {"mistral", "model_type", "qwen3_moe", "\"qwen3_moe\""},
    {"granite", "model_type", "granitemoehybrid", "\"granitemoehybrid\""},
    {"phi3", "model_type", "phimoe", "\"phimoe\""},
    {"llama", "model_type", "mamba2", "\"mamba2\""},
    {"mistral", "quantization_config", {{"bits", 4}}, "quantised"},
    {"mistral", "sliding_window", 0, "sliding_window"},
    {"mistral", "sliding_window", 1LL << 36, "sliding_window"},
    {"mistral", "num_hidden_layers", 1LL << 39, "num_hidden_layers"},
    {"mistral", "layer_types",
     R"(["full_attention", "sliding_attention", "full_attention", "sliding_attention"])"_json,
     "one window for all layers"},
    {"qwen2", "layer_types", {"full_attention"}, "layer_types names 1 layers"},
    {"qwen2", "layer_types", "full_attention", "layer_types must be a list of short strings"},
    {"qwen2", "layer_types",
     R"(["full_attention", "full_attention", "full_attention", "linear_attention"])"_json,
     "\"linear_attention\""},
    {"qwen2", "layer_types",
     R"(["full_attention", "full_attention", "full_attention", "sliding_attention"])"_json,
     "no sliding_window"},
    {"qwen2", "hidden_act", "relu2", "\"relu2\""},
    {"qwen2", "rope_scaling",
     R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 0})"_json,
     "original_max_position_embeddings must be positive"},
    {"qwen3", "rope_scaling", R"({"rope_type": "longrope", "original_max_position_embeddings": 64,
         "short_factor": [1, 2], "long_factor": [1, 2]})"_json,
     "short_factor must have 64 values"},
    {"qwen3", "rope_scaling", R"({"rope_type": "longrope", "original_max_position_embeddings": 64,
         "short_factor": 3, "long_factor": [1, 2]})"_json,
     "short_factor must be a list of numbers, not 3"},
    {"olmo2", "partial_rotary_factor", 0.5, "partial_rotary_factor 0.5"},
    {"gemma2", "query_pre_attn_scalar", 0, "query_pre_attn_scalar"},
    {"gemma2", "attn_logit_softcapping", 0, "attn_logit_softcapping must be positive or null"},
    {"gemma2", "query_pre_attn_scalar", 1e300, "query_pre_attn_scalar must be from"},
    {"gemma2", "attn_logit_softcapping", 1e-40, "attn_logit_softcapping must be from"},
    {"gemma2", "final_logit_softcapping", -3, "final_logit_softcapping"},
    {"gemma2", "use_bidirectional_attention", true, "use_bidirectional_attention"},
    {"llama", "is_causal", false, "attention here is causal"},
    {"qwen3", "use_bidirectional_attention", true, "attention here is causal"},
    {"gemma2", "hidden_activation", "relu", "\"relu\""},
    {"gemma3_text", "use_bidirectional_attention", true, "use_bidirectional_attention"},
    {"gemma3_text", "final_logit_softcapping", 0, "must be positive or null"},
    {"gemma3_text", "rope_parameters", R"({"rope_type": "default", "rope_theta": 3e5})"_json,
     "must hold full_attention and sliding_attention"},
    {"gemma3_text", "sliding_window_pattern", 0, "sliding_window_pattern must be positive"},
    {"gemma3_text", "rope_local_base_freq", 0, "rope_local_base_freq must be positive"},
    {"granite", "attention_multiplier", 0, "attention_multiplier must be positive"},
    {"granite", "logits_scaling", 0, "logits_scaling must be from"},
    {"granite", "residual_multiplier", -1, "residual_multiplier must be from"},
    {"smollm3", "no_rope_layers", {1, 0}, "no_rope_layers names 2 layers"},
    {"smollm3", "no_rope_layer_interval", 0, "no_rope_layer_interval must be positive"},
    {"phi3", "rope_scaling", {{"rope_type", "linear"}, {"factor", 2}}, "default or longrope"},
    {"gpt_neox", "num_attention_heads", 7, "num_attention_heads 7 does not divide hidden_size 48"},
    {"gpt_neox", "rotary_pct", 0.5, "even head_dim, not 3 (rotary_pct 0.5 of 6)"},
    {"gpt_neox", "rotary_pct", 1.5, "rotary_pct must be in"},
    {"gpt_neox", "rope_parameters",
     R"({"rope_type": "default", "partial_rotary_factor": 1.5})"_json,
     "partial_rotary_factor must be in"},
    {"gpt2", "n_embd", nullptr, "n_embd is missing"},
    {"gpt2", "n_head", 7, "n_head 7 does not divide n_embd 768"},
    {"gpt2", "n_head", 0, "n_head must be from 1"},
    {"gpt2", "n_layer", -1, "n_layer"},
    {"gpt2", "n_positions", 0, "n_positions must be from 1"},
    {"gpt2", "n_embd", 0, "n_embd must be from 1"},
    {"gpt2", "n_embd", 12 << 20, "n_embd must be from 1"},
    {"gpt2", "n_inner", 0, "n_inner must be from 1"},
    {"gpt2", "n_layer", 0, "n_layer must be from 1"},
    {"gpt2", "n_layer", 100000, "n_layer must be from 1"},
    {"gpt2", "layer_norm_epsilon", 0, "layer_norm_epsilon must be in"},
    {"gpt2", "activation_function", "relu", "\"relu\""},
    {"gpt2", "scale_attn_weights", false, "scale_attn_weights"},
    {"gpt2", "scale_attn_by_inverse_layer_idx", true, "scale_attn_by_inverse_layer_idx"},
    {"gpt2", "add_cross_attention", true, "add_cross_attention"},
};

TEST(ModelConfig, RefusesByName) {
  for (const Refusal& refusal : kRefusals) {
    const std::string base = refusal.base;
    Json json = base == "gpt2" ? gpt2_json() : base == "llama" ? llama_json() : short_json(base);
    if (base == "qwen2" || base == "qwen3") json["num_key_value_heads"] = 8;
    if (refusal.value.is_null())
      json.erase(refusal.key);
    else
      json[refusal.key] = refusal.value;
    SCOPED_TRACE(fmt::format("{} {}", refusal.base, refusal.key));
    expect_refused(json, refusal.named);
  }
}

TEST(ModelConfig, RefusesWhatIsNoObject) {
  for (const char* text : {"[]", "3"})
    EXPECT_THROW(parse_model_config(text, "some/config.json"), std::invalid_argument) << text;
  for (const char* text : {"", "{", "{} {}", R"({"a": 1e999})", R"({"a": 1, "a": 2})"})
    EXPECT_THROW(parse_model_config(text, "some/config.json"), std::runtime_error) << text;
  // As deep as would break a recursive writer of the value.
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_THROW(parse_model_config("{\"head_dim\":" + deep + "}", "some/config.json"),
               std::runtime_error);
}

}  // namespace
}  // namespace focus
