#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizers/pattern.h"

namespace focus {

/// The expressions of GPT-2, Llama 3 and Qwen2, as most tokenizer.json files spell them.
inline constexpr const char* kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr const char* kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Scanners for the expressions by which GPT-2, Llama 3 and Qwen2 split text: what PCRE2 does with
/// them, several times as fast. Each of these expressions matches at every place of a text, so its
/// matches follow each other without a gap. Not for use by two threads at once.
class PublishedSplit {
 public:
  /// Null for any other expression.
  static std::shared_ptr<PublishedSplit> find(const std::string& expression);

  /// Where the match that begins at byte `begin` of `text` (well-formed UTF-8) ends; `begin` is a
  /// character's first byte.
  std::size_t end_of_match(std::string_view text, std::size_t begin);

 private:
  enum Class : std::uint8_t { kOther, kLetter, kNumber, kSpace, kLineBreak };  // \r \n: also space
  struct Character {
    Class kind = kOther;
    std::size_t end = 0;
  };
  using Page = std::array<Class, 256>;

  PublishedSplit(bool gpt2, int max_digits);

  Character character(std::string_view text, std::size_t begin);
  Class class_beyond_ascii(char32_t code_point);
  std::size_t skip(std::string_view text, std::size_t begin, Class kind);
  std::size_t end_of_contraction(std::string_view text, std::size_t begin) const;
  std::size_t end_of_others(std::string_view text, std::size_t begin);
  std::size_t end_of_blanks(std::string_view text, std::size_t begin);

  bool gpt2_ = false;   // else Llama 3's manner
  int max_digits_ = 0;  // in one piece; 0: any number
  Pattern classes_[3];  // letters, numbers, white space: PCRE2's Unicode, not another
  std::array<Class, 128> ascii_;
  std::array<std::unique_ptr<Page>, 0x1100> pages_;  // of 256 code points each, made when needed
};

}  // namespace focus
