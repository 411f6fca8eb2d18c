#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "focus/evaluation/scores/pair_scores.h"

// Requests as the lm-evaluation-harness makes them, a JSON object a line:
//   {"type": "loglikelihood", "context": "...", "continuation": "..."}
//   {"type": "loglikelihood_rolling", "text": "..."}
//   {"type": "generate_until", "context": "...", "until": ["\n"], "max_gen_toks": 256}
// An "id" of any kind is given back with the answer. Texts become tokens as EleutherAI's harness
// does it, whose figures are what published ones are compared with.
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
  return enum_list("loglikelihood", "loglikelihood_rolling", "generate_until");
}

/// Throws std::runtime_error, one line that names the line of the file, where it is not JSON, a
/// field is missing, unknown or of another type; and where there is no request.
std::vector<ScoreRequest> read_requests(const std::filesystem::path& path);
/// The same of its text; `where` in the place of the file.
std::vector<ScoreRequest> parse_requests(const std::string& text, const std::string& where);

/// What precedes the tokens of a context: nothing, what LoadedModel::bos specifies (by default the
/// tokenizer's files), or the model's own BOS.
enum class TextStart { none, tokenizer, document };
constexpr auto enum_names(TextStart) { return enum_list("none", "tokenizer", "document"); }

/// White space at the end of a context belongs to what follows it: most tokenizers have it at the
/// beginning of a word.
std::pair<std::string, std::string> move_trailing_space(std::string_view context,
                                                        std::string_view continuation);

/// A text in windows of `max_length` tokens, `prefix` before its first token: each token is scored
/// once, and the last window goes back as far as it can.
std::vector<TokenPair> rolling_windows(const TokenIds& tokens, std::int32_t prefix,
                                       Index max_length);

/// Leaves out tokens of the context from its left until the pair fits; returns how many.
Index cut_left(TokenPair& pair, Index max_length);

/// The tokens of requests to a model.
class RequestEncoder {
 public:
  /// `max_length`: tokens that go into the model; 0: all its positions. The model must outlive the
  /// encoder. Throws where it has no tokenizer, or fewer positions.
  RequestEncoder(const LoadedModel& model, TextStart start, Index max_length = 0);

  /// Context and whole are encoded apart, and the continuation is what the whole has beyond the
  /// context's length. An empty context is the prefix alone. Not cut. Throws std::runtime_error,
  /// one line that starts with `where`, where no token is left to score, or more than fit, or where
  /// there is no prefix for a context without tokens.
  TokenPair pair(std::string_view context, std::string_view continuation,
                 const std::string& where) const;
  /// Windows of a text. Throws likewise.
  std::vector<TokenPair> rolling(std::string_view text, const std::string& where) const;
  /// What is gone on from, at most `most` tokens of it, and how many were cut.
  std::pair<TokenIds, Index> prompt(std::string_view context, Index most,
                                    const std::string& where) const;

  Index max_length() const { return max_length_; }

 private:
  TokenIds encode(std::string_view text, const std::string& where) const;
  std::int32_t need_prefix(const std::string& where) const;

  const LoadedModel& model_;
  const Tokenizer& tokenizer_;
  TextStart start_;
  std::optional<std::int32_t> prefix_;  // the model's BOS, or else its EOS: an empty context
  Index max_length_ = 0;
};

struct ScoreAnswer {
  double log_likelihood = 0;
  bool is_greedy = true;
  std::string text = {};     // generated
  std::string stop = {};     // why it ended: "until", or as of generate()
  Index tokens = 0;          // scored, or generated
  Index cut = 0;             // tokens left out of the context to make it fit
  std::int64_t pairs = 0;    // causal pairs, over all layers
  double pairs_touched = 0;  // share of them that the attention may change
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
/// said before anything is computed, as in read_requests().
std::vector<ScoreAnswer> answer_requests(LoadedModel& model, const AttentionSpec& attention,
                                         std::vector<ScoreRequest> requests,
                                         const ScoreOptions& options,
                                         const ShareDone& progress = {},
                                         ScoringWork* work = nullptr);

}  // namespace focus
