#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/text/tokenizer.h"

namespace focus {

/// Beside a tokenizer's own files: which tokens are BOS and EOS, and the tokenizer's class.
inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";

/// More ids than any published vocabulary has; a wrong id must not cost memory.
inline constexpr std::int32_t kMaxIds = 1 << 22;

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
