#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/files/folder_lock.h"
#include "focus/training/compare/compare_plan.h"
#include "focus/training/compare/run_outcome.h"
#include "optim/ranks.h"

namespace focus::app {

/// The file by which the process of that rank holds a comparison's folder.
std::string lock_name(int rank);

/// Does the runs of a plan one after the other, or several processes one each at a time, each run
/// in a process of its own, in <out>/runs/<hash>/: config.yaml, log.txt, what `focus train` writes,
/// done.json, eval-<hash>.json and, of each task and of recall, <task>-<hash>.json. What is there
/// is not done again. While it lives, no other one works in <out>.
///
/// The hash sees the settings that differ from their defaults, so that a key added to RunConfig
/// whose default is what was done before leaves every run where it is. config.yaml holds all
/// settings: where it says other ones than the hash now covers, a default has changed; that run
/// stays as it is, and the new one gets the place <hash>-2, or the next number that is free.
class CompareRunner {
 public:
  /// `signal` says which signal has asked to stop, or 0. Each of `ranks` makes a runner of the same
  /// plan. Throws where the folder cannot be written, or another process works in it.
  CompareRunner(const ComparePlan& plan, bool with_test, std::function<int()> signal,
                Ranks& ranks = one_process());

  /// What is known after a run, in the order of the plan.
  using AfterRun = std::function<void(const std::vector<RunOutcome>&)>;

  /// The outcomes in the order of the plan, of all processes; fewer where a signal came. A run that
  /// fails leaves its error, and the next one starts. `after_run` is called by one process alone:
  /// of several none knows what the others have done.
  std::vector<RunOutcome> run_all(const AfterRun& after_run = {});

  /// Name of a run's place: of the settings that count, the base's weights, the tokenizer and the
  /// bytes of all texts. Throws where one of these cannot be read.
  std::string hash_of(const RunConfig& config);

 private:
  /// The folder of each finished run, or why it cannot run: what the first process finds.
  std::vector<RunOutcome> places();
  /// Each process holds a lock, which the runs that it starts hold on. The first makes sure that
  /// nobody is left of a job of more processes.
  void lock();
  void name_current(std::size_t index);
  /// Makes `error` one line of the outcome, and tells it.
  void note_failure(RunOutcome& outcome, const std::exception& error) const;
  /// Trains and evaluates the current run.
  void complete(RunOutcome& outcome);
  void train(RunOutcome& outcome);
  void evaluate(RunOutcome& outcome, const std::string& split,
                const std::vector<std::string>& texts);
  void evaluate_recall(RunOutcome& outcome, const std::string& questions);
  /// The words by which `focus eval` runs the current run's attentions.
  std::vector<std::string> attention_words(const RunOutcome& outcome) const;
  /// What `focus eval` writes of a run's result, in a file of the run's folder; a child makes it
  /// where it is not there. `what` names it, `words` are options beside those of the model.
  EvaluationFile figures_of(const RunOutcome& outcome, const std::string& name,
                            const std::string& what, const std::vector<std::string>& words);
  int tick();
  void tell_step();
  /// Passes on how far the child says that it is.
  void tell_share();
  /// For all runs, of one process; `rate` in tokens a second is of the current one.
  std::string time_left(double rate) const;
  const std::string& fingerprint(const std::string& kind, const std::string& path);
  std::string fingerprint_of_texts(const std::vector<std::string>& paths);

  const ComparePlan& plan_;
  bool with_test_;
  std::function<int()> signal_;
  Ranks& ranks_;
  std::filesystem::path runs_;
  std::optional<FolderLock> lock_;
  std::map<std::string, std::string> fingerprints_;  // by kind and path, read once

  // For the lines on stderr: the run in progress.
  std::size_t index_ = 0;
  std::string current_;
  std::filesystem::path metrics_;  // of the child where it trains
  std::filesystem::path log_;      // of the child where it evaluates
  std::string shown_line_;
  std::int64_t shown_step_ = -1;
  double last_line_ = 0;
  double trained_tokens_ = 0, trained_seconds_ = 0;  // of the runs trained now
};

/// Tokens that a run trains on.
double tokens_of(const RunConfig& config);

}  // namespace focus::app
