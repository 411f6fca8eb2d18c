#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/synthetic/asked_document.h"
#include "focus/evaluation/evaluation.h"

// Whether a model finds again what stands far before: documents whose answers only their earlier
// text gives, scored by how far away that is.
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
/// or nothing stands before an answer, and as require_positions() does where one is too long.
std::vector<RecallItem> recall_items(const LoadedModel& model,
                                     std::span<const AskedDocument> documents,
                                     const std::string& where, bool beyond_positions = false);

/// Documents by what `focus eval --recall` is given: a file of JSON lines, or a kind of built-in
/// document with its options behind colons, recall:keys=8:distance=64,256:documents=100. Throws
/// std::runtime_error, one line.
std::vector<AskedDocument> asked_documents(const std::string& file_or_spec);

/// Answers at some distances.
struct RecallScore {
  std::int64_t answers = 0;
  std::int64_t right = 0;  // all tokens are the likeliest after the text up to them
  std::int64_t tokens = 0;
  double nats = 0;  // sum of -log p over the tokens

  double accuracy() const { return static_cast<double>(right) / static_cast<double>(answers); }
  /// Of a share among so many answers.
  double standard_error() const;
  RecallScore& operator+=(const RecallScore& other);
};

/// Distances (from, to], in tokens: up to 32, then twice as many in each.
struct RecallBucket {
  Index from = 0, to = 32;
  RecallScore score = {};
};

/// One attention: all its answers, and those of each bucket that holds any.
struct RecallRow {
  std::string name;     // "hard k=2 keep"
  std::string kind;     // dense, local, soft, hard, baseline
  std::string routing;  // "-", "carried", "sequence (not causal)"
  RecallScore all = {};
  std::vector<RecallBucket> buckets = {};
};

/// `ranks`: as in EvalPass; they share the items.
RecallRow evaluate_recall(LoadedModel& model, const AttentionSpec& attention,
                          std::span<const RecallItem> items, const ShareDone& progress = {},
                          Ranks& ranks = one_process());

/// A table for a terminal: accuracy in each bucket.
std::string format_recall(std::span<const RecallRow> rows);

}  // namespace focus
