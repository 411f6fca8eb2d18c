#include <fcntl.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <set>
#include <thread>

#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "autograd/base/profile.h"
#include "data/files/checksum.h"
#include "data/files/durable_file.h"
#include "data/files/input_file.h"
#include "data/files/json_reader.h"
#include "data/files/notice.h"
#include "data/settings/struct_json.h"
#include "data/tensors/checkpoint_folder.h"
#include "data/text/format.h"
#include "data/text/text.h"
#include "focus/evaluation/recall/long_range.h"
#include "focus/training/compare/compare_plan.h"
#include "focus/training/compare/compare_report.h"
#include "focus/training/metrics.h"

namespace focus::app {
namespace {

using std::filesystem::path;
using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Tokens that a run trains on.
double tokens_of(const RunConfig& config) {
  return static_cast<double>(config.steps * config.tokens_per_step());
}

std::string hash_text(const std::string& text) {
  return xxh3_hex(std::as_bytes(std::span(text))).substr(0, 16);
}

/// What a file of a run's folder holds; nothing if it is missing or not whole.
template <class T>
std::optional<T> read_figures(const path& file) {
  const nlohmann::json json = read_json_object(file);
  if (!json.is_object()) return std::nullopt;
  return struct_from_json<T>(json, file.string());
}

/// Starts this program again with these arguments; its output is appended to `log`. It takes no
/// part in the terminal's Ctrl-C, and is asked to stop if this process dies.
pid_t start_child(const Words& arguments, const path& log) {
  const int output = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (output < 0) fail_writing("write", log, errno);
  // Made before the fork: between fork and exec no memory may be taken.
  Words words = Words{"focus"} + arguments;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid(), pid = fork();
  const int error = errno;
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(output);
  if (pid < 0) fail_writing("start a process that logs to", log, error);
  return pid;
}

/// Runs this program with these arguments to its end. Every few seconds a line on stderr has `name`
/// and its progress; the first signal to stop is passed on. Throws std::runtime_error if it ends
/// with an error.
void run_child(const Words& arguments, const path& log, const std::string& name) {
  constexpr double kSecondsBetweenLines = 5;
  std::string shown = last_line_of(log);
  const pid_t pid = start_child(arguments, log);
  double told = now();
  bool passed_on = false;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (const int signal = stop_signal(); signal != 0 && !std::exchange(passed_on, true))
      kill(pid, signal);
    if (now() - told < kSecondsBetweenLines) continue;
    told = now();
    const std::string line = last_line_of(log);
    const bool is_progress = line.find("  left ") != std::string::npos;
    if (line != std::exchange(shown, line) && is_progress) spdlog::info("{}: {}", name, line);
  }
  if (!WIFEXITED(status))
    fail("ended by signal {} (9: possibly out of memory); its log is {}", WTERMSIG(status),
         log.string());
  const int code = WEXITSTATUS(status);
  if (code == 0) return;
  const std::string said = last_line_of(log);
  if (said.empty())
    fail("ended with status {} and printed no parsable output; its log is {}", code, log.string());
  fail("{} (log: {})", said, log.string());
}

/// Repeats the notices of a run, which may have been done before: what is left out of its data, and
/// the like.
void tell_notices(const path& log) {
  constexpr std::string_view kNotice = "notice: ";
  if (!std::filesystem::exists(log)) return;
  for_each_row(read_file(log), [&](std::string_view row, std::size_t) {
    if (row.starts_with(kNotice)) notice("{}", row.substr(kNotice.size()));
  });
}

/// The options that say the settings which are not `usual`.
template <class Settings>
Words options_of(Settings settings, Settings usual = {}) {
  Words words;
  const auto fields = config_fields(settings), defaults = config_fields(usual);
  for (std::size_t f = 0; f < fields.size(); ++f) {
    if (fields[f].text() == defaults[f].text()) continue;
    words.push_back(option_name(fields[f]));
    std::vector<ConfigProblem> none;
    if (defaults[f].text() == "false") continue;
    // As text, without YAML's quotes; a list with commas.
    const ConfigNode value =
        parse_config_yaml("value: " + fields[f].text(), none).entries.at(0).value;
    std::string text = value.text;
    for (const ConfigNode& item : value.items) text += (text.empty() ? "" : ",") + item.text;
    words.push_back(text);
  }
  return words;
}

/// Does the runs of a plan one after the other, each in processes of its own, in
/// <out>/runs/<hash>/: config.yaml, log.txt, what `focus train` writes, done.json, and for each
/// text or recall what `focus eval` writes, eval-<hash>.json or recall-<hash>.json. What is there
/// is not done again. While it lives, no other one works in <out>. The hash of a run covers the
/// settings that count, the base's weights, the tokenizer and the bytes of all texts.
class CompareRunner {
 public:
  CompareRunner(const ComparePlan& plan, bool with_test)
      : plan_(plan), with_test_(with_test), runs_(path(plan.config.out) / "runs") {
    make_folder_durably(runs_);
    lock_.emplace(plan.config.out, "compare.lock");
    sweep_orphans(plan.config.out);
  }

  /// The outcomes in the order of the plan, fewer after a signal. A run that fails leaves its
  /// error, and the next one starts. `after_run` gets the outcomes so far.
  std::vector<RunOutcome> run_all(
      const std::function<void(const std::vector<RunOutcome>&)>& after_run) {
    std::vector<RunOutcome> outcomes;
    for (index_ = 0; index_ < plan_.runs.size() && stop_signal() == 0; ++index_) {
      const PlannedRun& run = plan_.runs[index_];
      current_ = fmt::format("run {} of {}: {}, seed {}", index_ + 1, plan_.runs.size(), run.name,
                             run.config.seed);
      RunOutcome outcome{.name = run.name, .config = run.config};
      try {
        complete(outcome);
      } catch (const std::exception& error) {
        outcome.error = error.what();
        std::ranges::replace(outcome.error, '\n', ' ');
        if (stop_signal() == 0) spdlog::info("{}: failed: {}", current_, outcome.error);
      }
      if (stop_signal() != 0) break;
      outcomes.push_back(std::move(outcome));
      after_run(outcomes);
    }
    return outcomes;
  }

 private:
  /// What read() returns for `what`, read once.
  template <class F>
  const std::string& once(const std::string& what, F&& read) {
    std::string& value = known_[what];
    if (value.empty()) value = read();
    return value;
  }

  std::string fingerprint_of_texts(const std::vector<std::string>& paths) {
    std::string all;
    for (const path& file : expand_text_paths(std::vector<path>(paths.begin(), paths.end())))
      all += once("text " + file.string(), [&] { return xxh3_file_hex(file); }) + " ";
    return all;
  }

  /// Returns the checksum of a file, or those of the files in a folder.
  static std::string fingerprint_of_files(const path& place) {
    if (!std::filesystem::is_directory(place)) return xxh3_file_hex(place);
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(place))
      if (entry.is_regular_file())
        all.insert(entry.path().filename().string() + " " + xxh3_file_hex(entry.path()));
    return fmt::format("{}", fmt::join(all, " "));
  }

  std::string hash_of(const RunConfig& config) {
    std::string text = dump_config(only_what_counts(config));
    const auto add = [&](const std::string& kind, const std::string& place, auto&& read) {
      if (!place.empty()) text += kind + ": " + once(kind + " " + place, read) + "\n";
    };
    add("base", config.base, [&] {
      const ModelFiles files = open_model(config.base);
      const auto& tokenizer = files.tokenizer;
      return fingerprint_of(files) + (tokenizer ? " " + tokenizer->fingerprint() : "");
    });
    add("tokenizer", config.tokenizer,
        [&] { return open_tokenizer(config.tokenizer)->fingerprint(); });
    for (const std::string& adapter : config.init_adapter)
      add("init_adapter", adapter, [&] { return fingerprint_of_files(result_of_run(adapter)); });
    text += "train: " + fingerprint_of_texts(config.data.train) + "\n";
    if (!config.data.valid.empty()) text += "valid: " + fingerprint_of_texts(config.data.valid);
    return hash_text(text);
  }

  /// What a child process with these words leaves in a file of the current run.
  template <class T>
  T figures_of(const Words& words, const path& file) const {
    const path log = file.parent_path() / "log.txt";
    run_child(words, log, current_);
    auto figures = read_figures<T>(file);
    if (!figures) fail("no figures in {}; the log is {}", file.string(), log.string());
    return *std::move(figures);
  }

  /// Trains and evaluates the current run.
  void complete(RunOutcome& outcome) {
    outcome.hash = hash_of(outcome.config);
    const path folder = runs_ / outcome.hash;
    outcome.config.out = folder.string();
    if (std::filesystem::exists(folder)) sweep_orphans(folder);  // what a killed run left
    train(outcome);
    const CompareEval& eval = plan_.config.eval;
    for (const auto& [split, texts] : eval.splits(with_test_)) {
      EvalSettings settings = eval.settings;
      settings.attentions.clear();
      settings.examples = outcome.config.data.examples;
      const Words options = options_of(settings);
      if (const auto figures = evaluate(outcome, "eval", split, Words{"--text"} + texts, options,
                                        fingerprint_of_texts(texts)))
        outcome.evaluation.emplace_back(split, figures->texts.value());
    }
    for (const std::string& questions : eval.recall) {
      const std::string& fingerprint = once("recall " + questions, [&] {
        return hash_text(questions_jsonl(asked_documents(questions)));
      });
      const Words options = eval.settings.beyond_positions ? Words{"--beyond-positions"} : Words{};
      if (const auto figures = evaluate(outcome, "recall", "recall: " + questions,
                                        {"--recall", questions}, options, fingerprint))
        outcome.recall.push_back(figures->recall.value());
    }
    tell_notices(folder / "log.txt");
  }

  void train(RunOutcome& outcome) {
    const path folder = outcome.config.out, done = folder / "done.json";
    outcome.train = read_figures<TrainingResult>(done);
    if (outcome.train && outcome.train->finished) {
      spdlog::info("{}: done before ({})", current_, outcome.hash);
      return;
    }
    make_folder_durably(folder);
    write_file_durably(folder / "config.yaml", std::string_view(dump_config(outcome.config)));
    spdlog::info("{}: training{}", current_, time_left());
    const double start = now();
    outcome.train = figures_of<TrainingResult>(
        {"train", (folder / "config.yaml").string(), "--resume", "--json", done.string()}, done);
    if (!outcome.train->finished) {
      if (stop_signal() == 0)
        fail("was stopped from outside; run the same command again to continue");
      return;
    }
    std::filesystem::remove_all(folder / "checkpoints");  // a finished run is never resumed
    trained_tokens_ += tokens_of(outcome.config);
    trained_seconds_ += now() - start;
  }

  /// For this run and all later ones, at the speed of those trained now.
  std::string time_left() const {
    if (trained_tokens_ == 0) return "";
    double tokens = 0;
    for (std::size_t i = index_; i < plan_.runs.size(); ++i)
      tokens += tokens_of(plan_.runs[i].config);
    return fmt::format(", all runs: at most {} left",
                       format_duration(tokens / trained_tokens_ * trained_seconds_));
  }

  /// What `focus eval` says of a run's result; a child computes it if the run's folder does not
  /// have it. `what` names it, `fingerprint` is of the input. Nothing after a signal.
  std::optional<EvaluationFile> evaluate(const RunOutcome& outcome, const std::string& kind,
                                         const std::string& what, const Words& input,
                                         const Words& options, const std::string& fingerprint) {
    if (stop_signal() != 0) return std::nullopt;
    const RunConfig& config = outcome.config;
    const Words attentions = attentions_of(plan_.runs[index_].attentions, config);
    const Words all = Words{"--attention", fmt::format("{}", fmt::join(attentions, ","))} + options;
    // Hashes the options as they are passed: a run's hash sees no defaults either.
    const std::string hash = hash_text(fmt::format("{}\n{}", fmt::join(all, "\n"), fingerprint));
    const path folder = config.out, file = folder / fmt::format("{}-{}.json", kind, hash);
    if (auto known = read_figures<EvaluationFile>(file)) return known;
    spdlog::info("{}: evaluating on {}", current_, what);
    // The run's folder may have been moved since.
    const path artifact = folder / path(outcome.train.value().artifact).filename();
    const bool whole = artifact.filename() == "model.h5";
    ModelOptions model{.bos = config.data.bos, .precision = config.precision};
    if (!whole) {
      model.adapter = artifact.string();
      model.tokenizer = config.tokenizer;
    }
    Words words =
        Words{"eval", whole ? artifact.string() : config.base} + options_of(model) + input + all;
    // One context for the rows of all runs, whatever groups they have.
    if (plan_.config.eval.settings.context == 0) words = words + Words{"--context", "0"};
    if (config.threads != 0) words = words + Words{"--threads", fmt::format("{}", config.threads)};
    return figures_of<EvaluationFile>(words + Words{"--json-speed", "--json", file.string()}, file);
  }

  const ComparePlan& plan_;
  const bool with_test_;
  const path runs_;
  std::optional<FolderLock> lock_;
  std::map<std::string, std::string> known_;         // fingerprints by what they are of
  std::size_t index_ = 0;                            // of the current run
  std::string current_;                              // it, for messages
  double trained_tokens_ = 0, trained_seconds_ = 0;  // of the runs trained now
};

/// What the runs would take; trains nothing and writes nothing but token caches.
int list_runs(const ComparePlan& plan) {
  double total = 0;
  int failed = 0;
  fmt::print("{:>4}  {:>12}  {:>8}  {:>10}  {}\n", "seed", "trainable", "tokens", "time", "run");
  std::string last;
  double seconds = 0;
  Index trainable = 0;
  for (const PlannedRun& run : plan.runs) {
    try {
      if (run.name != last) {  // seeds take equally long
        set_threads(run.config.threads);
        Session session = open_session(run.config);
        const DryRun dry = dry_run(session);
        seconds = dry.seconds;
        trainable = dry.phases.back().trainable;
        last = run.name;
      }
      total += seconds;
      fmt::print("{:>4}  {:>12}  {:>8}  {:>10}  {}\n", run.config.seed, trainable,
                 format_count(tokens_of(run.config)), format_duration(seconds), run.name);
    } catch (const std::exception& error) {
      ++failed;
      fmt::print("{:>4}  {:>12}  {:>8}  {:>10}  {}: {}\n", run.config.seed, "-", "-", "-", run.name,
                 error.what());
    }
  }
  fmt::print("{} runs, {} of training, including runs already done\n", plan.runs.size(),
             format_duration(total));
  return failed == 0 ? 0 : 1;
}

/// Writes what a comparison leaves in its folder beside its runs; returns the table for a terminal.
std::string write_tables(const ComparePlan& plan, const std::vector<RunOutcome>& outcomes) {
  const ComparedRows rows = compared_rows(outcomes);
  const auto texts = struct_to_json(rows.texts), recall = struct_to_json(rows.recall);
  const auto write = [&](const char* name, const std::string& text) {
    write_file_durably(std::filesystem::path(plan.config.out) / name, std::string_view(text));
  };
  write("compare.jsonl", rows_jsonl(texts) + rows_jsonl(recall));
  write("compare.csv", rows_csv(texts));
  write("compare.html", compare_page(plan.config, plan.runs.size(), rows, outcomes));
  if (!recall.empty()) write("compare_recall.csv", rows_csv(recall));
  return compare_table(rows);
}

/// Does the runs and writes the tables after every one: a comparison of days can be looked at.
int compare_runs(const ComparePlan& plan, bool final_figures) {
  install_stop_signals();
  std::string table;
  const std::vector<RunOutcome> outcomes =
      CompareRunner(plan, final_figures).run_all([&](const std::vector<RunOutcome>& known) {
        table = write_tables(plan, known);
      });
  if (outcomes.size() < plan.runs.size()) {
    spdlog::info("stopped after {} of {} runs; run the same command again to continue",
                 outcomes.size(), plan.runs.size());
    return 1;
  }
  fmt::print("{}{}\n", table, (std::filesystem::path(plan.config.out) / "compare.html").string());
  const bool failed =
      std::ranges::any_of(outcomes, [](const RunOutcome& o) { return !o.error.empty(); });
  return failed ? 1 : 0;
}

}  // namespace

int run_compare(Arguments arguments) {
  std::string config_file;
  bool dry = false, final_figures = false;
  CLI::App app(
      "Trains and evaluates every run of one config, each in a separate process, and writes one "
      "table: compare.html, compare.csv and compare.jsonl in the folder `out`; with eval.recall "
      "also compare_recall.csv. The files are written after every run. Finished runs are not "
      "repeated; after Ctrl-C the same command continues. A failed run is listed, the other runs "
      "continue, and the exit status is 1.",
      "focus compare");
  app.add_option("config", config_file, "YAML config of a comparison, such as configs/compare.yaml")
      ->required();
  app.add_flag("--dry-run", dry,
               "list the runs with their parameters, tokens and time; train nothing");
  app.add_flag("--final", final_figures,
               "also evaluate eval.test and eval.test_texts: once, after all choices were made on "
               "eval.valid");
  app.allow_extras();
  app.footer(
      "A config holds the keys below and\n  common: {...}        keys of a train config (focus "
      "train --help) that all runs share\n  runs: [{name: ...}]  a mapping for each run: its train "
      "keys, nested or dotted, and `sweep`;\n                       also seeds and attentions (of "
      "eval), for this run only\n  sweep: {key: [...]}  one run per value; several keys: one run "
      "per combination\nkey=value sets one of these keys, otherwise a train key in every run:\n\n" +
      describe_config(CompareConfig{}));
  parse_arguments(app, arguments);
  const ComparePlan plan =
      read_compare_plan(read_config_file(config_file), config_file, overrides_of(app));
  if (dry) return list_runs(plan);
  if (final_figures && !plan.config.eval.has_tests())
    fail("{}: --final needs eval.test, which is empty: name texts", config_file);
  return compare_runs(plan, final_figures);
}

}  // namespace focus::app
