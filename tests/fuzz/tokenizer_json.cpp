#include "tests/fuzz/use_tokenizer.h"

/// A tokenizer.json and, after a NUL byte, a tokenizer_config.json.
void focus::fuzz::try_input(std::string_view input) {
  const auto [json, config] = split_input<2>(input);
  TokenizerFiles files = {{"tokenizer.json", json}};
  if (!config.empty()) files["tokenizer_config.json"] = config;
  use_tokenizer("tokenizer.json", files, input.size());
}
