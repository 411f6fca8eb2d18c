#include "apps/compare/compare_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "apps/compare/child.h"
#include "apps/terminal/progress.h"
#include "autograd/check.h"
#include "autograd/clock.h"
#include "autograd/machine.h"
#include "data/files/checksum.h"
#include "data/files/durable_file.h"
#include "data/settings/recipe.h"
#include "data/text/text.h"
#include "focus/train/metrics.h"
#include "focus/train/model_files.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;
using std::filesystem::path;

constexpr double kSecondsBetweenLines = 5;

std::string hash_text(const std::string& text) {
  return xxh3_hex(std::as_bytes(std::span(text))).substr(0, 16);
}

[[noreturn]] void fail_child(const ChildResult& result, const path& log) {
  if (result.status > 128)
    fail("ended by signal {} (9: perhaps out of memory); its log is {}", result.status - 128,
         log.string());
  const std::string said = last_line_of(log);
  if (said.empty())
    fail("ended with status {} and said nothing that can be read; its log is {}", result.status,
         log.string());
  fail("{} (log: {})", said, log.string());
}

}  // namespace

double tokens_of(const RunConfig& config) {
  return static_cast<double>(config.steps * config.tokens_per_step());
}

CompareRunner::CompareRunner(const ComparePlan& plan, bool with_test, std::function<int()> signal)
    : plan_(plan),
      with_test_(with_test),
      signal_(std::move(signal)),
      runs_(path(plan.config.out) / "runs") {
  make_folder_durably(runs_);
  lock_.emplace(plan.config.out, "compare.lock");
}

const std::string& CompareRunner::fingerprint(const std::string& kind, const std::string& place) {
  std::string& value = fingerprints_[kind + " " + place];
  if (value.empty()) {
    if (kind == "base") {
      const ModelFiles files = open_model(place);
      value = focus::fingerprint_of(files);
      if (files.tokenizer) value += " " + files.tokenizer->fingerprint();
    } else if (kind == "tokenizer") {
      value = load_tokenizer(place)->fingerprint();
    } else {
      value = xxh3_file_hex(place);
    }
  }
  return value;
}

std::string CompareRunner::fingerprint_of_texts(const std::vector<std::string>& paths) {
  std::string all;
  for (const path& file : expand_text_paths(std::vector<path>(paths.begin(), paths.end())))
    all += fingerprint("text", file.string()) + " ";
  return all;
}

std::string CompareRunner::hash_of(const RunConfig& config) {
  std::string text = dump_recipe_changes(only_what_counts(config));
  if (!config.base.empty()) text += "base: " + fingerprint("base", config.base) + "\n";
  if (!config.tokenizer.empty())
    text += "tokenizer: " + fingerprint("tokenizer", config.tokenizer) + "\n";
  text += "train: " + fingerprint_of_texts(config.data.train) + "\n";
  if (!config.data.valid.empty()) text += "valid: " + fingerprint_of_texts(config.data.valid);
  return hash_text(text);
}

std::string CompareRunner::place_of(const RunConfig& config) {
  const std::string hash = hash_of(config);
  for (int number = 1;; ++number) {
    std::string place = number == 1 ? hash : fmt::format("{}-{}", hash, number);
    const path recipe = runs_ / place / "recipe.yaml";
    if (!std::filesystem::exists(recipe)) return place;
    const std::string difference = first_changed_setting(recipe, config);
    if (difference.empty()) return place;
    spdlog::info("{}: {} was made by other defaults ({}); it stays, this run is another", current_,
                 place, difference);
  }
}

std::vector<RunOutcome> CompareRunner::run_all() {
  std::vector<RunOutcome> outcomes;
  for (index_ = 0; index_ < plan_.runs.size(); ++index_) {
    const PlannedRun& run = plan_.runs[index_];
    RunOutcome outcome{.name = run.name, .config = run.config};
    current_ = fmt::format("run {} of {}: {}, seed {}", index_ + 1, plan_.runs.size(), run.name,
                           run.config.seed);
    try {
      outcome.hash = place_of(run.config);
      outcome.config.out = (runs_ / outcome.hash).string();
      train(outcome);
      for (const auto& [split, texts] : plan_.config.eval.splits(with_test_))
        if (signal_() == 0) evaluate(outcome, split, texts);
      for (const std::string& task : plan_.config.eval.tasks.tasks)
        if (signal_() == 0) evaluate_task(outcome, task);
      if (signal_() != 0) return outcomes;
    } catch (const std::exception& problem) {
      if (signal_() != 0) return outcomes;
      outcome.error = problem.what();
      std::ranges::replace(outcome.error, '\n', ' ');
      spdlog::info("{}: failed: {}", current_, outcome.error);
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

void CompareRunner::train(RunOutcome& outcome) {
  const path folder = outcome.config.out, done = folder / "done.json", log = folder / "log.txt";
  outcome.train = read_json_object(done);
  if (outcome.train.is_object()) {
    spdlog::info("{}: done before ({})", current_, outcome.hash);
    return;
  }
  make_folder_durably(folder);
  write_file_durably(folder / "recipe.yaml", std::string_view(dump_recipe(outcome.config)));
  spdlog::info("{}: training", current_);
  metrics_ = folder / "metrics.jsonl";
  shown_step_ = -1;
  last_line_ = now();
  const double start = now();
  const path figures = folder / "train.json", peak_file = folder / "peak.json";
  std::filesystem::remove(figures);
  const ChildResult child = run_child(
      {"train", (folder / "recipe.yaml").string(), "--resume", "--json", figures.string()}, log,
      [this] { return tick(); });
  // A run done in parts: the peak is that of the largest.
  const Json before = read_json_object(peak_file);
  const std::int64_t peak =
      std::max(child.peak_bytes, before.is_object() ? before.value("peak_bytes", 0L) : 0L);
  write_file_durably(peak_file, std::string_view(Json({{"peak_bytes", peak}}).dump()));
  if (child.status != 0) fail_child(child, log);
  Json train = read_json_object(figures);
  if (!train.is_object()) fail("no figures in {}; the log is {}", figures.string(), log.string());
  if (!train.at("finished").get<bool>()) {
    if (signal_() == 0) fail("was stopped from outside; start again to go on");
    return;
  }
  train["peak_bytes"] = peak;
  train["tokens_per_second"] = median_rate(read_metrics(metrics_));
  train["tokens"] = static_cast<std::int64_t>(tokens_of(outcome.config));
  write_file_durably(done, std::string_view(train.dump(2) + "\n"));
  // The result is written: of a finished run nobody goes on.
  std::filesystem::remove_all(folder / "checkpoints");
  std::filesystem::remove(peak_file);
  std::filesystem::remove(figures);
  trained_tokens_ += tokens_of(outcome.config);
  trained_seconds_ += now() - start;
  outcome.train = train;
  outcome.trained_now = true;
}

std::vector<std::string> CompareRunner::attention_words(const RunOutcome& outcome) const {
  const std::vector<std::string> attentions =
      attentions_of(plan_.runs[index_].attentions, outcome.config);
  return {"--attention", fmt::format("{}", fmt::join(attentions, ",")), "--compute",
          std::string(name_of(outcome.config.compute))};
}

Json CompareRunner::figures_of(const RunOutcome& outcome, const std::string& name,
                               const std::string& what, const std::vector<std::string>& words) {
  const path folder = outcome.config.out, file = folder / name, log = folder / "log.txt";
  Json json = read_json_object(file);
  if (json.is_object()) return json;
  spdlog::info("{}: evaluating on {}", current_, what);
  metrics_.clear();
  const path artifact = outcome.train.at("artifact").get<std::string>();
  const bool whole = artifact.filename() == "model.h5";
  std::vector<std::string> all = {"eval", whole ? artifact.string() : outcome.config.base};
  if (!whole) all.insert(all.end(), {"--adapter", artifact.string()});
  if (!outcome.config.tokenizer.empty() && !whole)
    all.insert(all.end(), {"--tokenizer", outcome.config.tokenizer});
  all.insert(all.end(), words.begin(), words.end());
  if (outcome.config.threads != 0)
    all.insert(all.end(), {"--threads", fmt::format("{}", outcome.config.threads)});
  all.insert(all.end(), {"--json-speed", "--json", file.string()});
  const ChildResult child = run_child(all, log, [this] { return tick(); });
  if (child.status != 0) fail_child(child, log);
  json = read_json_object(file);
  if (!json.is_object()) fail("no figures in {}; the log is {}", file.string(), log.string());
  return json;
}

void CompareRunner::evaluate(RunOutcome& outcome, const std::string& split,
                             const std::vector<std::string>& texts) {
  const EvalSettings& settings = plan_.config.eval.settings;
  std::vector<std::string> options = attention_words(outcome);
  EvalSettings said = settings, unsaid;
  const auto fields = recipe_fields(said), usual = recipe_fields(unsaid);
  for (std::size_t f = 1; f < fields.size(); ++f) {  // the first are the attentions
    if (fields[f].text() == usual[f].text()) continue;
    std::string option = "--" + fields[f].key;
    std::ranges::replace(option, '_', '-');
    options.push_back(option);
    if (usual[f].text() != "false")
      options.push_back(fields[f].key == "separator" ? settings.separator : fields[f].text());
  }
  // Of the options as they are passed, for the reason that a run's hash sees no defaults.
  const std::string hash =
      hash_text(fmt::format("{}\n{}", fmt::join(options, "\n"), fingerprint_of_texts(texts)));
  std::vector<std::string> words = {"--text"};
  words.insert(words.end(), texts.begin(), texts.end());
  words.insert(words.end(), options.begin(), options.end());
  outcome.evaluation[split] = figures_of(outcome, fmt::format("eval-{}.json", hash), split, words);
}

void CompareRunner::evaluate_task(RunOutcome& outcome, const std::string& task) {
  const TaskSettings& asked = plan_.config.eval.tasks;
  std::vector<std::string> options = attention_words(outcome);
  options.insert(options.end(), {"--start", value_text(asked.start)});
  // Where weights are not the base's any more, the base itself is what rows are held against. The
  // run's own hash knows its bytes: not the place, but that it is asked for counts here.
  const RunConfig& config = outcome.config;
  const bool changed = !config.base.empty() && config.method != Method::retrofit;
  if (changed) options.emplace_back("--reference");
  std::string& fingerprint = fingerprints_["task " + task];
  if (fingerprint.empty())
    fingerprint = fingerprint_of(read_task(task, asked.task_data, asked.limit));
  const std::string hash = hash_text(fmt::format("{}\n{}", fmt::join(options, "\n"), fingerprint));
  std::vector<std::string> words = {"--tasks",       task,      "--task-data",
                                    asked.task_data, "--limit", fmt::format("{}", asked.limit)};
  words.insert(words.end(), options.begin(), options.end());
  if (changed) words.push_back(config.base);
  const Json figures = figures_of(outcome, fmt::format("{}-{}.json", task, hash), task, words);
  outcome.tasks.push_back(figures.at("tasks").at(0));
}

int CompareRunner::tick() {
  if (!metrics_.empty() && now() - last_line_ >= kSecondsBetweenLines) {
    last_line_ = now();
    const Json record = last_loss_record(metrics_);
    if (record.is_object() && record["step"].get<std::int64_t>() != shown_step_) {
      const RunConfig& config = plan_.runs[index_].config;
      shown_step_ = record["step"].get<std::int64_t>();
      const double rate = record.value("tokens_per_second", 0.0);
      double left = tokens_of(config) *
                    (1 - static_cast<double>(shown_step_) /
                             static_cast<double>(std::max<std::int64_t>(1, config.steps)));
      for (std::size_t i = index_ + 1; i < plan_.runs.size(); ++i)
        left += tokens_of(plan_.runs[i].config);
      const double speed = trained_seconds_ > 0 ? trained_tokens_ / trained_seconds_ : rate;
      spdlog::info("{}: step {}/{}  loss {:.4f}  {} tok/s  all runs: at most {} left", current_,
                   shown_step_, config.steps, record["loss"].get<double>(), format_count(rate),
                   format_duration(left / speed));
    }
  }
  return signal_();
}

}  // namespace focus
