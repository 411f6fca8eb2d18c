#pragma once

#include <string>
#include <vector>

#include "focus/evaluation/evaluation.h"
#include "focus/report/claims.h"
#include "focus/scores/task_scores.h"
#include "focus/training/run_config.h"

namespace focus {

/// Texts of what a run adapts to, and of what its base was good at before.
struct TargetAndSource {
  std::vector<std::string> target, source;

  template <class F>
  void visit(F&& f) {
    f("target", target, "what the runs are trained towards: files (.txt, .xz) or folders");
    f("source", source, "what they may forget by it, such as text of the base's own training");
  }
};

/// How every finished run is evaluated, all on the same windows.
struct CompareEval {
  std::vector<std::string> valid, test;
  TargetAndSource texts, test_texts;
  EvalSettings settings;
  Index far = 0;                         // tokens of short context; 0: no far tokens
  std::vector<std::string> recall = {};  // as `focus eval --recall` takes them
  TaskSettings tasks;

  /// A split's name and its texts, those that there are; the ones of tests last, if at all.
  std::vector<std::pair<std::string, std::vector<std::string>>> splits(bool with_test) const;
  bool has_tests() const { return !test.empty() || !test_texts.target.empty(); }

  template <class F>
  void visit(F&& f) {
    f("valid", valid, "texts to choose by: files (.txt, .xz) or folders");
    f("test", test, "texts read with --final alone: what no choice may rest on");
    f("texts", texts, "the plane of target loss against source loss; beside valid or in its place");
    f("test_texts", test_texts, "the same, read with --final alone");
    settings.visit(f);
    f("far", far,
      "loss on long-range tokens too: those that dense attention predicts better by 0.5 nats than "
      "the "
      "same model with so many tokens of context; and what each row keeps of the gain of "
      "distance; 0: not measured",
      {0, 1 << 22});
    f("recall", recall,
      "questions whose answers stand far before: JSON lines as focus corpus --questions writes "
      "them, or a kind with its options, recall:keys=8:distance=64,256:documents=100");
    tasks.visit(f);
  }
};

/// The keys of a comparison's own, beside `common`, `runs` and `sweep`.
struct CompareConfig {
  std::string title = "Comparison";
  std::string out = "out/compare";
  std::vector<std::int64_t> seeds = {1};
  CompareEval eval;

  template <class F>
  void visit(F&& f) {
    f("title", title, "of the page");
    f("out", out, "folder of the page, the tables, and the runs");
    f("seeds", seeds, "every run is done once with each", {0, 1e18});
    f("eval", eval, "how each finished run is evaluated");
  }
};

/// One training, resolved; `out` is set when its place in the cache is known.
struct PlannedRun {
  std::string name;  // with the sweep's values: "focus, num_groups=8"; the same for all seeds
  RunConfig config;
  std::vector<std::string> attentions = {};  // the rows: the run's own, or eval.attentions
};

struct ComparePlan {
  CompareConfig config;
  std::vector<PlannedRun> runs;
  std::vector<Claim> claims = {};
};

/// Of the words of eval.attentions, those that a model trained by `config` can be evaluated with;
/// without any, dense, local, focus and trained are meant.
std::vector<std::string> attentions_of(const std::vector<std::string>& words,
                                       const RunConfig& config);

/// Reads a comparison:
///   title, out, seeds, eval   as CompareConfig
///   common: {...}             keys of a train config that all runs share
///   runs: [{name: ..., ...}]  one mapping a run, of train keys nested or dotted, its own sweep,
///                             and its own seeds and attentions in place of those at the top
///   sweep: {key: [a, b]}      every run once with each value; of several keys each with each
///   claims: [{claim: ...}]    what the page holds against its rows, each as Claim
/// An override is a key of CompareConfig, or else a train key that wins in every run. Throws
/// std::runtime_error that lists every problem, one a line.
ComparePlan read_compare_plan(const std::string& text, const std::string& source,
                              const std::vector<std::string>& overrides);

}  // namespace focus
