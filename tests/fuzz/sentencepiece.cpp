#include "tests/fuzz/use_tokenizer.h"

/// A SentencePiece model.
void focus::fuzz::try_input(std::string_view input) {
  const std::string model(input);
  use_tokenizer("sentencepiece", {{"tokenizer.model", model}}, input.size());
}
