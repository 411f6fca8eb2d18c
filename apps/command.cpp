#include "apps/command.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "apps/mpi.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "autograd/machine.h"
#include "data/files/durable_file.h"
#include "data/files/input_file.h"
#include "data/files/json_reader.h"
#include "data/files/utf8.h"
#include "focus/training/tasks.h"

namespace focus::app {
namespace {

constexpr const char* kOverwrite = "--overwrite";

void offer_overwrite(CLI::App& app) {
  if (app.get_option_no_throw(kOverwrite) == nullptr &&
      std::ranges::any_of(std::as_const(app).get_options(), is_output))
    app.add_flag(kOverwrite)->description("replace a file that another program wrote");
  for (CLI::App* command : app.get_subcommands({}))
    if (!command->get_name().empty()) offer_overwrite(*command);  // no group of options
}

constexpr const char* kStandardOutput = "-";

/// What standard output was before --json - gave it to the figures.
std::FILE* figures_stream = nullptr;

/// Gives standard output to the figures of --json -, and everything else to stderr.
void divert_text() {
  if (figures_stream != nullptr) return;
  figures_stream = fdopen(dup(STDOUT_FILENO), "w");
  if (figures_stream == nullptr || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    fail_writing("write", "standard output", errno);
}

void check_files(const CLI::App& app) {
  std::vector<OutputPlace> outputs;
  std::vector<std::string> inputs;
  bool overwrite = false;
  for (const CLI::Option* option : all_options(app)) {
    const std::vector<std::string>& words = option->results();
    const std::string name = option->get_name(), type = option->get_type_name();
    // CLI11 reads an empty word, such as a shell's empty variable, as the number 0.
    const bool number = type.starts_with("INT") || type.starts_with("UINT") || type == "FLOAT";
    if (number && std::ranges::count(words, "") > 0)
      fail("{}: expected a value, got an empty string", name);
    if ((is_output(option) || name == "--text" || name == "base") &&
        std::ranges::count(words, "") > 0)
      fail("{}: expected a name of a file, got an empty string", name);
    if (name == kOverwrite) overwrite = overwrite || !words.empty();
    if (name == "--json" && !words.empty() && words[0] == kStandardOutput)
      divert_text();
    else if (!is_output(option))
      inputs.insert(inputs.end(), words.begin(), words.end());
    else if (!words.empty())
      outputs.push_back({name, words[0], type == kFolder});
  }
  const std::vector<std::string> overrides = app.remaining();
  inputs.insert(inputs.end(), overrides.begin(), overrides.end());
  check_outputs(outputs, inputs, overwrite);
}

std::atomic<int> asked{0};

/// Safe in a signal handler.
void say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void on_lost_page(int signal, siginfo_t* info, void*) {
  const char* path = mapped_file_at(info->si_addr);
  if (path == nullptr) {  // not a mapped file: the default action
    std::signal(signal, SIG_DFL);
    return;
  }
  say("focus: ");
  say(path);
  say(": the file became shorter, or its disk failed, while it was in use; get it again\n");
  _exit(1);
}

/// CLI11 takes the nearest number for a whole one beyond 64 bits, and the largest for -1.
void refuse_far_numbers(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const bool is_unsigned = option->get_type_name() == "UINT";
    if (!is_unsigned && option->get_type_name() != "INT") continue;
    for (const std::string& word : option->results()) {
      const auto overflows = [&](auto number) {
        return std::from_chars(word.data(), word.data() + word.size(), number).ec ==
               std::errc::result_out_of_range;
      };
      if (is_unsigned ? word.starts_with('-') || overflows(std::uint64_t{})
                      : overflows(std::int64_t{}))
        throw CLI::ValidationError(
            option->get_name(),
            fmt::format("expected a whole number {}, got {}",
                        is_unsigned ? "from 0 to 2^64 - 1" : "of 64 bits", word));
    }
  }
}

/// As CLI11 names the types of other options.
std::string type_of(const ConfigField& field) {
  const std::string& type = field.type;
  if (type.find('|') != std::string::npos) return type;
  return type == "number" ? "FLOAT" : type.ends_with("int") ? "INT" : "TEXT";
}

const std::vector<std::string> kFirstKeys = {
    "method",           "base",     "data.train", "data.valid", "data.context", "data.batch",
    "focus.num_groups", "optim.lr", "steps",      "out"};

/// "lora.h5,keys.h5", which --adapter given twice is too.
std::vector<std::string> split_adapters(const std::string& word) {
  if (word.empty()) return {};
  if (std::filesystem::exists(word)) return {word};
  return CLI::detail::split(word, ',');
}

}  // namespace

void parse_arguments(CLI::App& app, Arguments arguments) {
  std::vector<std::string> reversed(arguments.rbegin(),
                                    arguments.rend());  // CLI11 expects this order
  offer_overwrite(app);
  arrange_help(app);
  app.failure_message(failure_line);
  try {
    app.parse(reversed);
    refuse_far_numbers(app);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) explain_missing(app, error);
    throw CommandDone{app.exit(error) == 0 ? 0 : 2};
  }
  if (launched_rank() == 0) check_files(app);
}

void install_stop_signals() {
  const auto note = [](int signal) {
    if (asked.exchange(signal) != 0) std::_Exit(128 + signal);
  };
  std::signal(SIGINT, note);
  std::signal(SIGTERM, note);
}

int stop_signal() { return asked.load(); }

void install_lost_file_signal() {
  struct sigaction action {};
  action.sa_sigaction = on_lost_page;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

std::string option_name(const ConfigField& field) {
  std::string name = "--" + field.key;
  std::ranges::replace(name, '_', '-');
  return name;
}

void read_option(const ConfigField& field, const std::string& value) {
  ConfigNode word;
  word.kind = ConfigNode::Kind::kScalar;
  word.text = value;
  word.from_override = true;
  try {
    field.read(word);
  } catch (const std::invalid_argument& error) {
    fail("{}: {}", option_name(field), error.what());
  }
}

void add_settings(CLI::App& app, const std::vector<ConfigField>& fields) {
  for (const ConfigField& field : fields) {
    if (field.text() == "false") {
      app.add_flag_callback(
          option_name(field), [field] { read_option(field, "true"); }, field.help);
      continue;
    }
    // Choices that are too long for the first column are named in the second.
    constexpr std::size_t kFirstColumn = 25;
    const std::string name = option_name(field), type = type_of(field);
    const bool is_short = name.size() + type.size() <= kFirstColumn;
    std::vector<std::string> notes;
    if (!is_short) notes.push_back(field.type);
    if (field.text() != R"("")") notes.push_back("default " + field.text());
    const std::string note = notes.empty() ? "" : fmt::format(" ({})", fmt::join(notes, ", "));
    app.add_option_function<std::string>(
           name, [field](const std::string& value) { read_option(field, value); },
           field.help + note)
        ->type_name(is_short ? type : "CHOICE");
  }
}

std::vector<ConfigField> only(std::vector<ConfigField> fields,
                              const std::vector<std::string>& keys) {
  std::erase_if(fields,
                [&](const auto& field) { return std::ranges::count(keys, field.key) == 0; });
  return fields;
}

std::vector<ConfigField> without(std::vector<ConfigField> fields,
                                 const std::vector<std::string>& keys) {
  std::erase_if(fields, [&](const auto& field) { return std::ranges::count(keys, field.key) > 0; });
  return fields;
}

void add_config_arguments(CLI::App& app, std::string& file) {
  app.add_option("config", file,
                 "YAML config; optional if key=value overrides set every required key");
  app.allow_extras();
  RunConfig defaults;
  const std::vector<ConfigField> fields = config_fields(defaults);
  std::string first = replaced(describe_config_fields(only(fields, kFirstKeys)), "\n", "\n  ");
  first.resize(first.size() - 2);  // behind the last line
  app.footer("Most runs set:\n\n  " + first +
             "\nAny key of the config can be given as key=value:\n\n" +
             describe_config_fields(fields));
}

std::vector<std::string> overrides_of(const CLI::App& app) {
  if (const std::string problem = unknown_flag(app); !problem.empty()) {
    fmt::print(stderr, "{}: {}\n", app.get_name(), problem);
    throw CommandDone{2};
  }
  return app.remaining();
}

void read_config_arguments(const CLI::App& app, const std::string& file, RunConfig& config) {
  std::vector<std::string> overrides = overrides_of(app);
  for (std::size_t i = 0; i < overrides.size(); ++i)
    if (overrides[i] == "=")
      fail("{0} =: expected key=value; write {0}=VALUE without blanks",
           i == 0 ? file : overrides[i - 1]);
  std::string path = file;
  // The first override may have been parsed as the file.
  if (path.find('=') != std::string::npos && !std::filesystem::exists(path)) {
    overrides.insert(overrides.begin(), path);
    path.clear();
  }
  const std::filesystem::path ending = std::filesystem::path(path).extension();
  std::error_code none;
  if (std::filesystem::is_directory(path, none) || ending == ".h5" || ending == ".gguf")
    fail("{0}: expected a config (YAML), got a model; name it as base={0}", path);
  if (ending == ".txt" || ending == ".jsonl")
    fail("{0}: expected a config (YAML), got a text; name it as data.train={0}", path);
  const std::string text = path.empty() ? "" : read_config_file(path);
  read_config_text(text, path, overrides, config);
  try {
    config.validate_step();
  } catch (const std::invalid_argument& error) {
    fail("{}{}", place_of_setting(error.what(), text, path, overrides), error.what());
  }
}

void set_threads(int threads) {
  if (threads > 0) omp_set_num_threads(threads);
}

void take_fitted_context(const CLI::App& app, const LoadedModel& model, EvalSettings& settings) {
  const Index fitted = fitted_context(model);
  if (fitted > 0 && app.count("--context") == 0) settings.default_context = fitted;
}

void add_cache_option(CLI::App& app, std::string& dtype) {
  app.add_option(
         "--cache-type", dtype,
         "numbers of the KV cache: f32; f16: half the memory, faster with a long context; "
         "q8_0: about a quarter, 8-bit integers with a scale for each 32; q4: with groups "
         "of keys, 4 bits for what a key differs from its centroid by, values in q8_0; auto "
         "(default): f32 with --precision float32, otherwise f16")
      ->check(CLI::IsMember({"auto", "f32", "f16", "q8_0", "q4"}));
}

CacheDtype cache_dtype(const std::string& dtype, Precision precision) {
  const auto names = enum_names(CacheDtype());
  if (const auto named = std::ranges::find(names, dtype); named != names.end())
    return static_cast<CacheDtype>(named - names.begin());
  return precision == Precision::float32 ? CacheDtype::float32 : CacheDtype::float16;
}

std::string counts_text(const std::map<std::string, int>& counts) {
  std::vector<std::pair<int, std::string>> rows;
  rows.reserve(counts.size());
  for (const auto& [what, count] : counts) rows.emplace_back(-count, what);
  std::ranges::sort(rows);
  std::vector<std::string> words;
  words.reserve(rows.size());
  for (const auto& [count, what] : rows) words.push_back(fmt::format("{} {}", what, -count));
  return fmt::format("{}", fmt::join(words, ", "));
}

void ModelOptions::add_to(CLI::App& app, const std::vector<std::string>& left_out) {
  app.add_option("base", base,
                 "the model: a checkpoint file (.h5), a Hugging Face folder or a GGUF file")
      ->required();
  add_settings(app, without(config_fields(*this), left_out));
  if (CLI::Option* const option = app.get_option_no_throw("--adapter")) option->join(',');
}

LoadedModel ModelOptions::load(WeightUse use) const {
  const Progress reading({.label = "reading " + base, .inner = true});
  return open(base, {split_adapters(adapter), tokenizer, bos, precision, use});
}

void add_attention_option(CLI::App& app, std::vector<std::string>& words, const std::string& help) {
  app.add_option("--attention", words, help)->delimiter(',')->allow_extra_args(false);
}

void add_attention_option(CLI::App& app, std::string& word, const std::string& help) {
  app.add_option("--attention", word, help);
}

void add_one_attention(CLI::App& app, std::string& word) {
  add_attention_option(app, word,
                       "one attention spec, as in focus eval: dense, soft, hard:2, summary:2, "
                       "window:128 (default: the attention that the model was trained with; with a "
                       "Focus adapter soft or summary; otherwise dense)");
}

AttentionSpec one_attention(const std::string& word, const LoadedModel& model) {
  return word.empty()
             ? own_attention(model)
             : resolve_attention(parse_attention(word, "--attention"), model, "--attention");
}

nlohmann::ordered_json machine_json() {
  const Machine machine = this_machine();
  return {{"processor", machine.processor}, {"threads", machine.threads},
          {"kernels", machine.kernels},     {"numbers", machine.numbers},
          {"cache_bytes", machine.caches},  {"clock_ghz", machine.clock_ghz}};
}

void write_json(const std::string& path, const nlohmann::ordered_json& json) {
  if (path == kStandardOutput) {
    fmt::print(figures_stream, "{}\n", json_text(json, 2));
    if (std::fflush(figures_stream) != 0) fail_writing("write", "standard output", errno);
    return;
  }
  if (!path.empty()) write_file_durably(path, std::string_view(json_text(json, 2) + "\n"));
}

void refuse_existing(const std::string& path, bool overwrite) {
  if (!overwrite && std::filesystem::exists(path))
    fail("{}: exists already; choose another name, or add --overwrite", path);
}

}  // namespace focus::app
