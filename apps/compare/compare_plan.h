#pragma once

#include <string>
#include <vector>

#include "focus/train/evaluation.h"
#include "focus/train/run_config.h"

namespace focus {

/// How every finished run is evaluated, all on the same windows.
struct CompareEval {
  std::vector<std::string> valid, test;
  EvalSettings settings;

  template <class F>
  void visit(F&& f) {
    f("valid", valid, "texts to choose by: files (.txt, .xz) or folders");
    f("test", test, "texts read with --final alone: what no choice may rest on");
    settings.visit(f);
    f.retired("routing", "is part of the words of eval.attentions now: soft:balance=sequence");
    f.retired("hard_gate", "is part of the words of eval.attentions now: hard:1:gate=drop");
    f.retired("max_top_k", "is part of the words of eval.attentions now: [dense, local, focus:2]");
    f.retired("local_only", "is a word of eval.attentions now: [dense, local, focus]");
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
};

struct ComparePlan {
  CompareConfig config;
  std::vector<PlannedRun> runs;
};

/// Of the words of eval.attentions, those that a model trained by `config` can be evaluated with;
/// without any, dense, local, focus and trained are meant.
std::vector<std::string> attentions_of(const std::vector<std::string>& words,
                                       const RunConfig& config);

/// Reads a comparison:
///   title, out, seeds, eval   as CompareConfig
///   common: {...}             keys of a train recipe that all runs share
///   runs: [{name: ..., ...}]  one mapping a run, of train keys nested or dotted, and its own sweep
///   sweep: {key: [a, b]}      every run once with each value; of several keys each with each
/// An override is a key of CompareConfig, or else a train key that wins in every run. Throws
/// std::runtime_error that lists every problem, one a line.
ComparePlan read_compare_plan(const std::string& text, const std::string& source,
                              const std::vector<std::string>& overrides);

}  // namespace focus
