#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/settings/config.h"
#include "focus/evaluation/evaluation.h"
#include "focus/method/cache_numbers.h"
#include "focus/models/model_files.h"
#include "focus/training/run_config.h"

// The commands, for the table in main.cpp, and what they share.
namespace focus::app {

/// Arguments after the command's name; commands return the exit status.
using Arguments = std::span<const std::string>;

int run_import(Arguments arguments);
int run_export(Arguments arguments);
int run_logits(Arguments arguments);
int run_train(Arguments arguments);
int run_eval(Arguments arguments);
int run_score(Arguments arguments);
int run_serve(Arguments arguments);
int run_fit(Arguments arguments);
int run_merge(Arguments arguments);
int run_compare(Arguments arguments);
int run_generate(Arguments arguments);
int run_info(Arguments arguments);
int run_leak_test(Arguments arguments);
int run_groups(Arguments arguments);
int run_corpus(Arguments arguments);
int run_report(Arguments arguments);
int run_speed(Arguments arguments);
int run_tokenizer(Arguments arguments);

/// Thrown after --help or a wrong argument: main returns `status`.
struct CommandDone {
  int status = 0;
};

/// If a mapped file becomes shorter or its disk fails, the program ends with a line that names it
/// and exit status 1.
void install_lost_file_signal();

/// Type name of outputs that are folders; others are files.
inline constexpr const char* kFolder = "FOLDER";

/// "did you mean X?" if a known name differs from the wrong one by a letter or two, or has all its
/// words, otherwise `otherwise`.
std::string suggestion_for(std::string_view name, const std::vector<std::string>& known,
                           std::string otherwise);

/// A place that a command is going to write.
struct OutputPlace {
  std::string option;  // that names it: "--json"
  std::filesystem::path path;
  bool is_folder = false;  // whose files are written, and which is made where it is missing
};
/// For before the work, so that nothing is lost by a wrong name: throws std::runtime_error, one
/// line, where one of the outputs cannot be written, two are the same file, one is an input (or a
/// foreign file in an input that is a folder), or one is a file that the program does not write,
/// unless `overwrite`. `inputs` are words of the command line, or key=word: those that are no
/// file are passed over.
void check_outputs(std::span<const OutputPlace> outputs, std::span<const std::string> inputs,
                   bool overwrite);

/// The options of the command, of its groups and of its sub-commands; whether one names an output.
std::vector<const CLI::Option*> all_options(const CLI::App& app);
bool is_output(const CLI::Option* option);

/// Names the first unknown flag and the nearest known one; empty if all are known.
std::string unknown_flag(const CLI::App& app);
/// Throws, if BASE is missing because an option with several values before it took it.
void explain_missing(const CLI::App& app, const CLI::ParseError& error);
/// One line: the command, what is wrong, what may have been meant or where to look.
std::string failure_line(const CLI::App* app, const CLI::Error& error);

/// Groups the options of the help by what they are for and wraps it at the terminal's width.
void arrange_help(CLI::App& app);

/// Whole numbers from 1 on.
inline const CLI::Validator kPositive(
    [](std::string& text) {
      const bool whole = !text.empty() &&
                         text.find_first_not_of("0123456789") == std::string::npos &&
                         text.find_first_not_of('0') != std::string::npos;
      return whole ? std::string() : "expected a whole number from 1 on, got " + text;
    },
    "");

/// Parses, or prints one line on stderr and throws CommandDone. Checks that the outputs (--out,
/// --json, --html, --gguf, --questions) can be written, are not inputs and, without --overwrite,
/// not files of other programs. Declares --overwrite if the command does not.
void parse_arguments(CLI::App& app, Arguments arguments);

/// Declares an option for each field of a visit, num_groups as --num-groups, a bool as a flag.
/// Values are read as in a config; errors begin with the option.
void add_settings(CLI::App& app, const std::vector<ConfigField>& fields);
/// "--num-groups" of num_groups.
std::string option_name(const ConfigField& field);
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

/// The model that a command runs.
struct ModelOptions {
  std::string base = {}, adapter = {}, tokenizer = {};
  Bos bos = Bos::automatic;
  Precision precision = Precision::float32;

  template <class F>
  void visit(F&& f) {
    f("adapter", adapter,
      "adapter to attach: focus.h5, lora.h5, a run's folder, an exported folder, a PEFT folder or "
      "a GGUF LoRA; twice for groups and a LoRA");
    f("tokenizer", tokenizer, "tokenizer to use instead of the model's: bytes, a file or a folder");
    f("bos", bos,
      "special tokens before a text or prompt: auto: those that the tokenizer's files specify; "
      "always: the config's BOS, otherwise the tokenizer's; never: none; window: one before each "
      "evaluation window");
    f("precision", precision,
      "precision of the weight matrices: float32; bf16: weights and activations rounded to bf16; "
      "q8: weights in GGML blocks, others rounded to Q8_0 (a quarter of the memory), activations "
      "rounded to int8, integer products; with AMX 32 or more tokens at once in bf16");
  }
  /// Declares BASE and an option for each setting, except those in `left_out`.
  void add_to(CLI::App& app, const std::vector<std::string>& left_out = {});
  /// Loads the model and attaches the adapter.
  LoadedModel load(WeightUse use = WeightUse::frozen) const;
};

/// Without --context windows are as long as those that the model's groups were fitted on.
void take_fitted_context(const CLI::App& app, const LoadedModel& model, EvalSettings& settings);

/// Declares --cache-type: "auto" or a CacheDtype's name.
void add_cache_option(CLI::App& app, std::string& dtype);
CacheDtype cache_dtype(const std::string& dtype, Precision precision);

/// Declares --attention for a list of specs, or for one.
void add_attention_option(CLI::App& app, std::vector<std::string>& words, const std::string& help);
void add_attention_option(CLI::App& app, std::string& word, const std::string& help);
/// Declares --attention for one spec of focus eval and reads it; default: the model's own.
void add_one_attention(CLI::App& app, std::string& word);
AttentionSpec one_attention(const std::string& word, const LoadedModel& model);
/// The machine, for the JSON of a speed.
nlohmann::ordered_json machine_json();
inline constexpr const char* kJsonHelp =
    "also write the figures to this JSON file; -: to standard output, and the text to stderr";
/// Does nothing if `path` is empty; "-" is standard output.
void write_json(const std::string& path, const nlohmann::ordered_json& json);

/// Throws if the file exists and must not be overwritten.
void refuse_existing(const std::string& path, bool overwrite);

}  // namespace focus::app
