#include "focus/train/run_config.h"

#include "autograd/check.h"
#include "layers/family.h"

namespace focus {

ModelConfig ModelShape::to_model_config(Index vocab_size, Index context) const {
  const Family& family = find_family(model_type, "model");
  ModelConfig c = family.common;
  c.model_type = model_type;
  c.vocab_size = vocab_size;
  c.hidden_size = hidden_size;
  // A gated MLP has three matrices where the other has two: 8/3 against 4 widths.
  c.intermediate_size = intermediate_size > 0 ? intermediate_size
                        : c.gated_mlp         ? (hidden_size * 8 / 3 + 31) / 32 * 32
                                              : 4 * hidden_size;
  c.num_hidden_layers = num_hidden_layers;
  c.num_attention_heads = num_attention_heads;
  c.num_key_value_heads = num_key_value_heads == 0 ? num_attention_heads : num_key_value_heads;
  check(hidden_size % num_attention_heads == 0,
        "model: num_attention_heads {} does not divide hidden_size {}", num_attention_heads,
        hidden_size);
  c.head_dim = hidden_size / num_attention_heads;
  c.max_position_embeddings = context;
  c.tie_word_embeddings = tie_word_embeddings;
  c.rope.theta = rope_theta;
  c.initializer_range = initializer_range;
  if (sliding_window > 0) {
    check(family.slides != nullptr,
          "model.sliding_window is {}, but new models of {} have no sliding window: leave it 0",
          sliding_window, model_type);
    for (Index i = 0; i < num_hidden_layers; ++i)
      c.sliding_windows.push_back(family.slides(i) ? sliding_window : 0);
  }
  c.validate("model");
  check(parse_model_config(write_model_config(c), "model").num_key_value_heads ==
            c.num_key_value_heads,
        "model.num_key_value_heads is {}, but {} has as many as heads: leave it 0",
        num_key_value_heads, model_type);
  return c;
}

std::optional<RivalConfig> RunConfig::rival() const {
  switch (attention) {
    case AttentionChoice::window:
      return window;
    case AttentionChoice::performer:
      return performer;
    case AttentionChoice::routing_transformer:
      return routing_transformer;
    case AttentionChoice::dense:
    case AttentionChoice::focus:
      break;
  }
  return std::nullopt;
}

TrainingPhase RunConfig::phase_at(std::int64_t step) const {
  if (method != Method::two_phase) return {optim, 0, steps};
  if (step < two_phase.phase1_steps) return {optim, 0, two_phase.phase1_steps};
  OptimConfig second = optim;
  second.lr = two_phase.lr;
  second.warmup_steps = two_phase.warmup_steps;
  return {second, two_phase.phase1_steps, steps - two_phase.phase1_steps};
}

void RunConfig::validate() const {
  check(!data.train.empty(), "data.train is empty: name text files or folders");
  check(method == Method::scratch || !base.empty(),
        "base is empty: {} needs a checkpoint (a store or a Hugging Face folder)",
        enum_names(method)[static_cast<std::size_t>(method)]);
  check(method != Method::scratch || base.empty(), "base is set, but scratch starts from nothing");
  check(method != Method::scratch || !tokenizer.empty(),
        "tokenizer is empty: scratch needs one (bytes, or a file)");
  check(!out.empty(), "out is empty: name a folder for this run");
  validate_step();
}

void RunConfig::validate_step() const {
  if (method == Method::two_phase) {
    check(two_phase.phase1_steps < steps,
          "two_phase.phase1_steps is {}, but steps, both phases together, is {}: wanted fewer",
          two_phase.phase1_steps, steps);
    check(two_phase.lr > 0, "two_phase.lr must be positive, not {}", two_phase.lr);
    check(two_phase.warmup_steps >= 0, "two_phase.warmup_steps must not be negative, not {}",
          two_phase.warmup_steps);
    check(
        attention == AttentionChoice::dense || attention == AttentionChoice::focus,
        "attention {} does not go with two_phase, which trains focus: leave it out, or use method "
        "full",
        enum_names(attention)[static_cast<std::size_t>(attention)]);
  }
  check(compute == Compute::float32 || !trains_base(),
        "compute bf16 is for frozen weights, but {} trains them all: use retrofit or lora, or "
        "float32",
        enum_names(method)[static_cast<std::size_t>(method)]);
  check(model.dropout >= 0 && model.dropout < 1,
        "model.dropout is {}, wanted at least 0 and below 1", model.dropout);
  check(model.dropout == 0 || trains_base(),
        "model.dropout is {}, but {} trains nothing of the model: leave it 0{}", model.dropout,
        enum_names(method)[static_cast<std::size_t>(method)],
        method == Method::lora ? ", or set lora.dropout" : "");
  optim.validate();
  if (has_focus()) focus.validate();
  if (method == Method::lora) {
    check(
        attention == AttentionChoice::dense,
        "attention focus is not supported together with lora: leave attention dense, or retrofit");
    lora.validate();
  }
  if (const auto other = rival()) {
    check(trains_base(),
          "attention {0} has nothing to train on a frozen base: use method full or scratch, or "
          "focus eval --attention {0} for the base as it is",
          kind_of(*other));
    std::visit([](const auto& settings) { settings.validate(); }, *other);
  }
}

}  // namespace focus
