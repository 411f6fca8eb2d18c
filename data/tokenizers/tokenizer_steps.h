#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/json_reader.h"
#include "data/tokenizers/pattern.h"

namespace focus {

/// The steps around the model in a tokenizer.json. The readers throw std::runtime_error for a type
/// or a setting that is not supported, and name it: no step is ever left out silently. Steps that
/// hold a regular expression are not for use by two threads at once.

/// Rewrites a text that holds no added token.
using Normalizer = std::function<void(std::string& text)>;
/// From "normalizer": NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence, or null.
std::vector<Normalizer> read_normalizers(const JsonView& json);

/// `at_start`: the piece begins the whole input.
using PieceSink = std::function<void(std::string_view piece, bool at_start)>;
/// Hands the pieces of `piece` to the sink, in order.
using PreTokenizer =
    std::function<void(std::string_view piece, bool at_start, const PieceSink& sink)>;
/// From "pre_tokenizer": Split, ByteLevel, Digits, Punctuation, Whitespace, WhitespaceSplit,
/// Metaspace, Sequence, or null.
std::vector<PreTokenizer> read_pre_tokenizers(const JsonView& json);
/// The expression by which GPT-2 splits text.
Pattern gpt2_pattern();
/// What GPT-2 does: its regular expression, then the alphabet of bytes.
PreTokenizer byte_level_pre_tokenizer(bool add_prefix_space, bool use_regex);

/// Rewrites the list of tokens; the text is what they join to.
using Decoder = std::function<void(std::vector<std::string>& tokens)>;
/// From "decoder": ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence, or null
/// (tokens joined by blanks).
std::vector<Decoder> read_decoders(const JsonView& json);
void decode_byte_level(std::vector<std::string>& tokens);

}  // namespace focus
