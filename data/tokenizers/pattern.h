#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace focus {

/// The expressions of GPT-2, Llama 3, Qwen2, GPT-4o (Phi-4-mini) and Mistral's Tekken, as most
/// tokenizer.json files spell them.
inline constexpr const char* kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr const char* kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kGpt4oExpression =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kTekkenExpression =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// A regular expression over UTF-8 as tokenizer files write them (Oniguruma's syntax), matched by
/// PCRE2. \s, \d and \w mean the Unicode classes that the reference implementation means; syntax
/// that the two libraries read differently is refused. Not for use by two threads at once.
class Pattern {
 public:
  /// Throws std::runtime_error with `where` (the file and place it came from) and the reason.
  static Pattern regex(const std::string& expression, const std::string& where);
  /// Matches exactly this text, which must not be empty.
  static Pattern literal(const std::string& text, const std::string& where);

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  /// The first match at or after byte `from` of `text` (well-formed UTF-8); an empty one only where
  /// it is not at `last`.
  std::optional<Match> find(std::string_view text, std::size_t from, std::size_t last) const;

  /// Calls f(part, is_match) for all of `text` in order: the matches and what lies between them.
  /// Matches may be empty, as those of a lookahead are, but for one right behind another match.
  template <class F>
  void for_each_part(std::string_view text, F&& f) const {
    std::size_t from = 0, last = std::string_view::npos;
    while (const auto match = find(text, from, last)) {
      if (match->begin > from) f(text.substr(from, match->begin - from), false);
      f(text.substr(match->begin, match->end - match->begin), true);
      from = last = match->end;
    }
    if (from < text.size()) f(text.substr(from), false);
  }

  /// `text` with every match replaced by `content`.
  std::string replace_all(std::string_view text, const std::string& content) const;

 private:
  struct Compiled;
  Pattern() = default;

  // One of the two is there.
  std::shared_ptr<const Compiled> compiled_;
  std::string literal_;
};

}  // namespace focus
