#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "focus/training/training.h"

namespace focus {

/// What `focus train --dry-run --json` writes. The last phase's figures are at the top:
/// it trains the most; with more than one phase `phases` lists each.
struct DryRunFigures {
  struct Phase {
    std::optional<std::int64_t> steps = {};  // in the list of phases
    std::int64_t trainable = 0, frozen = 0, weight_bytes = 0, gradient_bytes = 0;
    std::int64_t optimiser_bytes = 0, activation_bytes = 0, program_bytes = 0, memory_bytes = 0;
    std::int64_t mapped_bytes = 0;
    double seconds_per_step = 0, tokens_per_second = 0;

    void visit(auto&& f) {
      f.maybe("steps", steps);
      f("trainable", trainable);
      f("frozen", frozen);
      f("weight_bytes", weight_bytes);
      f("gradient_bytes", gradient_bytes);
      f("optimiser_bytes", optimiser_bytes);
      f("activation_bytes", activation_bytes);
      f("program_bytes", program_bytes);
      f("memory_bytes", memory_bytes);
      f("mapped_bytes", mapped_bytes);
      f("seconds_per_step", seconds_per_step);
      f("tokens_per_second", tokens_per_second);
    }
  };
  Phase last = {};
  std::int64_t tokens = 0, train_tokens = 0;
  double seconds = 0;
  std::optional<std::vector<Phase>> phases = {};

  static DryRunFigures of(const DryRun& run);

  void visit(auto&& f) {
    last.visit(f);
    f("tokens", tokens);
    f("train_tokens", train_tokens);
    f("seconds", seconds);
    f.maybe("phases", phases);
  }
};

/// For a terminal.
std::string dry_run_text(const DryRun& run);

}  // namespace focus
