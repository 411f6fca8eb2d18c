#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace focus {

/// A way of splitting texts before byte-level BPE that llama.cpp knows by name
/// (`tokenizer.ggml.pre`), and what goes with that name beside it.
struct GgufPreTokenizer {
  std::vector<std::string> names;  // the first one is what we write
  nlohmann::json steps;            // "pre_tokenizer" of a tokenizer.json
  bool ignore_merges = false;      // a pre-token that is a token needs no merges
  bool adds_bos = false;           // where add_bos_token says nothing
  bool nfc = false;                // the models' own tokenizers normalize; llama.cpp does not
};

/// All of them; where two split alike, the one with more rules precedes.
std::span<const GgufPreTokenizer> gguf_pre_tokenizers();

/// The one of this name. Throws std::runtime_error that says what to do for an unknown one.
const GgufPreTokenizer& gguf_pre_tokenizer(const std::string& name, const std::string& where);

}  // namespace focus
