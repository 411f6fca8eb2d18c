#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/sentencepiece_writer.h"

namespace focus {

/// Refuses what libsentencepiece takes from a model file without looking: lengths beyond the file
/// (it reserves memory for them first), pieces with a NUL (its trie ends the process), and compiled
/// normalization rules that point outside themselves (it follows them). Throws std::runtime_error
/// that names `where`.
void check_sentencepiece_model(std::string_view model, const std::string& where);

/// What a model file says; of one that check_sentencepiece_model() lets pass.
struct SentencePieceFile {
  SentencePieceParts parts;
  bool bpe = false;         // else unigram, words or characters
  bool normalizes = false;  // changes texts beside marking spaces
};
SentencePieceFile read_sentencepiece_model(std::string_view model, const std::string& where);
/// The ids of the pieces that the user defined (type 4) in a model that passed the check.
std::vector<std::int32_t> user_defined_pieces(std::string_view model);

}  // namespace focus
