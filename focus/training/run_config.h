#pragma once

#include <fmt/ranges.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/gemm/frozen_matrix.h"
#include "data/tokens/batches.h"
#include "data/tokens/tokenize.h"
#include "focus/adapter.h"
#include "focus/adapters/lora/lora.h"
#include "focus/method/config.h"
#include "focus/models/side_files.h"
#include "layers/model_config.h"
#include "optim/training_step.h"

namespace focus {

/// What is trained. Methods differ in the source of the weights, the adapters and the parameters
/// that get a gradient.
enum class Method {
  retrofit,   // Focus on a frozen base: centroids and projections only
  two_phase,  // a retrofit first, then every parameter of Focus and of the base, or of a LoRA
  full,       // every parameter of a base
  scratch,    // every parameter of a new model
  lora        // low-rank adapters on a frozen base's linears, with Focus both together
};
constexpr auto enum_names(Method) {
  return std::array<std::string_view, 5>{"retrofit", "two_phase", "full", "scratch", "lora"};
}

/// What the second phase of two_phase trains beside the centroids.
enum class SecondPhase {
  full,  // every parameter of the base
  lora   // low-rank adapters on it
};
constexpr auto enum_names(SecondPhase) { return enum_list("full", "lora"); }

/// The attention that a model is trained with: dense, focus, or a mechanism of the table that has a
/// gradient or parameters, with its settings after colons as in an attention spec: window:32.
/// two_phase always has focus; retrofit too, unless it names a mechanism with parameters.
struct TrainedAttention {
  std::string name = "dense";
  std::optional<AnySettings> settings = {};  // of a mechanism
};
void read_value(const ConfigNode& node, const Range& range, TrainedAttention& value);
/// With all settings: window:local_window=32.
std::string value_text(const TrainedAttention& value);
std::string type_text(const TrainedAttention& value);

/// An adapter that a run attaches to its decoder.
struct AdapterChoice {
  const AdapterKind* kind;
  AnySettings settings;
};

/// The shape of a new model, with the keys of published config.json files, and dropout in training.
struct ModelShape {
  std::string model_type = "llama";
  Index hidden_size = 128;
  Index intermediate_size = 0;
  Index num_hidden_layers = 4;
  Index num_attention_heads = 4;
  Index num_key_value_heads = 0;
  Index sliding_window = 0;
  Index max_position_embeddings = 0;
  double rope_theta = 10000;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;
  double dropout = 0;

  template <class F>
  void visit(F&& f) {
    f("model_type", model_type,
      fmt::format("family of the new model: {}", fmt::join(family_names(), ", ")));
    f("hidden_size", hidden_size, "width", {1, 1 << 16});
    f("intermediate_size", intermediate_size, "width of the MLP; 0: the family's usual multiple",
      {0, 1 << 18});
    f("num_hidden_layers", num_hidden_layers, "layers", {1, 1024});
    f("num_attention_heads", num_attention_heads, "heads", {1, 1024});
    f("num_key_value_heads", num_key_value_heads, "key and value heads; 0: as many as heads",
      {0, 1024});
    f("sliding_window", sliding_window,
      "window of the family's local layers, in tokens (all layers of mistral and phi3, every other "
      "of gemma2, five of six of gemma3, three of four of olmo3); 0: all",
      {0, 1 << 27});
    f("max_position_embeddings", max_position_embeddings,
      "positions of a new model, for a longer context in later training; 0: data.context",
      {0, 1 << 27});
    f("rope_theta", rope_theta, "base of the rotary frequencies (not gpt2)");
    f("initializer_range", initializer_range, "standard deviation of the initial weights");
    f("tie_word_embeddings", tie_word_embeddings, "share the embedding with the output head");
    f("dropout", dropout,
      "dropout of the embeddings, the attention weights (not performer) and the outputs of "
      "attention and MLP: GPT-2's embd_pdrop, attn_pdrop and resid_pdrop (scratch, full, phase 2 "
      "of two_phase)");
  }

  /// The whole config; throws where it is not a possible model.
  ModelConfig to_model_config(Index vocab_size, Index context) const;
};

struct DataConfig {
  std::vector<std::string> train;
  std::vector<std::string> valid;
  std::vector<double> mix;
  std::vector<std::string> train_texts, valid_texts;  // texts in memory, beside those of files
  double valid_fraction = 0.05;
  std::string document_separator;
  bool document_eos = true;
  Bos bos = Bos::automatic;
  ExampleSettings examples;
  Packing packing = Packing::automatic;
  Index context = 512;
  Index batch = 1;
  int gradient_accumulation_steps = 1;
  bool shuffle = true;
  std::string cache_dir;

  template <class F>
  void visit(F&& f) {
    f("train", train,
      "training texts: files (.txt, .jsonl, also as .gz, .xz, .zst, .bz2) or folders");
    f("valid", valid, "validation texts; empty: valid_fraction of the training documents");
    f("mix", mix,
      "a weight for each of train: its share of an epoch's tokens, in which every one is there as "
      "a whole and small ones several times; empty: each once");
    f("valid_fraction", valid_fraction,
      "share of documents held out for validation if valid is empty; of a single document its end",
      {0, 0.9});
    f("document_separator", document_separator,
      "separator between the documents of a .txt file, such as <|endoftext|>; empty: each file is "
      "one");
    f("document_eos", document_eos,
      "put the EOS behind each document that is a text, where there are several and the "
      "tokenizer's "
      "files add none; the model learns to stop there");
    examples.visit(f);
    f("packing", packing,
      "wrapped: one stream of tokens, cut into windows in which each token sees all before it; "
      "documents: several whole documents per window, separately masked, positions from 0 in each; "
      "none: one document per window; auto: documents for prompts and messages, otherwise wrapped");
    f("bos", bos,
      "special tokens around a document: auto: those that the tokenizer's files specify; always: "
      "the config's BOS before it, otherwise the tokenizer's; never: none; window: one before each "
      "training window, or each document of one");
    f("context", context, "tokens per training window", {2, 1 << 22});
    f("batch", batch, "windows per micro-batch", {1, 1 << 16});
    f("gradient_accumulation_steps", gradient_accumulation_steps,
      "micro-batches per optimiser step", {1, 1 << 16});
    f("shuffle", shuffle, "shuffle the windows in every epoch");
    f("cache_dir", cache_dir, "folder of the token files; empty: the user's cache folder");
  }
};

/// The second phase of a two_phase run. Other settings of both phases are in optim and focus; each
/// phase has a new optimiser.
struct TwoPhaseConfig {
  std::int64_t phase1_steps = 250;
  double lr = 1e-4;
  std::int64_t warmup_steps = 20;
  SecondPhase method = SecondPhase::full;

  template <class F>
  void visit(F&& f) {
    f("phase1_steps", phase1_steps,
      "number of first steps, which train only centroids, as in a retrofit; the remaining steps "
      "train all",
      {1, 1e12});
    f("method", method,
      "what phase 2 trains beside the centroids: full: all weights of the base; lora: low-rank "
      "adapters on it");
    f("lr", lr, "peak learning rate of phase 2 (optim.lr is phase 1's)");
    f("warmup_steps", warmup_steps,
      "steps of linear warm-up in phase 2, which restarts optimiser and schedule", {0, 1e12});
  }
};

/// What a run learns of its text.
enum class RunObjective {
  lm,  // to predict it
  dpo  // to prefer the chosen answers (Rafailov et al., 2023)
};
constexpr auto enum_names(RunObjective) { return enum_list("lm", "dpo"); }

/// What a run writes beside metrics.jsonl.
enum class RunLog { none, tensorboard };
constexpr auto enum_names(RunLog) { return enum_list("none", "tensorboard"); }

inline constexpr int kMostThreads = 4096;

/// A run of `focus train`: one config.
struct RunConfig {
  Method method = Method::retrofit;
  TrainedAttention attention;
  RunObjective objective = RunObjective::lm;
  double dpo_beta = 0.1;
  Precision precision = Precision::float32;
  bool activation_checkpointing = false;
  std::string base;
  std::vector<std::string> init_adapter;
  std::string tokenizer;
  std::string out = "out/train";
  std::int64_t steps = 500;
  double epochs = 0;
  std::int64_t seed = 1;
  int threads = 0;
  ModelShape model;
  DataConfig data;
  FocusConfig focus;
  TwoPhaseConfig two_phase;
  LoraConfig lora;
  OptimConfig optim;
  std::int64_t log_every = 10;
  RunLog log = RunLog::none;
  std::int64_t eval_every = 100;
  std::int64_t eval_windows = 16;
  std::int64_t patience = 0;
  std::optional<bool> keep_best;
  std::int64_t checkpoint_every = 100;
  int checkpoint_keep = 2;
  double warn_largest_group = 0.9;

  template <class F>
  void visit(F&& f) {
    f("method", method,
      "retrofit: centroids on a frozen base; two_phase: retrofit first, then centroids and base; "
      "full: all weights of a base; scratch: a new model; lora: low-rank adapters on a frozen "
      "base, with attention focus centroids too");
    f("attention", attention,
      "attention of full, scratch and lora: dense, focus, or (full, scratch) a baseline with its "
      "settings after colons, "
      "such as window:32 or routing_transformer:8:local_window=64; two_phase always uses focus, "
      "retrofit focus or indexer");
    f("objective", objective,
      "lm: predict the text; dpo: direct preference optimisation on records of prompt, chosen and "
      "rejected, against the base as it is (data.batch counts pairs)");
    f("dpo_beta", dpo_beta, "beta of dpo: how much the log-ratio to the base counts");
    f("precision", precision,
      "precision of the weight matrices: float32; bf16: both operands of each product, attention's "
      "too, rounded to bf16, sums and trained weights in float32 (all float32 where the processor "
      "is not faster with bf16); only for a frozen base (retrofit, lora): q8: weights in GGML "
      "blocks, others rounded to Q8_0 (a quarter of the memory); in the forward pass activations "
      "rounded to int8 and integer products, with AMX to bf16");
    f("activation_checkpointing", activation_checkpointing,
      "keep only each layer's input and recompute the layer in the backward pass: less memory, "
      "bit-identical results");
    f("base", base,
      "checkpoint to start from: a checkpoint file (.h5), a Hugging Face folder or a GGUF file");
    f("init_adapter", init_adapter,
      "adapters to start from, as for --adapter: of focus fit, a run's folder, a PEFT folder; of "
      "this base and with the same shapes; two where a run trains LoRA beside groups");
    f("tokenizer", tokenizer, "tokenizer: bytes, a file or a folder; empty: the base's own");
    f("out", out, "folder of this run: metrics, resolved config, checkpoints, result");
    f("steps", steps, "optimiser steps; 0: place the keys and train nothing (focus.grouping keys)",
      {0, 1e12});
    f("epochs", epochs, "passes over the training windows, in place of steps; 0: steps counts",
      {0, 1e6});
    f("seed", seed, "random seed of initial values and data order", {0, 1e18});
    f("threads", threads, "number of threads; 0: all of the machine", {0, kMostThreads});
    f("model", model, "shape of a new model (scratch), and dropout");
    f("data", data, "text");
    f("focus", focus, "settings of Focus");
    f("two_phase", two_phase, "the second phase (two_phase)");
    f("lora", lora, "low-rank adapters (lora)");
    f("optim", optim, "AdamW and its schedule");
    f("log_every", log_every, "steps between log lines", {1, 1e9});
    f("log", log, "tensorboard: figures of metrics.jsonl in event files too, for TensorBoard");
    f("eval_every", eval_every, "steps between validations; 0: only at start and end", {0, 1e9});
    f("eval_windows", eval_windows, "windows per validation", {1, 1e9});
    f("patience", patience,
      "end the run after so many validations without a lower loss (two_phase: of phase 2); "
      "0: never",
      {0, 1e9});
    f("keep_best", keep_best,
      "keep the result of the lowest validation loss in the folder best of the run's; null: where "
      "data.valid is given and the result is an adapter");
    f("checkpoint_every", checkpoint_every, "steps between checkpoints; 0: only at the end",
      {0, 1e9});
    f("checkpoint_keep", checkpoint_keep, "number of checkpoints to keep", {1, 1000});
    f("warn_largest_group", warn_largest_group,
      "warn, once per layer, when a layer's largest group takes more than this share of a logged "
      "step's tokens (group collapse); 0: never",
      {0, 1});
  }

  bool has_focus() const;
  bool has_lora() const {
    return method == Method::lora ||
           (method == Method::two_phase && two_phase.method == SecondPhase::lora);
  }
  /// Whether the loss compares with the base, and whether that then needs weights of its own,
  /// because the run changes the model's.
  bool distils() const { return has_focus() && focus.objective != Objective::lm; }
  bool needs_teacher() const { return (distils() || prefers()) && trains_base(); }
  /// Whether the loss is of pairs of answers.
  bool prefers() const { return objective == RunObjective::dpo; }
  /// The mechanism of the table that is trained through, if it is one.
  std::optional<AdapterChoice> mechanism() const;
  /// The adapters of the decoder, in this order.
  std::vector<AdapterChoice> adapters() const;
  /// Whether the run's result is a whole model and not an adapter.
  bool trains_base() const { return trains_base_at(steps - 1); }
  bool trains_base_at(std::int64_t step) const {
    return method == Method::full || method == Method::scratch ||
           (method == Method::two_phase && !has_lora() && step >= two_phase.phase1_steps);
  }
  /// What `step` (the first is 0) belongs to; two_phase has two phases, every other method one.
  TrainingPhase phase_at(std::int64_t step) const;
  /// Throws std::invalid_argument where settings do not fit together.
  void validate() const;
  /// The same for what a step computes alone: the optimiser's and the method's settings.
  void validate_step() const;

  /// Whether the result of the lowest validation loss is kept.
  bool keeps_best() const {
    return keep_best.value_or(!trains_base() && !(data.valid.empty() && data.valid_texts.empty()));
  }

  /// At most: windows of documents are not always full.
  std::int64_t tokens_per_step() const {
    return data.batch * data.gradient_accumulation_steps * data.context * (prefers() ? 2 : 1);
  }
};

/// The settings of a run's config.yaml or checkpoint. Throws std::runtime_error, lines that begin
/// with `source`.
RunConfig read_stored_run(const std::string& text, const std::string& source);
/// The first setting that changes results and differs, "key: then, now"; empty if all agree, as
/// those of a resumed run must. Output folder and reporting may differ.
std::string first_changed_setting(const RunConfig& then, const RunConfig& today);
/// The config with defaults for settings that do not change results.
RunConfig only_what_counts(RunConfig config);

}  // namespace focus
