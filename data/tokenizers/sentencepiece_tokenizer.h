#pragma once

#include <memory>
#include <string>

#include "data/tokenizers/tokenizer.h"

namespace focus {

/// A SentencePiece model (BPE or unigram) from the bytes of its file. Throws std::runtime_error
/// where they are no such model.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& model,
                                                        const TokenizerFiles& files,
                                                        const std::string& where);

}  // namespace focus
