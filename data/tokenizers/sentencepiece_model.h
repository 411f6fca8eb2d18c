#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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

/// Pieces have U+2581 in place of a space.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

/// What a tokenizer.model says; its ids are the pieces' places.
struct SentencePieceModel {
  struct Piece {
    std::string text;  // with kSpaceMark for a space
    float score = 0;   // of two merges the one with the better score goes first
    TokenType type = TokenType::normal;
  };
  std::vector<Piece> pieces;
  std::int32_t unk_id = 0;
  std::optional<std::int32_t> bos_id = 1, eos_id = 2, pad_id = {};
  bool bpe = false;              // else unigram, words or characters
  bool byte_fallback = false;    // 256 pieces are of type byte
  bool add_dummy_prefix = true;  // a space before the text
  bool normalizes = false;       // changes texts beside marking spaces
};

/// Reads the bytes of a tokenizer.model. Refuses what libsentencepiece takes from them without
/// looking: lengths beyond the file (it reserves memory for them first), pieces with a NUL (its
/// trie ends the process), and compiled normalization rules that point outside themselves (it
/// follows them). Throws std::runtime_error that names `where`.
SentencePieceModel read_sentencepiece_model(std::string_view bytes, const std::string& where);

/// The bytes of a tokenizer.model: a serialized ModelProto of a BPE model without normalization
/// rules, spaces kept as they are.
std::string write_sentencepiece_model(const SentencePieceModel& model);

}  // namespace focus
