#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/tensor.h"
#include "focus/evaluation/scores/encoding.h"
#include "focus/evaluation/scores/pair_scores.h"

// Requests as the lm-evaluation-harness makes them, a JSON object a line:
//   {"type": "loglikelihood", "context": "...", "continuation": "..."}
//   {"type": "loglikelihood_rolling", "text": "..."}
//   {"type": "generate_until", "context": "...", "until": ["\n"], "max_gen_toks": 256}
// An "id" of any kind is given back with the answer.
namespace focus {

struct ScoreRequest {
  enum class Type { loglikelihood, loglikelihood_rolling, generate_until };

  Type type = Type::loglikelihood;
  std::string id = {};       // as JSON; empty where none was given
  std::string context = {};  // of rolling requests, the text
  std::string continuation = {};
  std::vector<std::string> until = {};
  Index max_gen_toks = 256;
  std::string where = {};  // "in.jsonl:3", for messages
};
constexpr auto enum_names(ScoreRequest::Type) {
  return std::array<std::string_view, 3>{"loglikelihood", "loglikelihood_rolling",
                                         "generate_until"};
}

/// Throws std::runtime_error, one line that names the line of the file, where it is not JSON, a
/// field is missing, unknown or of another type; and where there is no request.
std::vector<ScoreRequest> read_requests(const std::filesystem::path& path);

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
                                         std::vector<ScoreRequest> requests,
                                         const ScoreOptions& options,
                                         LoadedModel* reference = nullptr,
                                         const ShareDone& progress = {},
                                         ScoringWork* work = nullptr);

}  // namespace focus
