#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "focus/evaluation/recall/recall_eval.h"

namespace focus {

/// Answers, as they are written.
struct AnswerFigures {
  std::int64_t answers = 0;
  double right = 0, standard_error = 0;  // a share, and its standard error
  std::int64_t tokens = 0;
  double nats_per_token = 0;

  void visit(auto&& f) {
    f("answers", answers);
    f("right", right);
    f("standard_error", standard_error);
    f("tokens", tokens);
    f("nats_per_token", nats_per_token);
  }
};

/// One attention of `focus eval --recall`: all its answers, and those of each bucket of distances.
struct RecallFigures {
  struct Bucket {
    std::int64_t from = 0, to = 0;  // tokens, both inclusive
    AnswerFigures figures = {};

    void visit(auto&& f) {
      f("from", from);
      f("to", to);
      figures.visit(f);
    }
  };
  std::string attention, kind, routing;  // as in RecallRow
  AnswerFigures all = {};
  std::vector<Bucket> by_distance = {};

  void visit(auto&& f) {
    f("attention", attention);
    f("kind", kind);
    f("routing", routing);
    all.visit(f);
    f("by_distance", by_distance);
  }
};

/// What one lot of questions came to.
struct RecallEvaluation {
  std::string questions;  // a file, or what they were made by
  std::int64_t documents = 0;
  std::vector<RecallFigures> rows = {};

  void visit(auto&& f) {
    f("questions", questions);
    f("documents", documents);
    f("rows", rows);
  }
};

std::vector<RecallFigures> recall_figures(std::span<const RecallRow> rows);

}  // namespace focus
