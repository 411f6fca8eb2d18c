#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/synthetic/far_corpus.h"
#include "focus/evaluation/evaluation.h"

// Long-range recall: documents whose answers only their earlier text gives, scored by distance; and
// long-range tokens, and what an attention retains on them.
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

/// A token is long-range where dense attention with its whole window predicts it better by more
/// than `margin` than the same model with only the last `context` tokens: the idea of LongPPL (Fang
/// et al. 2024, arXiv 2410.23771), which also cuts the text and reads it again. A window in every
/// layer would measure something else: layers pass on what they saw, so the last one sees `layers`
/// times as far.
///
/// Reading again for each token costs `context` passes; here `step` tokens share one, so that the
/// short context has `context` to context + step - 1 tokens and costs (context + step) / step = 5.
struct FarSettings {
  Index context = 64;
  double margin = 0.5;  // nats

  /// A quarter of the context, as in LongPPL (1,024 of 4,096).
  Index step() const { return std::max<Index>(1, context / 4); }
  /// Windows that overlap so that each scores its last `step` tokens: with `context` to
  /// context + step - 1 tokens before each, or all there are.
  EvalSettings windows() const { return {.context = context + step(), .stride = step()}; }
};

/// Which of the tokens that `dense` scored are long-range: `near` lost more than `margin` more on
/// them. Throws std::invalid_argument where `near` did not score one of them.
std::vector<bool> far_tokens(const TokenLosses& dense, const TokenLosses& near, double margin);

/// One attention: nats per token on long-range tokens and on the others, and the share of the
/// long-range gain that it retains, (window - this) / (window - dense) in nats, on long-range
/// tokens and on all. Without a value: there are no such tokens, or no gain.
struct FarFigures {
  std::optional<double> nats_far = {}, nats_others = {}, kept_far = {}, kept_all = {};

  void visit(auto&& f) { FOCUS_MEMBERS(f, nats_far, nats_others, kept_far, kept_all); }
};
struct FarRow {
  AttentionLabel attention;
  FarFigures figures = {};

  void visit(auto&& f) {
    attention.visit(f);
    figures.visit(f);
  }
};

struct FarReport {
  FarSettings settings = {};
  std::string reference = {};  // whose long-range tokens they are; empty: the model's own
  std::int64_t tokens = 0;     // scored
  std::int64_t far = 0;
  std::string window = {};  // the attention that reads nothing far
  std::vector<FarRow> rows = {};

  double share() const { return static_cast<double>(far) / static_cast<double>(tokens); }

  void visit(auto&& f) {
    Index step = settings.step();
    FOCUS_MEMBERS(f, reference, settings.context, step, settings.margin, tokens, far, window, rows);
  }
};

/// What a row of an evaluation scored, token by token.
struct RowLosses {
  AttentionLabel attention;
  TokenLosses losses = {};
};

/// Rows that all scored the same tokens; `near`: with the short context.
FarReport far_report(std::span<const RowLosses> rows, const RowLosses& dense,
                     const RowLosses& window, const TokenLosses& near, const FarSettings& settings);

/// The same for texts: computes the short context, and dense attention and the window, which are
/// before and after the rows where they are not among them. With `reference` the long-range tokens,
/// dense attention and the window are that model's, under its name. Throws as require_comparable().
FarReport measure_far(LoadedModel& model, std::span<const EvalText> texts,
                      const EvalSettings& settings, const FarSettings& far,
                      std::vector<RowLosses> rows, Ranks& ranks = one_process(),
                      LoadedModel* reference = nullptr);

}  // namespace focus
