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

/// `text` (well-formed UTF-8) in a Unicode normalization form: "NFC", "NFD", "NFKC" or "NFKD".
std::string normalize_unicode(std::string text, std::string_view form);

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

/// Rewrites the list of tokens; the text is what they join to.
using Decoder = std::function<void(std::vector<std::string>& tokens)>;
/// From "decoder": ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence, or null
/// (tokens joined by blanks).
std::vector<Decoder> read_decoders(const JsonView& json);

/// A tokenizer.json of byte-level BPE that splits as GPT-2 does, in the order of Hugging Face's
/// library, without tokens.
inline constexpr const char* kByteLevelFile = R"({
  "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
  "pre_tokenizer":
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "post_processor": null,
  "decoder":
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "model":
    {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
     "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
     "vocab": {}, "merges": []}})";

}  // namespace focus
