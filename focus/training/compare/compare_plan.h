#pragma once

#include <string>
#include <vector>

#include "focus/evaluation/evaluation.h"
#include "focus/training/run_config.h"

namespace focus {

/// Texts of what a run adapts to, and of what its base was good at before.
struct TargetAndSource {
  std::vector<std::string> target = {}, source = {};

  void visit(auto&& f) {
    f("target", target, "target texts, which the runs train for: files (.txt, .xz) or folders");
    f("source", source,
      "source texts, which measure forgetting, such as text of the base's training");
  }
};

/// How every finished run is evaluated, all on the same windows.
struct CompareEval {
  std::vector<std::string> valid = {}, test = {};
  TargetAndSource texts = {}, test_texts = {};
  EvalSettings settings = {};
  std::vector<std::string> recall = {};  // as `focus eval --recall` takes them

  /// A split's name and its texts, those that there are; the ones of tests last, if at all.
  std::vector<std::pair<std::string, std::vector<std::string>>> splits(bool with_test) const;
  bool has_tests() const { return !test.empty() || !test_texts.target.empty(); }

  void visit(auto&& f) {
    f("valid", valid, "validation texts for all choices: files (.txt, .xz) or folders");
    f("test", test, "test texts, read only with --final; make no choice on them");
    f("texts", texts,
      "texts for target loss against source loss; in addition to valid or instead of it");
    f("test_texts", test_texts, "the same for test, read only with --final");
    settings.visit_windows(f);  // examples are read as the run reads them
    f("recall", recall,
      "long-range questions and answers: JSON lines written by focus corpus --questions, or a kind "
      "with its options, recall:keys=8:distance=64,256:documents=100");
  }
};

/// The keys of a comparison's own, beside `common`, `runs` and `sweep`.
struct CompareConfig {
  std::string title = "Comparison";
  std::string out = "out/compare";
  std::vector<std::int64_t> seeds = {1};
  CompareEval eval = {};

  void visit(auto&& f) {
    f("title", title, "title of the page");
    f("out", out, "folder of the page, the tables and the runs");
    f("seeds", seeds, "random seeds; every run is trained once with each", {0, 1e18});
    f("eval", eval, "evaluation of each finished run");
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
};

/// Those specs of eval.attentions that a model trained by `config` can be evaluated with;
/// without any, dense, local, focus and trained are meant.
std::vector<std::string> attentions_of(const std::vector<std::string>& words,
                                       const RunConfig& config);

/// Reads a comparison:
///   title, out, seeds, eval   as CompareConfig
///   common: {...}             keys of a train config that all runs share
///   runs: [{name: ..., ...}]  one mapping a run, of train keys nested or dotted, its own sweep,
///                             and its own seeds and attentions in place of those at the top
///   sweep: {key: [a, b]}      every run once with each value; of several keys each with each
/// An override is a key of CompareConfig, or else a train key that wins in every run. Throws
/// std::runtime_error that lists every problem, one a line.
ComparePlan read_compare_plan(const std::string& text, const std::string& source,
                              const std::vector<std::string>& overrides);

}  // namespace focus
