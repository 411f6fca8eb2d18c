#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace focus {

class PublishedSplit;

/// A regular expression over UTF-8 as tokenizer files write them (Oniguruma's syntax), matched by
/// PCRE2. \s, \d and \w mean the Unicode classes that the reference implementation means; syntax
/// that the two libraries read differently is refused. Not for use by two threads at once.
class Pattern {
 public:
  /// Throws std::runtime_error with `where` (the file and place it came from) and the reason.
  /// The expressions by which well-known models split text have scanners of their own.
  static Pattern regex(const std::string& expression, const std::string& where);
  /// The same, always by PCRE2.
  static Pattern pcre2(const std::string& expression, const std::string& where);
  /// Matches exactly this text, which must not be empty.
  static Pattern literal(const std::string& text, const std::string& where);

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  /// The first match that is not empty at or after byte `from` of `text` (well-formed UTF-8).
  std::optional<Match> find(std::string_view text, std::size_t from) const;

  /// Calls f(part, is_match) for all of `text` in order: the matches and what lies between them.
  template <class F>
  void for_each_part(std::string_view text, F&& f) const {
    std::size_t from = 0;
    while (const auto match = find(text, from)) {
      if (match->begin > from) f(text.substr(from, match->begin - from), false);
      f(text.substr(match->begin, match->end - match->begin), true);
      from = match->end;
    }
    if (from < text.size()) f(text.substr(from), false);
  }

  /// `text` with every match replaced by `content`.
  std::string replace_all(std::string_view text, const std::string& content) const;

 private:
  struct Compiled;
  Pattern() = default;

  // One of these is there.
  std::shared_ptr<const Compiled> compiled_;
  std::shared_ptr<PublishedSplit> published_;
  std::string literal_;
};

}  // namespace focus
