#include "tests/fuzz/use_tokenizer.h"

/// GPT-2's vocab.json, merges.txt and, where it is there, a tokenizer_config.json, with NUL bytes
/// between them.
void focus::fuzz::try_input(std::string_view input) {
  const auto [vocab, merges, config] = split_input<3>(input);
  TokenizerFiles files = {{"vocab.json", vocab}, {"merges.txt", merges}};
  if (!config.empty()) files["tokenizer_config.json"] = config;
  use_tokenizer("gpt2", files, input.size());
}
