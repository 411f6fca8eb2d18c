#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/tokenizer_config.h"

namespace focus {

/// A BPE model with the steps around it as files["tokenizer.json"] describes them. Truncation and
/// padding in it are the caller's affair, as in transformers, and are not read. Throws
/// std::runtime_error, naming it, for anything in the file that is not supported.
std::unique_ptr<Tokenizer> make_json_tokenizer(const TokenizerFiles& files,
                                               const std::string& where);

/// GPT-2's vocabulary (JSON) and merges (text), under these names in `files`.
std::unique_ptr<Tokenizer> make_gpt2_tokenizer(const std::string& vocabulary_name,
                                               const std::string& merges_name,
                                               const TokenizerFiles& files,
                                               const std::string& where);

}  // namespace focus
