#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apps/commands.h"
#include "data/settings/config.h"
#include "focus/evaluation/evaluation.h"
#include "focus/method/cache_numbers.h"
#include "focus/models/model_files.h"
#include "focus/training/run_config.h"

// Shared by the commands.
namespace focus::app {

/// Type name of outputs that are folders; others are files.
inline constexpr const char* kFolder = "FOLDER";

/// "did you mean X?" if a known name differs from the wrong one by a letter or two, otherwise
/// `otherwise`.
std::string suggestion_for(std::string_view name, const std::vector<std::string>& known,
                           std::string otherwise);

/// Parses, or prints one line on stderr and throws CommandDone. Checks that the outputs (--out,
/// --json, --html, --gguf, --questions) can be written, are not inputs and, without --overwrite,
/// not files of other programs. Declares --overwrite if the command does not.
void parse_arguments(CLI::App& app, Arguments arguments);

/// Declares an option for each field of a visit, num_groups as --num-groups, a bool as a flag.
/// Values are read as in a config; errors begin with the option.
void add_settings(CLI::App& app, const std::vector<ConfigField>& fields);
/// Reads an option's value into its field. Throws std::runtime_error.
void read_option(const ConfigField& field, const std::string& value);
/// The fields whose keys are in `keys`, or all others.
std::vector<ConfigField> only(std::vector<ConfigField> fields,
                              const std::vector<std::string>& keys);
std::vector<ConfigField> without(std::vector<ConfigField> fields,
                                 const std::vector<std::string>& keys);

/// Makes SIGINT and SIGTERM ask a long job to stop; a second one ends the program.
void install_stop_signals();
/// The signal that was received, or 0.
int stop_signal();

/// Declares a config file and key=value overrides, with every key in the help.
void add_config_arguments(CLI::App& app, std::string& file);
/// The overrides. If an option is unknown, prints one line and throws CommandDone.
std::vector<std::string> overrides_of(const CLI::App& app);
/// Reads file and overrides into `config`, which holds the defaults. Throws like overrides_of() and
/// read_config().
void read_config_arguments(const CLI::App& app, const std::string& file, RunConfig& config);

/// Sets the number of OpenMP threads; 0 keeps the environment's choice.
void set_threads(int threads);

/// "q4_1 210, f32 61", largest count first.
std::string counts_text(const std::map<std::string, int>& counts);

inline constexpr const char* kPrecisionHelp =
    "precision of the weight matrices: float32; bf16: weights and activations rounded to bf16; "
    "q8: weights in GGML blocks, others rounded to Q8_0 (a quarter of the memory), activations "
    "rounded to int8, integer products";

/// The model that a command runs.
struct ModelOptions {
  std::string base, adapter, tokenizer;
  Bos bos = Bos::automatic;
  Precision precision = Precision::float32;

  template <class F>
  void visit(F&& f) {
    f("adapter", adapter,
      "adapter to attach: focus.h5, lora.h5, an exported folder, a PEFT folder or a GGUF LoRA");
    f("tokenizer", tokenizer, "tokenizer to use instead of the model's: bytes, a file or a folder");
    f("bos", bos,
      "special tokens before a text or prompt: auto: those that the tokenizer's files specify; "
      "always: the config's BOS, otherwise the tokenizer's; never: none; window: one before each "
      "evaluation window");
    f("precision", precision, kPrecisionHelp);
  }
  /// Declares BASE and an option for each setting, except those in `left_out`.
  void add_to(CLI::App& app, const std::vector<std::string>& left_out = {});
  /// Loads the model and attaches the adapter.
  LoadedModel load(WeightUse use = WeightUse::frozen) const;
};

/// Number type of a KV cache.
struct CacheOptions {
  enum class Dtype { automatic, float32, float16 };
  Dtype dtype = Dtype::automatic;

  template <class F>
  void visit(F&& f) {
    f("kv_cache_dtype", dtype,
      "numbers of the KV cache: float32; float16: half the memory, faster with a long context; "
      "auto: float32 with --precision float32, otherwise float16");
  }
  CacheDtype of(Precision precision) const;
};
constexpr auto enum_names(CacheOptions::Dtype) {
  return std::array<std::string_view, 3>{"auto", "float32", "float16"};
}

/// Declares --attention for a list of specs, or for one.
void add_attention_option(CLI::App& app, std::vector<std::string>& words, const std::string& help);
void add_attention_option(CLI::App& app, std::string& word, const std::string& help);
/// Declares --attention for one spec of focus eval and reads it; default: the model's own.
void add_one_attention(CLI::App& app, std::string& word);
AttentionSpec one_attention(const std::string& word, const LoadedModel& model);
/// The machine, for the JSON of a speed.
nlohmann::ordered_json machine_json();
/// Does nothing if `path` is empty.
void write_json(const std::string& path, const nlohmann::ordered_json& json);

/// Throws if the file exists and must not be overwritten.
void refuse_existing(const std::string& path, bool overwrite);

}  // namespace focus::app
