#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/gguf/gguf_writer.h"
#include "data/tokenizers/tokenizer.h"

namespace focus {

/// The tokenizer that a GGUF file's metadata describe, as one of the kinds that we have: `model`
/// gpt2 becomes a tokenizer.json, `model` llama a SentencePiece tokenizer.model, each with a
/// tokenizer_config.json beside it (special tokens, add_bos_token, add_eos_token, chat_template),
/// so that stores and Hugging Face folders hold what they always do. Null for `model` none and
/// without that key. Where Qwen's own tokenizer and llama.cpp differ (NFC), ids are
/// those of Qwen's.
///
/// Throws std::runtime_error, one line that names the file, for models and pre-tokenizers that
/// are not supported, by name, and for metadata that contradict each other: scores or types of
/// another number than the tokens, tokens twice or not UTF-8, merges of unknown tokens. An id of a
/// special token beyond the vocabulary counts as not said, as in llama.cpp.
std::unique_ptr<Tokenizer> tokenizer_of(const GgufMetadata& metadata);

/// The inverse: adds the keys of `tokenizer.ggml.` and the chat template for an embedding of `rows`
/// rows: without a tokenizer, and for one of kind "bytes", the model "none". `side_files`: of the
/// model, for the names of special tokens, further tokens, ends of generation and the template.
/// Gives what llama.cpp does otherwise, a line each. Throws std::runtime_error naming the step that
/// llama.cpp has no form of.
std::vector<std::string> add_gguf_tokenizer(const Tokenizer* tokenizer,
                                            const TokenizerFiles& side_files, std::int32_t rows,
                                            const std::string& where, GgufKeys& keys);

}  // namespace focus
