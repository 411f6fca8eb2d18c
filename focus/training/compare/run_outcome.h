#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "focus/evaluation/report/evaluation_file.h"
#include "focus/training/run_config.h"

namespace focus {

/// What `focus train --json` writes; a comparison adds the optional ones.
struct TrainFigures {
  bool finished = false;
  std::int64_t step = 0, trainable = 0;
  std::string artifact = {};
  std::optional<double> valid_loss_start = {}, valid_loss = {};
  std::optional<std::int64_t> peak_bytes = {};
  std::optional<double> tokens_per_second = {};
  std::optional<std::int64_t> tokens = {};

  void visit(auto&& f) {
    f("finished", finished);
    f("step", step);
    f("trainable", trainable);
    f("artifact", artifact);
    f.maybe("valid_loss_start", valid_loss_start);
    f.maybe("valid_loss", valid_loss);
    f.maybe("peak_bytes", peak_bytes);
    f.maybe("tokens_per_second", tokens_per_second);
    f.maybe("tokens", tokens);
  }
};

/// What became of a run of a comparison.
struct RunOutcome {
  std::string name = {};
  RunConfig config = {};
  std::string hash = {};                   // empty where what the run reads cannot be read
  std::string error = {};                  // one line; empty where it is done
  std::optional<TrainFigures> train = {};  // none where it failed
  /// What focus eval wrote, by the splits of the texts.
  std::vector<std::pair<std::string, TextEvaluation>> evaluation = {};
  std::vector<RecallEvaluation> recall = {};  // what focus eval --recall wrote

  /// All but the name and the settings, which the plan has.
  void visit(auto&& f) {
    f("hash", hash);
    f("out", config.out);
    f("error", error);
    f("train", train);
    f("evaluation", evaluation);
    f("recall", recall);
  }
};

}  // namespace focus
