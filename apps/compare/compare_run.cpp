#include "apps/compare/compare_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "apps/compare/child.h"
#include "apps/compare/work_list.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "autograd/base/clock.h"
#include "autograd/machine.h"
#include "data/files/checksum.h"
#include "data/files/durable_file.h"
#include "data/settings/config.h"
#include "data/settings/struct_json.h"
#include "data/text/text.h"
#include "focus/evaluation/recall/recall_eval.h"
#include "focus/models/fingerprint.h"
#include "focus/models/model_files.h"
#include "focus/training/compare/training_page.h"
#include "focus/training/metrics.h"

namespace focus::app {
namespace {

using std::filesystem::path;

constexpr double kSecondsBetweenLines = 5;

std::string hash_text(const std::string& text) {
  return xxh3_hex(std::as_bytes(std::span(text))).substr(0, 16);
}

/// An outcome of a plan, from one process to the others.
struct NumberedOutcome {
  std::int64_t index = 0;
  RunOutcome outcome = {};

  void visit(auto&& f) {
    f("index", index);
    f("outcome", outcome);
  }
};

std::string to_text(const std::vector<std::size_t>& indices,
                    const std::vector<RunOutcome>& outcomes) {
  std::vector<NumberedOutcome> all;
  all.reserve(indices.size());
  for (const std::size_t i : indices) all.push_back({static_cast<std::int64_t>(i), outcomes[i]});
  // A message may name a path that is no UTF-8.
  return structs_to_json(all).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Puts what to_text() says into `outcomes`, whose plan is the same; returns which they were.
std::set<std::size_t> from_text(const std::string& text, std::vector<RunOutcome>& outcomes) {
  const nlohmann::json json = nlohmann::json::parse(text);
  const JsonView all(json, "outcomes");
  std::set<std::size_t> indices;
  for (std::size_t i = 0; i < all.array_size(); ++i) {
    const auto most = static_cast<std::int64_t>(outcomes.size());
    const auto index = static_cast<std::size_t>(all.item(i).at("index").integer(most));
    read_struct(all.item(i).at("outcome"), outcomes[index]);
    indices.insert(index);
  }
  return indices;
}

/// The peak of a training that is done in parts.
struct PeakFile {
  std::int64_t peak_bytes = 0;

  void visit(auto&& f) { f("peak_bytes", peak_bytes); }
};

/// What a file of a run's folder holds; nothing where it is missing or not whole.
template <class T>
std::optional<T> read_figures(const path& file) {
  const nlohmann::json json = read_json_object(file);
  if (!json.is_object()) return std::nullopt;
  return struct_from_json<T>(json, file.string());
}

[[noreturn]] void fail_child(const ChildResult& result, const path& log) {
  if (result.status > 128)
    fail("ended by signal {} (9: possibly out of memory); its log is {}", result.status - 128,
         log.string());
  const std::string said = last_line_of(log);
  if (said.empty())
    fail("ended with status {} and printed no parsable output; its log is {}", result.status,
         log.string());
  fail("{} (log: {})", said, log.string());
}

}  // namespace

std::string lock_name(int rank) {
  return rank == 0 ? "compare.lock" : fmt::format("compare.{}.lock", rank);
}

double tokens_of(const RunConfig& config) {
  return static_cast<double>(config.steps * config.tokens_per_step());
}

CompareRunner::CompareRunner(const ComparePlan& plan, bool with_test, std::function<int()> signal,
                             Ranks& ranks)
    : plan_(plan),
      with_test_(with_test),
      signal_(std::move(signal)),
      ranks_(ranks),
      runs_(path(plan.config.out) / "runs") {
  make_folder_durably(runs_);
  lock();
}

void CompareRunner::lock() {
  const path out = plan_.config.out;
  if (!ranks_.first()) ranks_.wait();
  for (int other = 0; ranks_.first() && std::filesystem::exists(out / lock_name(other)); ++other)
    const FolderLock free(out, lock_name(other));
  lock_.emplace(out, lock_name(ranks_.rank()));
  if (!ranks_.first()) return;
  sweep_orphans(out);
  ranks_.wait();
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
  std::string text = dump_config(only_what_counts(config));
  if (!config.base.empty()) text += "base: " + fingerprint("base", config.base) + "\n";
  if (!config.tokenizer.empty())
    text += "tokenizer: " + fingerprint("tokenizer", config.tokenizer) + "\n";
  text += "train: " + fingerprint_of_texts(config.data.train) + "\n";
  if (!config.data.valid.empty()) text += "valid: " + fingerprint_of_texts(config.data.valid);
  return hash_text(text);
}

void CompareRunner::name_current(std::size_t index) {
  index_ = index;
  const PlannedRun& run = plan_.runs[index];
  current_ = fmt::format("run {} of {}: {}, seed {}", index + 1, plan_.runs.size(), run.name,
                         run.config.seed);
}

void CompareRunner::note_failure(RunOutcome& outcome, const std::exception& error) const {
  outcome.error = error.what();
  std::ranges::replace(outcome.error, '\n', ' ');
  spdlog::info("{}: failed: {}", current_, outcome.error);
}

std::vector<RunOutcome> CompareRunner::places() {
  std::vector<RunOutcome> outcomes;
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < plan_.runs.size(); ++i) {
    RunOutcome& outcome = outcomes.emplace_back(
        RunOutcome{.name = plan_.runs[i].name, .config = plan_.runs[i].config});
    all.push_back(i);
    if (!ranks_.first()) continue;
    name_current(i);
    try {
      outcome.hash = hash_of(outcome.config);
      outcome.config.out = (runs_ / outcome.hash).string();
    } catch (const std::exception& error) {
      note_failure(outcome, error);
    }
  }
  // A place that one process finds free may be taken a moment later: the first has said where.
  if (ranks_.count() > 1)
    from_text(ranks_.gather(ranks_.first() ? to_text(all, outcomes) : "").front(), outcomes);
  return outcomes;
}

std::vector<RunOutcome> CompareRunner::run_all(const AfterRun& after_run) {
  std::vector<RunOutcome> outcomes = places();
  // Runs of one place are one piece of work: the later ones find done what the first has done.
  std::vector<std::vector<std::size_t>> pieces;
  std::map<std::string, std::size_t> piece_of;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (!outcomes[i].error.empty()) continue;
    const auto [found, is_new] = piece_of.emplace(outcomes[i].hash, pieces.size());
    if (is_new) pieces.emplace_back();
    pieces[found->second].push_back(i);
  }
  WorkList list(path(plan_.config.out) / "compare.taken", pieces.size(), ranks_);
  std::vector<std::size_t> done;
  const auto known = [&](const std::set<std::size_t>& finished) {
    std::vector<RunOutcome> all;
    for (std::size_t i = 0; i < outcomes.size(); ++i)
      if (!outcomes[i].error.empty() || finished.contains(i)) all.push_back(outcomes[i]);
    return all;
  };
  for (auto piece = list.take(); piece && signal_() == 0; piece = list.take())
    for (const std::size_t i : pieces[*piece]) {
      if (signal_() != 0) break;
      name_current(i);
      try {
        complete(outcomes[i]);
      } catch (const std::exception& error) {
        if (signal_() == 0) note_failure(outcomes[i], error);
      }
      if (signal_() != 0) break;
      done.push_back(i);
      if (after_run && ranks_.count() == 1) after_run(known({done.begin(), done.end()}));
    }
  list.finish();
  std::set<std::size_t> finished(done.begin(), done.end());
  if (ranks_.count() > 1)
    for (const std::string& of_one : ranks_.gather(to_text(done, outcomes)))
      finished.merge(from_text(of_one, outcomes));
  return known(finished);
}

void CompareRunner::complete(RunOutcome& outcome) {
  // What a killed run left half written, of training and of evaluations.
  if (const path folder = outcome.config.out; std::filesystem::exists(folder))
    sweep_orphans(folder);
  train(outcome);
  for (const auto& [split, texts] : plan_.config.eval.splits(with_test_))
    if (signal_() == 0) evaluate(outcome, split, texts);
  for (const std::string& questions : plan_.config.eval.recall)
    if (signal_() == 0) evaluate_recall(outcome, questions);
}

void CompareRunner::train(RunOutcome& outcome) {
  const path folder = outcome.config.out, done = folder / "done.json", log = folder / "log.txt";
  outcome.train = read_figures<TrainFigures>(done);
  if (outcome.train) {
    spdlog::info("{}: done before ({})", current_, outcome.hash);
    return;
  }
  make_folder_durably(folder);
  write_file_durably(folder / "config.yaml", std::string_view(dump_config(outcome.config)));
  spdlog::info("{}: training", current_);
  metrics_ = folder / "metrics.jsonl";
  log_ = log;  // of work beside the steps
  shown_line_ = last_line_of(log);
  shown_step_ = -1;
  last_line_ = now();
  const double start = now();
  const path figures = folder / "train.json", peak_file = folder / "peak.json";
  std::filesystem::remove(figures);
  const ChildResult child = run_child(
      {"train", (folder / "config.yaml").string(), "--resume", "--json", figures.string()}, log,
      [this] { return tick(); });
  // A run done in parts: the peak is that of the largest.
  const std::int64_t peak =
      std::max(child.peak_bytes, read_figures<PeakFile>(peak_file).value_or(PeakFile{}).peak_bytes);
  write_file_durably(peak_file, std::string_view(struct_to_json(PeakFile{peak}).dump()));
  if (child.status != 0) fail_child(child, log);
  auto train = read_figures<TrainFigures>(figures);
  if (!train) fail("no figures in {}; the log is {}", figures.string(), log.string());
  if (!train->finished) {
    if (signal_() == 0) fail("was stopped from outside; run the same command again to continue");
    return;
  }
  train->peak_bytes = peak;
  train->tokens_per_second = median_rate(read_metrics(metrics_));
  train->tokens = static_cast<std::int64_t>(tokens_of(outcome.config));
  write_file_durably(done, std::string_view(struct_to_json(*train).dump(2) + "\n"));
  // The result is written: a finished run is never resumed.
  std::filesystem::remove_all(folder / "checkpoints");
  std::filesystem::remove(peak_file);
  std::filesystem::remove(figures);
  trained_tokens_ += tokens_of(outcome.config);
  trained_seconds_ += now() - start;
  outcome.train = train;
}

std::vector<std::string> CompareRunner::attention_words(const RunOutcome& outcome) const {
  const std::vector<std::string> attentions =
      attentions_of(plan_.runs[index_].attentions, outcome.config);
  return {"--attention", fmt::format("{}", fmt::join(attentions, ",")), "--precision",
          std::string(name_of(outcome.config.precision))};
}

EvaluationFile CompareRunner::figures_of(const RunOutcome& outcome, const std::string& name,
                                         const std::string& what,
                                         const std::vector<std::string>& words) {
  const path folder = outcome.config.out, file = folder / name, log = folder / "log.txt";
  if (auto known = read_figures<EvaluationFile>(file)) return *known;
  spdlog::info("{}: evaluating on {}", current_, what);
  metrics_.clear();
  log_ = log;
  shown_line_ = last_line_of(log);
  last_line_ = now();
  // The run's folder may have been moved since.
  const path artifact = folder / path(outcome.train.value().artifact).filename();
  const bool whole = artifact.filename() == "model.h5";
  std::vector<std::string> all = {"eval", whole ? artifact.string() : outcome.config.base};
  if (!whole) all.insert(all.end(), {"--adapter", artifact.string()});
  if (!outcome.config.tokenizer.empty() && !whole)
    all.insert(all.end(), {"--tokenizer", outcome.config.tokenizer});
  if (outcome.config.data.bos != Bos::automatic)
    all.insert(all.end(), {"--bos", value_text(outcome.config.data.bos)});
  all.insert(all.end(), words.begin(), words.end());
  if (outcome.config.threads != 0)
    all.insert(all.end(), {"--threads", fmt::format("{}", outcome.config.threads)});
  all.insert(all.end(), {"--json-speed", "--json", file.string()});
  const ChildResult child = run_child(all, log, [this] { return tick(); });
  if (child.status != 0) fail_child(child, log);
  auto figures = read_figures<EvaluationFile>(file);
  if (!figures) fail("no figures in {}; the log is {}", file.string(), log.string());
  return *figures;
}

void CompareRunner::evaluate(RunOutcome& outcome, const std::string& split,
                             const std::vector<std::string>& texts) {
  const EvalSettings& settings = plan_.config.eval.settings;
  std::vector<std::string> options = attention_words(outcome);
  EvalSettings said = settings, unsaid;
  const auto fields = config_fields(said), usual = config_fields(unsaid);
  for (std::size_t f = 1; f < fields.size(); ++f) {  // the first are the attentions
    if (fields[f].text() == usual[f].text()) continue;
    std::string option = "--" + fields[f].key;
    std::ranges::replace(option, '_', '-');
    options.push_back(option);
    if (usual[f].text() != "false")
      options.push_back(fields[f].key == "separator" ? settings.separator : fields[f].text());
  }
  if (plan_.config.eval.far > 0)
    options.insert(options.end(), {"--far", fmt::format("{}", plan_.config.eval.far)});
  // Hashes the options as they are passed: a run's hash sees no defaults either.
  const std::string hash =
      hash_text(fmt::format("{}\n{}", fmt::join(options, "\n"), fingerprint_of_texts(texts)));
  std::vector<std::string> words = {"--text"};
  words.insert(words.end(), texts.begin(), texts.end());
  words.insert(words.end(), options.begin(), options.end());
  const std::string name = fmt::format("eval-{}.json", hash);
  outcome.evaluation.emplace_back(split, figures_of(outcome, name, split, words).texts.value());
}

void CompareRunner::evaluate_recall(RunOutcome& outcome, const std::string& questions) {
  std::vector<std::string> options = attention_words(outcome);
  if (plan_.config.eval.settings.beyond_positions) options.emplace_back("--beyond-positions");
  std::string& fingerprint = fingerprints_["recall " + questions];
  if (fingerprint.empty()) fingerprint = hash_text(questions_jsonl(asked_documents(questions)));
  const std::string hash = hash_text(fmt::format("{}\n{}", fmt::join(options, "\n"), fingerprint));
  std::vector<std::string> words = {"--recall", questions};
  words.insert(words.end(), options.begin(), options.end());
  const std::string name = fmt::format("recall-{}.json", hash);
  outcome.recall.push_back(figures_of(outcome, name, "recall: " + questions, words).recall.value());
}

std::string CompareRunner::time_left(double rate) const {
  const RunConfig& config = plan_.runs[index_].config;
  double left =
      tokens_of(config) * (1 - static_cast<double>(shown_step_) /
                                   static_cast<double>(std::max<std::int64_t>(1, config.steps)));
  for (std::size_t i = index_ + 1; i < plan_.runs.size(); ++i)
    left += tokens_of(plan_.runs[i].config);
  return format_duration(left / (trained_seconds_ > 0 ? trained_tokens_ / trained_seconds_ : rate));
}

int CompareRunner::tick() {
  if (now() - last_line_ >= kSecondsBetweenLines) {
    last_line_ = now();
    if (!metrics_.empty()) tell_step();
    if (!log_.empty()) tell_share();
  }
  return signal_();
}

void CompareRunner::tell_step() {
  const std::optional<StepRecord> record = last_step(metrics_);
  if (!record || !record->step || *record->step == static_cast<double>(shown_step_)) return;
  const RunConfig& config = plan_.runs[index_].config;
  shown_step_ = static_cast<std::int64_t>(*record->step);
  const double rate = record->tokens_per_second.value_or(0);
  const std::string all =
      ranks_.count() > 1 ? "" : fmt::format("  all runs: at most {} left", time_left(rate));
  spdlog::info("{}: step {}/{}  loss {:.4f}  {} tok/s{}", current_, shown_step_, config.steps,
               record->loss.value_or(NAN), format_count(rate), all);
}

void CompareRunner::tell_share() {
  const std::string line = last_line_of(log_);
  if (line == shown_line_ || line.find("%  left ") == std::string::npos) return;
  shown_line_ = line;
  spdlog::info("{}: {}", current_, line);
}

}  // namespace focus::app
