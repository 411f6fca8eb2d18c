#pragma once

#include "data/tokenizers/tokenizer.h"
#include "tests/fuzz/harness.h"

namespace focus::fuzz {

/// Makes a tokenizer from files of `input_bytes` bytes, encodes a text with it and decodes the ids.
inline void use_tokenizer(const std::string& kind, const TokenizerFiles& files,
                          std::size_t input_bytes) {
  static const std::string text =
      "Hello  world, it's\t12345 of <|endoftext|>\n\n \xC3\xA9t\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87 "
      "\xF0\x9F\x98\x80\xE2\x96\x81 </s>aaaa \xFF";
  std::unique_ptr<Tokenizer> tokenizer;
  if (!run_loader(input_bytes, [&] { tokenizer = make_tokenizer(kind, files); })) return;
  const auto in_range = [&](std::int32_t id) { return id >= 0 && id < tokenizer->vocab_size(); };
  for (const auto& id : {tokenizer->bos_id(), tokenizer->eos_id()}) {
    if (id && !in_range(*id)) report("BOS or EOS is outside the vocabulary");
  }
  run_loader(input_bytes + text.size(), [&] {
    const std::vector<std::int32_t> ids = tokenizer->encode_with_special(text);
    for (const std::int32_t id : ids) {
      if (!in_range(id)) report("an id outside the vocabulary");
    }
    tokenizer->decode(ids);
  });
}

}  // namespace focus::fuzz
