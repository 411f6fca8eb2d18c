#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/synthetic/far_corpus.h"
#include "focus/evaluation/evaluation.h"

// Long-range recall: documents whose answers only their earlier text gives, scored by distance.
namespace focus {

/// A document's tokens, the model's document start before them, and its answers among them.
struct RecallItem {
  struct Span {
    Index begin = 0, end = 0;  // tokens that hold any byte of the answer
    Index distance = 0;        // tokens from the one where its source begins
  };
  std::string name;  // for messages
  std::vector<std::int32_t> ids;
  std::vector<Span> answers;
};

/// Throws std::runtime_error naming the document where the tokenizer does not give its text back,
/// or nothing precedes an answer, and as require_positions() does where one is too long.
std::vector<RecallItem> recall_items(const LoadedModel& model,
                                     std::span<const AskedDocument> documents,
                                     const std::string& where, bool beyond_positions = false);

/// Documents by what `focus eval --recall` is given: a file of JSON lines, or a kind of built-in
/// document with its options behind colons, recall:keys=8:distance=64,256:documents=100. Throws
/// std::runtime_error, one line.
std::vector<AskedDocument> asked_documents(const std::string& file_or_spec);

/// Answers at some distances.
struct AnswerFigures {
  std::int64_t answers = 0;
  double right = 0;           // share whose tokens are all the argmax after the text before them
  double standard_error = 0;  // of that share
  std::int64_t tokens = 0;
  double nats_per_token = 0;

  void visit(auto&& f) { FOCUS_MEMBERS(f, answers, right, standard_error, tokens, nats_per_token); }
};

/// Distances from..to in tokens: up to 32, then twice as many in each.
struct RecallBucket {
  Index from = 1, to = 32;
  AnswerFigures figures = {};

  void visit(auto&& f) {
    FOCUS_MEMBERS(f, from, to);
    figures.visit(f);
  }
};

/// One attention: all its answers, and those of each bucket that has any.
struct RecallRow {
  AttentionLabel attention;
  AnswerFigures all = {};
  std::vector<RecallBucket> by_distance = {};

  void visit(auto&& f) {
    attention.visit(f);
    all.visit(f);
    f("by_distance", by_distance);
  }
};

/// Some questions, and what attentions answered.
struct RecallEvaluation {
  std::string questions = {};  // a file, or what they were made by
  std::int64_t documents = 0;
  std::vector<RecallRow> rows = {};

  void visit(auto&& f) { FOCUS_MEMBERS(f, questions, documents, rows); }
};

/// `ranks`: as in EvalPass; they share the items.
RecallRow evaluate_recall(LoadedModel& model, const AttentionSpec& attention,
                          std::span<const RecallItem> items, const ShareDone& progress = {},
                          Ranks& ranks = one_process());

}  // namespace focus
