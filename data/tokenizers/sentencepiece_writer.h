#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace focus {

/// The types of tokens, numbered alike in SentencePiece's files and in GGUF's.
enum class TokenType {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

/// What a BPE model in SentencePiece's form is made of; its ids are the pieces' places.
struct SentencePieceParts {
  struct Piece {
    std::string text;  // with U+2581 for a space
    float score = 0;   // of two merges the one with the better score goes first
    TokenType type = TokenType::normal;
  };
  std::vector<Piece> pieces;
  std::int32_t unk_id = 0;
  std::optional<std::int32_t> bos_id, eos_id, pad_id;
  bool byte_fallback = false;     // 256 pieces are of type byte
  bool add_dummy_prefix = false;  // a space before the text
};

/// The bytes of a tokenizer.model: a serialized ModelProto without normalization rules, spaces kept
/// as they are.
std::string write_sentencepiece_model(const SentencePieceParts& parts);

}  // namespace focus
