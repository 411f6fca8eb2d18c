#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/gguf/gguf_keys.h"
#include "data/tokenizers/sentencepiece_writer.h"
#include "data/tokenizers/tokenizer.h"

// The inverse of gguf_tokenizer.h: a tokenizer of ours as the metadata of a GGUF file.
namespace focus {

/// What `tokenizer.ggml.*` says of tokens and merges.
struct GgufTokens {
  std::string model;                // "gpt2" or "llama"
  std::string pre;                  // of gpt2: llama.cpp's word for how texts are split
  std::vector<std::string> tokens;  // by id; "": unused
  std::vector<TokenType> types;     // as many
  std::vector<float> scores;        // as many; of llama
  std::vector<std::string> merges;  // "a b"; of gpt2
  bool add_space_prefix = false;    // of llama
  std::vector<std::string> notices;

  /// Makes room for `id`.
  void put(std::int32_t id, const std::string& token, TokenType type);
};

/// From a tokenizer.json's text: one of byte-level BPE is llama.cpp's gpt2, one with byte_fallback
/// its llama. Throws std::runtime_error naming the step that llama.cpp has no form of.
GgufTokens gguf_tokens_of_json(const std::string& json, const std::string& where);

/// Adds the keys of `tokenizer.ggml.` and the chat template for an embedding of `rows` rows:
/// without a tokenizer, and for one of kind "bytes", the model "none". `side_files`: of the
/// model, for the names of special tokens, further tokens, ends of generation and the template.
/// Gives what llama.cpp does otherwise, a line each. Throws as gguf_tokens_of_json() does.
std::vector<std::string> add_gguf_tokenizer(const Tokenizer* tokenizer,
                                            const std::map<std::string, std::string>& side_files,
                                            std::int32_t rows, const std::string& where,
                                            GgufKeys& keys);

}  // namespace focus
