#include "tests/fuzz/use_tokenizer.h"

/// GPT-2's vocab.json, merges.txt and, where it is there, a tokenizer_config.json, with NUL bytes
/// between them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const auto [vocab, merges, config] = fuzz::split_input<3>({data, size});
  TokenizerFiles files = {{"vocab.json", vocab}, {"merges.txt", merges}};
  if (!config.empty()) files["tokenizer_config.json"] = config;
  fuzz::use_tokenizer("gpt2", files, size);
  return 0;
}
