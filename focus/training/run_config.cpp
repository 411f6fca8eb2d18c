#include "focus/training/run_config.h"

#include "autograd/base/check.h"
#include "data/settings/config.h"
#include "focus/evaluation/attention_spec.h"
#include "focus/method/focus_files.h"
#include "focus/method/grouping/grouping.h"
#include "layers/family.h"

namespace focus {
namespace {

/// dense, focus, and the mechanisms that a model can be trained with.
std::vector<std::string_view> trainable_attentions() {
  std::vector<std::string_view> names = {"dense"};
  for (const AdapterKind& kind : adapter_kinds())
    if (kind.role == AdapterRole::focus || kind.is_trainable_mechanism())
      names.push_back(kind.name);
  return names;
}

bool needs_no_step(const FocusConfig& focus) {
  const GroupingKind& kind = grouping_kind(focus);
  return kind.needs_no_step == nullptr || kind.needs_no_step(focus);
}
/// What a run does not have: whatever its defaults were when it began.
RunConfig without_what_is_idle(RunConfig config) {
  const FocusConfig defaults;
  config.data.document_eos = true;  // the tokens' fingerprint says whether it changed anything
  if (!config.has_focus()) {
    config.focus = defaults;
    return config;
  }
  for (std::size_t i = 0; i < config.focus.groupings.size(); ++i)
    if (config.focus.groupings[i].name != config.focus.grouping.name)
      config.focus.groupings[i].settings = defaults.groupings[i].settings;
  if (config.focus.training != Training::summary) config.focus.summary = defaults.summary;
  return config;
}

}  // namespace

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
  check(max_position_embeddings == 0 || max_position_embeddings >= context,
        "model.max_position_embeddings is {}, but data.context is {}: expected at least that many, "
        "or 0",
        max_position_embeddings, context);
  c.max_position_embeddings = max_position_embeddings == 0 ? context : max_position_embeddings;
  c.tie_word_embeddings = tie_word_embeddings;
  c.rope.theta = rope_theta;
  c.initializer_range = initializer_range;
  if (sliding_window > 0) {
    check(family.has_local_layers(),
          "model.sliding_window is {}, but new models of {} have no sliding window: leave it 0",
          sliding_window, model_type);
    for (Index i = 0; i < num_hidden_layers; ++i)
      c.sliding_windows.push_back(family.slides(i) ? sliding_window : 0);
  }
  std::vector<bool> rotary;
  for (Index i = 0; i < num_hidden_layers; ++i) rotary.push_back(family.rotates(i));
  c.set_rotary_layers(std::move(rotary));
  c.validate("model");
  check(parse_model_config(write_model_config(c), "model").num_key_value_heads ==
            c.num_key_value_heads,
        "model.num_key_value_heads is {}, but {} has one per head: leave it 0", num_key_value_heads,
        model_type);
  return c;
}

void read_value(const ConfigNode& node, const Range&, TrainedAttention& value) {
  const std::vector<std::string_view> names = trainable_attentions();
  ConfigNode name = node;
  name.text = node.text.substr(0, node.text.find(':'));
  TrainedAttention read{.name = std::string(names[read_choice(name, names)])};
  const bool mechanism = read.name != "dense" && read.name != "focus";
  check(mechanism || name.text == node.text,
        "expected only {}; its settings are in the section focus", read.name);
  if (mechanism) try {
      read.settings = parse_attention(node.text).settings;
    } catch (const std::runtime_error& error) {
      throw std::invalid_argument(error.what());
    }
  value = read;
}

std::string value_text(const TrainedAttention& value) {
  std::string text = value.name;
  if (value.settings) {
    AnySettings settings = *value.settings;
    for (const ConfigField& field : config_fields(settings))
      text += fmt::format(":{}={}", field.key, field.text());
  }
  return value_text(text);
}

std::string type_text(const TrainedAttention&) { return choices_text(trainable_attentions()); }

std::optional<AdapterChoice> RunConfig::mechanism() const {
  if (!attention.settings) return std::nullopt;
  return AdapterChoice{&adapter_kind(attention.name), *attention.settings};
}

bool RunConfig::has_focus() const {
  if (method == Method::two_phase || attention.name == "focus") return true;
  const auto other = method == Method::retrofit ? mechanism() : std::nullopt;
  return method == Method::retrofit && !(other && other->kind->has_parameters());
}

std::vector<AdapterChoice> RunConfig::adapters() const {
  std::vector<AdapterChoice> list;
  if (has_focus()) list.push_back({&adapter_kind("focus"), focus});
  if (has_lora()) list.push_back({&adapter_kind("lora"), lora});
  if (const auto trained = mechanism()) list.push_back(*trained);
  return list;
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
  check(!data.train.empty() || !data.train_texts.empty(),
        "data.train is empty: expected text files or folders, as in data.train=FILE");
  check(data.mix.empty() || (data.train_texts.empty() && !prefers()),
        "data.mix repeats whole documents of files: it takes no texts in memory and no pairs of "
        "objective dpo");
  check(data.mix.empty() || data.mix.size() == data.train.size(),
        "data.mix has {} weights for {} texts of data.train", data.mix.size(), data.train.size());
  for (const double weight : data.mix)
    check(weight > 0, "a weight of data.mix is {}, expected a positive number", weight);
  check(data.mix.empty() || data.valid_fraction == 0 || !data.valid.empty() ||
            !data.valid_texts.empty(),
        "data.mix repeats texts, so none can be held out of them: name data.valid, or set "
        "data.valid_fraction=0");
  check(method == Method::scratch || !base.empty(),
        "base is empty: {} needs a base model (a checkpoint file (.h5), a Hugging Face folder or a "
        "GGUF file)",
        enum_names(method)[static_cast<std::size_t>(method)]);
  check(method != Method::scratch || base.empty(), "base is set, but scratch trains a new model");
  check(method != Method::scratch || !tokenizer.empty(),
        "tokenizer is empty: scratch needs one (bytes, or a file)");
  check(method != Method::scratch || init_adapter.empty(),
        "init_adapter is set, but scratch trains a new model, which no adapter is for");
  check(!out.empty(), "out is empty: name a folder for this run");
  validate_step();
}

void RunConfig::validate_step() const {
  check(steps > 0 ||
            (steps == 0 && method == Method::retrofit && has_focus() && needs_no_step(focus)),
        "steps is {}: 0 steps can only place keys, in a retrofit with focus.grouping keys and "
        "focus.keys.fit_step 0",
        steps);
  if (method == Method::two_phase) {
    check(two_phase.phase1_steps < steps,
          "two_phase.phase1_steps is {}, but steps, both phases together, is {}: expected fewer",
          two_phase.phase1_steps, steps);
    check(two_phase.lr > 0, "two_phase.lr must be positive, not {}", two_phase.lr);
    check(two_phase.warmup_steps >= 0, "two_phase.warmup_steps must not be negative, not {}",
          two_phase.warmup_steps);
    check(attention.name == "dense" || attention.name == "focus",
          "attention {} cannot be combined with two_phase, which trains focus: leave it out, or "
          "use method full",
          attention.name);
  }
  check(precision == Precision::float32 || precision == Precision::bf16 || !trains_base(),
        "precision {} is for frozen weights, but {} trains them all: use retrofit or lora, or "
        "float32 or bf16",
        name_of(precision), enum_names(method)[static_cast<std::size_t>(method)]);
  const bool notes_losses =
      (has_focus() && (focus.ablations.balance_loss > 0 || focus.ablations.entropy_loss > 0 ||
                       focus.objective == Objective::layer_distillation)) ||
      attention.name == "indexer" || attention.name == "routing_transformer";
  check(!activation_checkpointing || !notes_losses,
        "activation_checkpointing cannot be combined with a balance or entropy loss, objective "
        "layer_distillation, or attention indexer or routing_transformer: leave it false");
  check(model.dropout >= 0 && model.dropout < 1,
        "model.dropout is {}, expected at least 0 and below 1", model.dropout);
  check(model.dropout == 0 || trains_base(),
        "model.dropout is {}, but {} does not train the model: leave it 0{}", model.dropout,
        enum_names(method)[static_cast<std::size_t>(method)],
        has_lora() ? ", or set lora.dropout" : "");
  check(
      patience == 0 || eval_every > 0,
      "patience is {}, but eval_every is 0, so that no validation comes before the last step: set "
      "eval_every",
      patience);
  optim.validate();
  if (has_focus()) focus.validate();
  const bool summary = has_focus() && focus.training == Training::summary;
  check(
      !summary || model.dropout == 0,
      "model.dropout is {}, but summary attention (focus.training) does not support it: leave it 0",
      model.dropout);
  check(!distils() || method != Method::scratch,
        "focus.objective {} compares with a base, and scratch has none: use full, or objective lm",
        value_text(focus.objective));
  check(!distils() || focus.objective != Objective::layer_distillation || focus.lm_weight == 0 ||
            method != Method::retrofit,
        "focus.lm_weight is {}, but in a retrofit layer_distillation leaves the predictions dense: "
        "leave it 0, or use logit_distillation",
        focus.lm_weight);
  if (prefers()) {
    check(method != Method::scratch, "objective dpo compares with a base, and scratch has none");
    check(!distils(), "objective dpo and focus.objective {} cannot be combined: leave one out",
          value_text(focus.objective));
    check(
        data.packing == Packing::automatic || data.packing == Packing::none,
        "data.packing {} cannot be combined with objective dpo, whose windows are pairs: leave it "
        "out",
        value_text(data.packing));
    check(dpo_beta > 0, "dpo_beta must be positive, not {}", dpo_beta);
  }
  if (has_lora()) lora.validate();
  if (const auto other = mechanism()) {
    check(!other->kind->has_parameters() || method == Method::retrofit,
          "attention {0} is trained on a frozen base: use method retrofit", other->kind->name);
    check(trains_base() || other->kind->has_parameters(),
          "attention {0} has nothing to train on a frozen base: use method full or scratch, or "
          "focus eval --attention {0} for the base as it is",
          other->kind->name);
    other->settings.validate();
  }
}

RunConfig only_what_counts(RunConfig config) {
  const RunConfig defaults;
  config.out = defaults.out;
  config.threads = defaults.threads;
  config.activation_checkpointing = defaults.activation_checkpointing;
  config.log_every = defaults.log_every;
  config.log = defaults.log;
  if (config.patience == 0) {
    config.eval_every = defaults.eval_every;
    config.eval_windows = defaults.eval_windows;
  }
  config.keep_best = defaults.keep_best;
  config.checkpoint_every = defaults.checkpoint_every;
  config.checkpoint_keep = defaults.checkpoint_keep;
  config.warn_largest_group = defaults.warn_largest_group;
  config.data.cache_dir = defaults.data.cache_dir;
  return config;
}

RunConfig read_stored_run(const std::string& text, const std::string& source) {
  RunConfig stored;
  read_config_text(text, source, {}, stored);
  return stored;
}

std::string first_changed_setting(const RunConfig& then, const RunConfig& today) {
  const auto compared = [](RunConfig config) {
    config.patience = 0;  // only when a run ends
    return without_what_is_idle(only_what_counts(std::move(config)));
  };
  RunConfig a = compared(then), b = compared(today);
  const auto before = config_fields(a), after = config_fields(b);
  for (std::size_t i = 0; i < after.size(); ++i)
    if (after[i].text && before[i].text() != after[i].text())
      return fmt::format("{}: {} before, {} now", after[i].key, before[i].text(), after[i].text());
  return "";
}

}  // namespace focus
