#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "focus/train/run_config.h"

namespace focus {

/// The routing forms of an evaluation, as `focus eval --routing` takes them.
enum class EvalRouting { automatic, carried, sequence, none, both };
constexpr auto enum_names(EvalRouting) {
  return std::array<std::string_view, 5>{"auto", "carried", "sequence", "none", "both"};
}
/// Likewise --hard-gate.
enum class EvalHardGate { automatic, drop, keep, both };
constexpr auto enum_names(EvalHardGate) {
  return std::array<std::string_view, 4>{"auto", "drop", "keep", "both"};
}

/// How every finished run is evaluated, all on the same windows.
struct CompareEval {
  std::vector<std::string> valid, test;
  std::string separator;
  Index context = 0, stride = 0, max_documents = 0, max_tokens = 0;
  EvalRouting routing = EvalRouting::automatic;
  EvalHardGate hard_gate = EvalHardGate::automatic;
  std::vector<std::string> attentions;
  int max_top_k = 0;
  bool local_only = true;

  template <class F>
  void visit(F&& f) {
    f("valid", valid, "texts to choose by: files (.txt, .xz) or folders");
    f("test", test, "texts read with --final alone: what no choice may rest on");
    f("separator", separator, "scores each document of a file alone; empty: each file is one");
    f("context", context, "tokens of a window; 0: 512, or the model's positions if fewer",
      {0, 1 << 22});
    f("stride", stride, "tokens from one window to the next; 0: half the context", {0, 1 << 22});
    f("max_documents", max_documents, "only the first documents; 0: all", {0, 1e9});
    f("max_tokens", max_tokens, "only the first tokens of each document; 0: all", {0, 1e12});
    f("routing", routing, "as focus eval --routing");
    f("hard_gate", hard_gate, "as focus eval --hard-gate");
    f("attentions", attentions,
      "rows of each run, words as focus eval --attention takes them, such as [dense, soft, hard:2, "
      "sparq:32]; a run goes without those that it has no Focus, groups or rival for; empty: "
      "dense, soft, hard of every k and what was trained");
    f("max_top_k", max_top_k, "largest k of hard attention that no hard:K lists; 0: all groups",
      {0, 64});
    f("local_only", local_only,
      "also the local window alone, as a control, where attentions is empty or lists focus");
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

/// Of the words of eval.attentions, those that a model trained by `config` can be evaluated with.
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
