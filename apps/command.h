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

// What the subcommands share.
namespace focus::app {

/// The type of an output that is a folder; --out and the like without it are files.
inline constexpr const char* kFolder = "FOLDER";

/// "did you mean X?" where a known name differs from a wrong one by a letter or two, else
/// `otherwise`.
std::string suggestion_for(std::string_view name, const std::vector<std::string>& known,
                           std::string otherwise);

/// Parses, or throws CommandDone after one line on stderr. What is to be written (--out, --json,
/// --html, --svg, --gguf, --questions) can be then, and is no input and no other program's file,
/// unless --overwrite, which is declared where the command has none.
void parse_arguments(CLI::App& app, Arguments arguments);

/// Declares an option for each setting of a visit, num_groups as --num-groups, a bool as a flag;
/// they are read and refused as a config's values are, with the option's name before the message.
void add_settings(CLI::App& app, const std::vector<ConfigField>& settings);

/// Makes SIGINT and SIGTERM ask a long job to stop where it can; a second one ends the program.
void install_stop_signals();
/// The signal that asked, or 0.
int stop_signal();

/// A config's place and key=value overrides on the command line: declares them, with every key in
/// the help.
void add_config_arguments(CLI::App& app, std::string& file);
/// What has come of the overrides. Prints one line and throws CommandDone where an option is
/// unknown.
std::vector<std::string> overrides_of(const CLI::App& app);
/// Reads what has come of all into `config`, which holds the defaults. Throws as
/// overrides_of() and read_config() do.
void read_config_arguments(const CLI::App& app, const std::string& file, RunConfig& config);

/// Declares --threads, with the range and the help of the config's key.
void add_threads_option(CLI::App& app, int& threads);
/// Sets the number of OpenMP threads; 0 leaves the environment's choice.
void set_threads(int threads);

/// "q4_1 210, f32 61", the most first.
std::string counts_text(const std::map<std::string, int>& counts);

/// The model that a command runs.
struct ModelOptions {
  std::string base, adapter, tokenizer;
  Precision precision = Precision::float32;
  Bos bos = Bos::automatic;
  int threads = 0;
  bool verify = false;

  /// Declares BASE, --adapter, --tokenizer, --bos, --precision, --verify and --threads. With
  /// `precisions` --precision takes several words, which go there.
  void add_to(CLI::App& app, std::vector<Precision>* precisions = nullptr);
  /// Loads it, with what is put onto it, and sets the number of threads.
  LoadedModel load(WeightUse use = WeightUse::frozen) const;
};

/// What a KV cache is kept in.
struct CacheOption {
  std::string dtype = "auto";

  /// Declares --kv-cache-dtype.
  void add_to(CLI::App& app);
  /// auto: float32 where matrices are multiplied in float32 or close to it, else float16.
  CacheDtype of(Precision precision) const;
};

/// Declares --attention for a list of words, or for one.
void add_attention_option(CLI::App& app, std::vector<std::string>& words, const std::string& help);
void add_attention_option(CLI::App& app, std::string& word, const std::string& help);
/// Declares it for one word as focus eval takes it, and reads that; without it the model's own.
void add_one_attention(CLI::App& app, std::string& word);
AttentionSpec one_attention(const std::string& word, const LoadedModel& model);
/// Declares an option for each setting but the attentions, under its key: --max-tokens.
void add_eval_options(CLI::App& app, EvalSettings& settings);
/// The machine that a speed was measured on.
nlohmann::ordered_json machine_json();
/// Writes what --json asks for; does nothing where `path` is empty.
void write_json(const std::string& path, const nlohmann::ordered_json& json);

/// Refuses where a file that a command is to write exists, unless it may be overwritten.
void refuse_existing(const std::string& path, bool overwrite);

}  // namespace focus::app
