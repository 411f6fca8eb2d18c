#pragma once

#include <string>
#include <vector>

#include "focus/evaluation/scores/encoding.h"
#include "focus/evaluation/scores/pair_scores.h"
#include "focus/evaluation/scores/score_request.h"

// Answers to the requests of score_request.h.
namespace focus {

struct ScoreAnswer {
  double log_likelihood = 0;
  bool is_greedy = true;
  std::string text = {};        // generated
  std::string stop = {};        // why it ended: "until", or as of generate()
  Index tokens = 0;             // scored, or generated
  Index cut = 0;                // tokens left out of the context to make it fit
  std::int64_t pairs = 0;       // causal pairs, over all layers
  double pairs_touched = 0;     // share of them that the attention may change
  std::vector<double> kl = {};  // ScoredPair::kl of all its pairs
};
/// One line of JSON, without its end.
std::string answer_line(const ScoreRequest& request, const ScoreAnswer& answer);

struct ScoreOptions {
  TextStart start = TextStart::tokenizer;
  Index max_length = 0;
  bool chat = false;

  void visit(auto&& f) {
    f("start", start,
      "special tokens before a context: those that the tokenizer's files specify, none, or the id "
      "that the model has before every document");
    f("max_length", max_length,
      "largest number of tokens per sequence; longer contexts are cut on the left; 0: the model's "
      "positions",
      {0, 1 << 27});
    f("chat", chat,
      "make each context the user's message in the model's chat template, which writes all special "
      "tokens");
  }
};

/// Answers in the order of the requests. All are read into tokens first: what cannot be answered is
/// said before anything is computed, as in read_requests(). `reference`: a model whose dense
/// attention what is scored is compared with; throws where its tokenizer differs.
std::vector<ScoreAnswer> answer_requests(LoadedModel& model, const AttentionSpec& attention,
                                         const std::vector<ScoreRequest>& requests,
                                         const ScoreOptions& options,
                                         LoadedModel* reference = nullptr,
                                         const ShareDone& progress = {},
                                         ScoringWork* work = nullptr);

}  // namespace focus
