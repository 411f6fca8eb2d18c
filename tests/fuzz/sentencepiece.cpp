#include "tests/fuzz/use_tokenizer.h"

/// A SentencePiece model.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const std::string model(reinterpret_cast<const char*>(data), size);
  fuzz::use_tokenizer("sentencepiece", {{"tokenizer.model", model}}, size);
  return 0;
}
