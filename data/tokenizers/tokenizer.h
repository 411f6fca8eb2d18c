#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

/// The files a tokenizer is made from: plain file name -> bytes.
using TokenizerFiles = std::map<std::string, std::string>;

/// Text to token ids and back. Ids are those of the library that the files were made for
/// (Hugging Face tokenizers, SentencePiece). Ill-formed UTF-8 is read as U+FFFD, except by "bytes".
/// Safe to share between threads; one text is encoded at a time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// The ids of `text`. Tokens such as <|endoftext|> in the text are recognized where
  /// the files say so; none is added.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The same between prefix() and suffix().
  std::vector<std::int32_t> encode_with_special(std::string_view text) const;
  /// What the tokenizer's files put before a text and after it: add_bos_token and add_eos_token of
  /// tokenizer_config.json, else a tokenizer.json's TemplateProcessing, a SentencePiece model's
  /// BOS.
  virtual std::span<const std::int32_t> prefix() const { return {}; }
  virtual std::span<const std::int32_t> suffix() const { return {}; }
  /// The text of `ids`, special tokens included. Bytes that are not UTF-8 become U+FFFD (except
  /// from "bytes"), so a character that spans tokens needs them all. Throws std::invalid_argument
  /// for an id outside [0, vocab_size).
  std::string decode(std::span<const std::int32_t> ids) const;

  /// The largest id plus one.
  virtual std::int32_t vocab_size() const = 0;
  virtual std::optional<std::int32_t> bos_id() const { return std::nullopt; }
  virtual std::optional<std::int32_t> eos_id() const { return std::nullopt; }
  /// True for ids that mark something and are no text: BOS, EOS, and what the files call
  /// special or control.
  virtual bool is_special(std::int32_t id) const { return id == bos_id() || id == eos_id(); }

  /// "bytes", "tokenizer.json", "sentencepiece" or "gpt2".
  const std::string& kind() const { return kind_; }
  /// What make_tokenizer needs beside the kind to make it again.
  const TokenizerFiles& files() const { return files_; }
  /// XXH3-128 of kind and files, 32 hexadecimal digits.
  std::string fingerprint() const;

 protected:
  Tokenizer(std::string kind, TokenizerFiles files)
      : kind_(std::move(kind)), files_(std::move(files)) {}

 private:
  virtual std::string decode_valid(std::span<const std::int32_t> ids) const = 0;

  std::string kind_;
  TokenizerFiles files_;
};

/// From the word "bytes" (an id per byte, 256 ids), a tokenizer.json (or .json.xz), a
/// tokenizer.model, an encoder.json with vocab.bpe beside it, a vocab.json with merges.txt beside
/// it, or a folder that holds one of them. A tokenizer_config.json beside it says
/// which tokens are BOS and EOS and which are put around a text; without a tokenizer.json also
/// which tokens are added, as added_tokens.json and special_tokens_map.json do. Throws
/// std::runtime_error with one line for what cannot be read, is wrong or not supported.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

/// The same from a folder: the first found of tokenizer.json, tokenizer.model, encoder.json with
/// vocab.bpe, vocab.json with merges.txt; null without one.
std::unique_ptr<Tokenizer> find_tokenizer(const std::filesystem::path& folder);

/// From what kind() and files() gave. `where` names the source in errors.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind, const TokenizerFiles& files,
                                          const std::string& where = "tokenizer");

}  // namespace focus
