#include "tests/fuzz/use_tokenizer.h"

/// A tokenizer.json and, after a NUL byte, a tokenizer_config.json.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const auto [json, config] = fuzz::split_input<2>({data, size});
  TokenizerFiles files = {{"tokenizer.json", json}};
  if (!config.empty()) files["tokenizer_config.json"] = config;
  fuzz::use_tokenizer("tokenizer.json", files, size);
  return 0;
}
