#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "focus/models/model_files.h"

// How texts to be scored become tokens: as EleutherAI's lm-evaluation-harness does it, whose
// figures are what published ones are compared with.
namespace focus {

using TokenIds = std::vector<std::int32_t>;

/// What is given, and what is scored after it.
struct TokenPair {
  TokenIds context, continuation;
  /// Tokens that go into the model: the last one is only predicted.
  Index fed() const { return static_cast<Index>(context.size() + continuation.size()) - 1; }
};

/// What precedes the tokens of a context: nothing, what LoadedModel::bos specifies (by default the
/// tokenizer's files), or the model's own BOS.
enum class TextStart { none, tokenizer, document };
constexpr auto enum_names(TextStart) {
  return std::array<std::string_view, 3>{"none", "tokenizer", "document"};
}

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

}  // namespace focus
