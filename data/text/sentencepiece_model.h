#pragma once

#include <string>
#include <string_view>

namespace focus {

/// Refuses what libsentencepiece takes from a model file without looking: lengths beyond the file
/// (it reserves memory for them first), pieces with a NUL (its trie ends the process), and compiled
/// normalization rules that point outside themselves (it follows them). Throws std::runtime_error
/// that names `where`.
void check_sentencepiece_model(std::string_view model, const std::string& where);

}  // namespace focus
