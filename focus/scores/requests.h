#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "focus/scores/encoding.h"
#include "focus/scores/pair_scores.h"

// Requests as the lm-evaluation-harness makes them, a JSON object a line, and their answers:
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
  std::string text = {};     // generated
  std::string stop = {};     // why it ended: "until", or as of generate()
  Index tokens = 0;          // scored, or generated
  Index cut = 0;             // tokens left out of the context to make it fit
  double pairs_touched = 0;  // share of the causal pairs that the attention may change
};
/// One line of JSON, without its end.
std::string answer_line(const ScoreRequest& request, const ScoreAnswer& answer);

struct ScoreOptions {
  TextStart start = TextStart::tokenizer;
  Index max_length = 0;
  bool share = true;  // false: each request by itself, the reference

  void visit(auto&& f) {
    f("start", start,
      "what stands before a context: what the tokenizer's files put there, nothing, or the id that "
      "the model has before every document");
    f("max_length", max_length,
      "tokens that go into the model at once; longer contexts are cut from the left; 0: its "
      "positions",
      {0, 1 << 27});
  }
};

/// Answers in the order of the requests. All are read into tokens first: what cannot be answered is
/// said before anything is computed, as in read_requests().
std::vector<ScoreAnswer> answer_requests(LoadedModel& model, const AttentionSpec& attention,
                                         const std::vector<ScoreRequest>& requests,
                                         const ScoreOptions& options,
                                         const ShareDone& progress = {},
                                         ScoringWork* work = nullptr);

}  // namespace focus
