#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/gguf/gguf_metadata.h"
#include "data/tokenizers/sentencepiece_writer.h"

namespace focus {

/// What `tokenizer.ggml.*` says of the tokens of a byte-level or a SentencePiece BPE alike.
struct GgufVocabulary {
  std::string where;                // the file, for messages
  std::vector<std::string> tokens;  // UTF-8, no two alike but for empty ones
  std::vector<TokenType> types;     // as many
  std::optional<std::int32_t> bos_id, eos_id, unk_id, pad_id, eot_id;  // of tokens that there are
  std::optional<bool> add_bos, add_eos;

  const std::string& text(std::int32_t id) const { return tokens[static_cast<std::size_t>(id)]; }
  TokenType& type(std::int32_t id) { return types[static_cast<std::size_t>(id)]; }
};

/// Throws std::runtime_error, one line, for what contradicts itself; an id beyond the tokens is
/// dropped with a warning. BOS, EOS, EOT and padding become control tokens, whatever they are
/// called.
GgufVocabulary read_gguf_vocabulary(const GgufMetadata& metadata);

/// The tokenizer_config.json that goes with it, in transformers' terms.
std::string gguf_tokenizer_config(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                                  const std::string& tokenizer_class, nlohmann::ordered_json more);

}  // namespace focus
