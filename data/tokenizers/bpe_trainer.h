#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/byte_level_bpe.h"

namespace focus {

struct BpeTrainerOptions {
  std::int32_t vocab_size = 4096;               // special token, 256 bytes and merged tokens
  std::int64_t min_frequency = 2;               // a pair seen less often is not merged
  std::string special_token = "<|endoftext|>";  // id 0; between documents, never learnt
};

/// Learns a byte-level BPE from text, as the BpeTrainer of Hugging Face's tokenizers does: text is
/// split by GPT-2's expression; again and again the pair of neighbouring tokens that is seen most
/// often becomes a token, the pair with the smaller ids among equals. The same text gives the same
/// tokenizer, whatever the order of the documents.
class BpeTrainer {
 public:
  /// Throws std::invalid_argument for a vocabulary too small for the special token and the bytes,
  /// or larger than a tokenizer may be.
  explicit BpeTrainer(BpeTrainerOptions options);

  /// Counts the words of a text, whose documents are split at the special token. Ill-formed UTF-8
  /// is read as U+FFFD.
  void add(std::string_view text);

  std::int64_t words() const { return words_; }
  std::size_t distinct_words() const { return counts_.size(); }

  struct Model {
    std::vector<std::string> tokens;  // by id, in the alphabet of bytes
    Bpe::Merges merges;               // the lowest rank first
  };
  /// What the words that were added give. Fewer tokens than asked for where no pair is left that is
  /// frequent enough. `on_token(n)`, where given, hears of every new token: there are n of them
  /// now.
  Model train(const std::function<void(std::int32_t)>& on_token = {}) const;

  /// The model as a tokenizer.json, and the tokenizer_config.json beside it.
  std::string tokenizer_json(const Model& model) const;
  std::string tokenizer_config_json() const;

 private:
  BpeTrainerOptions options_;
  StringMap<std::int64_t> counts_;  // bytes of a word -> how often
  std::int64_t words_ = 0;
};

}  // namespace focus
