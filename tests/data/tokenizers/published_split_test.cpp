#include "data/tokenizers/published_split.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "data/files/utf8.h"
#include "data/tokenizers/byte_level_bpe.h"

namespace focus {
namespace {

const std::vector<std::string> kExpressions = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

std::vector<std::string> pieces(const Pattern& pattern, const std::string& text) {
  std::vector<std::string> parts;
  pattern.for_each_part(text, [&](std::string_view part, bool is_match) {
    parts.emplace_back((is_match ? "match " : "between ") + std::string(part));
  });
  return parts;
}

/// Mostly what the expressions tell apart, so that every branch is reached in every order.
rc::Gen<char32_t> character() {
  return rc::gen::weightedOneOf<char32_t>(
      {{12, rc::gen::element<char32_t>('\'', 's', 'S', 't', 'd', 'm', 'r', 'v', 'e', 'E', 'l', 'L',
                                       0x17F, 0x212A)},
       {12, rc::gen::element<char32_t>(' ', ' ', '\n', '\r', '\t', 0xA0, 0x85, 0x2028, 0x3000,
                                       0x180E, 0x1C)},
       {4, rc::gen::element<char32_t>('0', '7', 0xBD, 0x664, 0x2167)},
       {4, rc::gen::element<char32_t>('!', '-', '_', 0x301, 0x20AC, 0x1F600)},
       {4, rc::gen::element<char32_t>('a', 'Z', 0xE9, 0x4E2D, 0x10348)},
       {1, rc::gen::inRange<char32_t>(0, 0xD800)},
       {1, rc::gen::inRange<char32_t>(0xE000, 0x110000)}});
}

RC_GTEST_PROP(PublishedSplit, DoesWhatPcre2Does, ()) {
  static const auto patterns = [] {
    std::vector<std::pair<Pattern, Pattern>> made;
    for (const std::string& expression : kExpressions)
      made.emplace_back(Pattern::regex(expression, "test"), Pattern::pcre2(expression, "test"));
    return made;
  }();
  std::string text;
  for (int part = 0; part < 8; ++part) {  // 800 texts, each of some hundred characters
    for (const char32_t c : *rc::gen::container<std::vector<char32_t>>(character()))
      append_utf8(text, c);
  }
  for (const auto& [scanner, regex] : patterns)
    RC_ASSERT(pieces(scanner, text) == pieces(regex, text));
}

TEST(PublishedSplit, EveryCharacterOfUnicode) {
  // Each between two letters and beside a blank: its class decides where the pieces end.
  for (const std::string& expression : {kExpressions[0], kExpressions[2]}) {
    const Pattern scanner = Pattern::regex(expression, "test");
    const Pattern regex = Pattern::pcre2(expression, "test");
    for (char32_t page = 0; page < 0x110000; page += 0x1000) {
      std::string text;
      for (char32_t c = page; c < page + 0x1000; ++c) {
        if (c >= 0xD800 && c < 0xE000) continue;
        for (const char32_t each : {U'a', c, U'b', U' ', c, c, U'1'}) append_utf8(text, each);
      }
      ASSERT_EQ(pieces(scanner, text), pieces(regex, text))
          << expression << " page " << static_cast<unsigned>(page);
    }
  }
}

TEST(PublishedSplit, KnowsItsExpressionsOnly) {
  for (const std::string& expression : kExpressions) {
    EXPECT_NE(PublishedSplit::find(expression), nullptr) << expression;
    EXPECT_EQ(PublishedSplit::find(expression + "|x"), nullptr);
  }
}

TEST(PieceCache, GivesBackWhatWasPutAndNothingElse) {
  // More than it holds: what it forgets it does not know, and never takes for another piece.
  PieceCache cache;
  std::vector<std::int32_t> ids;
  std::size_t known = 0;
  constexpr int kPieces = 1'100'000;
  for (int i = 0; i < kPieces; ++i) {
    const std::vector<std::int32_t> own(static_cast<std::size_t>(i % 4), i);
    cache.put("piece " + std::to_string(i), own);
  }
  for (int i = 0; i < kPieces; ++i) {
    ids.clear();
    if (!cache.append("piece " + std::to_string(i), ids)) continue;
    ++known;
    ASSERT_EQ(ids, std::vector<std::int32_t>(static_cast<std::size_t>(i % 4), i));
  }
  EXPECT_GT(known, 0u);
  EXPECT_LT(known, static_cast<std::size_t>(kPieces));
  const std::string long_piece(PieceCache::kMaxPiece + 1, 'x');
  cache.put(long_piece, ids);
  EXPECT_FALSE(cache.append(long_piece, ids));
  EXPECT_FALSE(PieceCache().append("x", ids));
}

}  // namespace
}  // namespace focus
