#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/settings/members.h"
#include "focus/training/session.h"

namespace focus {

/// What a run takes. Its visit is what `focus train --dry-run --json` writes: the last phase, which
/// trains the most, at the top; with more than one phase `phases` lists each.
struct DryRun {
  struct Phase {
    std::optional<std::int64_t> steps = {};
    std::int64_t trainable = 0, frozen = 0;  // parameters
    // mapped_bytes: weights that stay in their file; activation_bytes: what else a step takes from
    // the pool of buffers; memory_bytes: the process's own memory; program_bytes: the part of it
    // that no tensor holds, such as the program and the tokenizer.
    std::int64_t weight_bytes = 0, gradient_bytes = 0, optimiser_bytes = 0;
    std::int64_t activation_bytes = 0, program_bytes = 0, memory_bytes = 0, mapped_bytes = 0;
    double seconds_per_step = 0, tokens_per_second = 0;

    void visit(auto&& f) {
      f.maybe("steps", steps);
      FOCUS_MEMBERS(f, trainable, frozen, weight_bytes, gradient_bytes, optimiser_bytes,
                    activation_bytes, program_bytes, memory_bytes, mapped_bytes, seconds_per_step,
                    tokens_per_second);
    }
  };
  std::vector<Phase> phases = {};             // in their order
  std::int64_t tokens = 0, train_tokens = 0;  // of the whole run; that there are
  double seconds = 0;                         // of the whole run

  void visit(auto&& f) {
    Phase last = phases.back();
    last.steps.reset();
    last.visit(f);
    FOCUS_MEMBERS(f, tokens, train_tokens, seconds);
    if (phases.size() > 1) f("phases", phases);
  }
};

/// Parameters, memory, and the time of one timed step of each phase. Changes nothing on disk, but
/// leaves the session trained by a few steps.
DryRun dry_run(Session& session);
/// For a terminal.
std::string dry_run_text(const DryRun& run);

}  // namespace focus
