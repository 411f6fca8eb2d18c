#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/settings/recipe.h"
#include "focus/train/compute.h"
#include "focus/train/evaluate.h"
#include "focus/train/model_io.h"
#include "focus/train/run_config.h"

// What the subcommands share.
namespace focus {

/// Arguments after the subcommand's name; the return value is the exit status.
using Arguments = std::span<const std::string>;

int run_import(Arguments arguments);
int run_export(Arguments arguments);
int run_logits(Arguments arguments);
int run_train(Arguments arguments);
int run_eval(Arguments arguments);
int run_merge(Arguments arguments);
int run_compare(Arguments arguments);
int run_generate(Arguments arguments);
int run_info(Arguments arguments);
int run_leak_test(Arguments arguments);
int run_corpus(Arguments arguments);
int run_report(Arguments arguments);
int run_speed(Arguments arguments);
int run_tokenizer(Arguments arguments);
int run_bench_step(Arguments arguments);

/// Thrown once --help has been printed, or the arguments were refused: main returns `status`.
struct CommandDone {
  int status = 0;
};
/// Parses, or throws CommandDone.
void parse_arguments(CLI::App& app, Arguments arguments);

/// An option of before, left out of --help: who gives it gets "COMMAND: OLD is called NOW now" on
/// stderr and exit status 2.
void renamed_option(CLI::App& app, const std::string& old, const std::string& now);
/// The same where no single word took its place: "COMMAND: SENTENCE".
void replaced_option(CLI::App& app, const std::string& old, const std::string& sentence);

/// Declares an option for each setting of a visit, num_groups as --num-groups, a bool as a flag;
/// they are read and refused as a recipe's values are, with the option's name before the message.
void add_settings(CLI::App& app, const std::vector<RecipeField>& settings);
/// The settings as an object.
nlohmann::ordered_json settings_json(const std::vector<RecipeField>& settings);

/// A recipe's place and key=value overrides on the command line: declares them, with every key in
/// the help.
void add_recipe_arguments(CLI::App& app, std::string& recipe);
/// Reads what has come of them into `config`, which holds the defaults. Prints one line and throws
/// CommandDone where an option is unknown; throws as read_recipe() does.
void read_recipe_arguments(const CLI::App& app, const std::string& recipe, RunConfig& config);

/// Sets the number of OpenMP threads; 0 leaves the environment's choice.
void set_threads(int threads);

/// Declares --compute, what a model that is only run stores and multiplies its matrices in;
/// `compute` holds the default.
void add_compute_option(CLI::App& app, Compute& compute);

/// Writes what --json asks for; does nothing where `path` is empty.
void write_json(const std::string& path, const nlohmann::ordered_json& json);

/// How texts become streams of tokens.
struct TextOptions {
  std::string separator;  // between a file's documents; empty: each file is one
  std::size_t most = 0;   // documents, over all files; 0: all
  Index max_tokens = 0;   // of each, with what is put before it; 0: all
};

/// Tokenizes files (.txt or .xz), one stream for each document, the model's document start before
/// it. A document loses the white space around it where a separator cuts; `bytes` are those of the
/// tokens that are left.
std::vector<EvalText> read_texts(const LoadedModel& model, const std::vector<std::string>& paths,
                                 const TextOptions& options = {});

/// Refuses where a file that a command is to write exists, unless it may be overwritten.
void refuse_existing(const std::string& path, bool overwrite);

}  // namespace focus
