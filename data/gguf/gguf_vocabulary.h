#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/gguf/gguf_metadata.h"
#include "data/tokenizers/sentencepiece_model.h"

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

/// What `tokenizer.ggml.*` says of the tokens of a byte-level or a SentencePiece BPE alike.
struct GgufVocabulary {
  std::string where;                // the file, for messages
  std::vector<std::string> tokens;  // UTF-8, no two alike but for empty ones
  std::vector<TokenType> types;     // as many
  std::optional<std::int32_t> bos_id, eos_id, unk_id, pad_id, eot_id;  // of tokens that there are
  std::optional<bool> add_bos, add_eos;

  const std::string& text(std::int32_t id) const { return tokens[id]; }
  TokenType& type(std::int32_t id) { return types[id]; }
};

/// Throws std::runtime_error, one line, for what contradicts itself; an id beyond the tokens is
/// dropped with a warning. BOS, EOS, EOT and padding become control tokens, whatever they are
/// called.
GgufVocabulary read_gguf_vocabulary(const GgufMetadata& metadata);

/// The tokenizer_config.json that goes with it, in transformers' terms.
std::string gguf_tokenizer_config(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                                  const std::string& tokenizer_class, nlohmann::ordered_json more);

}  // namespace focus
