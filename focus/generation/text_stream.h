#pragma once

#include <span>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace focus {

/// Turns tokens into text as they come. What add() returns, put together, is the text of the tokens
/// as it reads after the prompt: a character that spans tokens is held back until it is whole,
/// special tokens and ids beyond the tokenizer's have no text, ill-formed bytes become U+FFFD.
class TextStream {
 public:
  /// The tokenizer must outlive the stream.
  TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt);

  std::string add(std::int32_t id);
  /// What is held back at the end.
  std::string finish();

 private:
  void take(std::int32_t id);
  std::string text_from(std::size_t first, std::size_t end) const;
  std::string emit_up_to_end();

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;
  // A token's text may depend on the one before it (a leading blank is dropped at the start of a
  // text), so it is decoded together with the tokens from context_ on.
  std::size_t context_ = 0, written_ = 0;
};

}  // namespace focus
