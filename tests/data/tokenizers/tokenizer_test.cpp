#include "data/tokenizers/tokenizer.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "data/files/utf8.h"
#include "data/tokenizers/byte_level_bpe.h"
#include "data/tokenizers/tokenizer_steps.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

const std::filesystem::path kGolden = FOCUS_SOURCE_DIR "/tests/golden/tokenizers";

/// Text of random characters from one to four bytes.
std::string random_text() {
  const auto character = rc::gen::oneOf(
      rc::gen::inRange<char32_t>(0, 0x80), rc::gen::inRange<char32_t>(0x80, 0x800),
      rc::gen::inRange<char32_t>(0x800, 0xD800), rc::gen::inRange<char32_t>(0x10000, 0x110000));
  std::string text;
  for (const char32_t c : *rc::gen::container<std::vector<char32_t>>(character))
    append_utf8(text, c);
  return text;
}

/// Any bytes, most of them not UTF-8.
std::string random_bytes() {
  const auto bytes = *rc::gen::arbitrary<std::vector<std::uint8_t>>();
  return std::string(bytes.begin(), bytes.end());
}

RC_GTEST_PROP(ByteTokenizer, AnyBytesComeBack, ()) {
  const std::string text = random_bytes();
  const auto tokenizer = load_tokenizer("bytes");
  const Ids ids = tokenizer->encode(text);
  RC_ASSERT(ids.size() == text.size());
  RC_ASSERT(tokenizer->decode(ids) == text);
}

RC_GTEST_PROP(ByteLevelTokenizer, AnyTextComesBack, ()) {
  static const auto tokenizer = load_tokenizer(kGolden / "gpt2_style");
  const std::string text = random_text();
  RC_ASSERT(tokenizer->decode(tokenizer->encode(text)) == text);
}

RC_GTEST_PROP(ByteFallbackTokenizer, AnyTextComesBack, ()) {
  // Its decoder drops the one blank that its normalizer puts before a text, and blanks are written
  // as U+2581, which therefore does not come back itself.
  static const auto tokenizer = load_tokenizer(kGolden / "llama2_style");
  const std::string text = random_text();
  RC_PRE(text.find("\u2581") == std::string::npos);
  RC_ASSERT(tokenizer->decode(tokenizer->encode(text)) == text);
}

RC_GTEST_PROP(NormalizingTokenizer, TextComesBackNormalized, ()) {
  static const auto tokenizer = load_tokenizer(kGolden / "qwen2_style");
  const std::string text = random_text();
  RC_ASSERT(tokenizer->decode(tokenizer->encode(text)) == normalize_unicode(text, "NFC"));
}

RC_GTEST_PROP(SentencePieceTokenizer, TextComesBackWithoutNormalizing, ()) {
  static const auto tokenizer = load_tokenizer(kGolden / "sentencepiece_identity");
  const std::string text = random_text();
  RC_PRE(text.find("\u2581") == std::string::npos && text.find('\0') == std::string::npos);
  RC_ASSERT(tokenizer->decode(tokenizer->encode(text)) == text);
}

RC_GTEST_PROP(ByteLevelTokenizer, IllFormedTextIsReadAsReplacements, ()) {
  const std::string bytes = random_bytes() + random_text();
  static const auto tokenizer = load_tokenizer(kGolden / "llama3_style");
  const std::string text = replace_invalid_utf8(bytes);
  RC_ASSERT(is_valid_utf8(text));
  RC_ASSERT(tokenizer->encode(bytes) == tokenizer->encode(text));
  RC_ASSERT(tokenizer->decode(tokenizer->encode(bytes)) == text);
}

TEST(ByteTokenizer, KnowsNoSpecialTokens) {
  const auto tokenizer = make_tokenizer("bytes", {});
  EXPECT_THAT(tokenizer->encode("A\xFF"), ElementsAre(65, 255));
  EXPECT_EQ(tokenizer->encode_with_special("A"), Ids{65});
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->eos_id(), std::nullopt);
  EXPECT_THROW(tokenizer->decode(Ids{256}), std::invalid_argument);
  EXPECT_THROW(tokenizer->decode(Ids{-1}), std::invalid_argument);
}

TEST(Unicode, NormalizesToTheFourForms) {
  const std::string composed = "\xC3\xA9", decomposed = "e\xCC\x81", ligature = "\xEF\xAC\x81";
  EXPECT_EQ(normalize_unicode(decomposed, "NFC"), composed);
  EXPECT_EQ(normalize_unicode(composed, "NFD"), decomposed);
  EXPECT_EQ(normalize_unicode(ligature + decomposed, "NFKC"), "fi" + composed);
  EXPECT_EQ(normalize_unicode(ligature + composed, "NFKD"), "fi" + decomposed);
  EXPECT_EQ(normalize_unicode(ligature, "NFC"), ligature);
  EXPECT_THROW(normalize_unicode("x", "NFX"), std::invalid_argument);
}

/// Merges by the definition: again and again the leftmost of the pairs with the lowest rank.
Ids merge_by_definition(const std::string& text, const Bpe::Vocabulary& vocabulary,
                        const Bpe::Merges& merges) {
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  while (true) {
    std::size_t best = parts.size(), best_rank = merges.size();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto pair = std::pair(parts[i], parts[i + 1]);
      const auto rank =
          static_cast<std::size_t>(std::find(merges.begin(), merges.end(), pair) - merges.begin());
      if (rank < best_rank) {
        best = i;
        best_rank = rank;
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(vocabulary.at(part));
  return ids;
}

RC_GTEST_PROP(Bpe, AgreesWithItsDefinition, ()) {
  // Random merges over four letters; texts long enough to be split between words, too.
  Bpe::Vocabulary vocabulary = {{"a", 0}, {"b", 1}, {"c", 2}, {" ", 3}};
  Bpe::Merges merges;
  std::vector<std::string> tokens = {"a", "b", "c", " "};
  const int count = *rc::gen::inRange(0, 12);
  for (int i = 0; i < count; ++i) {
    const auto pair = std::pair(*rc::gen::elementOf(tokens), *rc::gen::elementOf(tokens));
    if (std::find(merges.begin(), merges.end(), pair) != merges.end()) continue;
    merges.push_back(pair);
    const std::string merged = pair.first + pair.second;
    if (vocabulary.emplace(merged, static_cast<std::int32_t>(vocabulary.size())).second)
      tokens.push_back(merged);
  }
  Bpe bpe(vocabulary, merges, {}, "test");
  const auto size = *rc::gen::inRange<std::size_t>(0, 200);
  const auto text =
      *rc::gen::container<std::string>(size, rc::gen::element('a', 'b', 'c', ' ', ' '));
  const Ids expected = merge_by_definition(text, vocabulary, merges);
  for (int twice = 0; twice < 2; ++twice) {  // the second time from the cache
    Ids ids;
    bpe.encode(text, ids);
    RC_ASSERT(ids == expected);
  }
}

TEST(Bpe, UnknownCharacters) {
  const Bpe::Vocabulary vocabulary = {{"a", 0}, {"?", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}};
  const auto encode = [&](const BpeOptions& options, std::string_view text) {
    Bpe bpe(vocabulary, {}, options, "test");
    Ids ids;
    bpe.encode(text, ids);
    return ids;
  };
  EXPECT_THAT(encode({}, "axya"), ElementsAre(0, 0));
  EXPECT_THAT(encode({.unk_token = "?"}, "axya"), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(encode({.unk_token = "?", .fuse_unk = true}, "axyax"), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(encode({.unk_token = "?", .byte_fallback = true}, "a\xC3\xA9x"),
              ElementsAre(0, 2, 3, 1));
  EXPECT_THROW(Bpe(vocabulary, {}, {.unk_token = "[UNK]"}, "test"), std::runtime_error);
}

TEST(Bpe, IgnoreMergesTakesWholePieces) {
  // "abc" is a token that no merges lead to.
  const Bpe::Vocabulary vocabulary = {{"a", 0}, {"b", 1}, {"c", 2}, {"bc", 3}, {"abc", 4}};
  Ids merged, whole;
  Bpe(vocabulary, {{"b", "c"}}, {}, "test").encode("abc", merged);
  Bpe(vocabulary, {{"b", "c"}}, {.ignore_merges = true}, "test").encode("abc", whole);
  EXPECT_THAT(merged, ElementsAre(0, 3));
  EXPECT_THAT(whole, ElementsAre(4));
}

TEST(Bpe, IgnoreMergesTakesWholePiecesAfterLongOnes) {
  // "bc" as a part of a long piece is merged; as a whole piece it is a token without merges.
  const Bpe::Vocabulary vocabulary = {{"a", 0}, {"b", 1}, {"c", 2}, {"bc", 3}};
  Bpe bpe(vocabulary, {}, {.ignore_merges = true}, "test");
  Ids ids;
  bpe.encode(std::string(80, 'a') + "bc", ids);
  EXPECT_EQ(ids.size(), 82u);
  ids.clear();
  for (int twice = 0; twice < 2; ++twice) bpe.encode("bc", ids);
  EXPECT_THAT(ids, ElementsAre(3, 3));
}

TEST(Tokenizer, LongTextWithoutBlanksOrPreTokenizer) {
  // No place to split at all: one piece of a hundred thousand characters.
  const auto tokenizer = load_tokenizer(kGolden / "llama2_style");
  const std::string text(100000, 'a');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(Tokenizer, EveryKindIsMadeAgainFromItsFiles) {
  const TempFolder folder;
  write_text(folder / "encoder.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  write_text(folder / "vocab.bpe", "#version: 0.2\na b\n");
  for (const std::filesystem::path& path : {std::filesystem::path("bytes"), kGolden / "gpt2_style",
                                            kGolden / "sentencepiece_unigram", folder.path()}) {
    const auto tokenizer = load_tokenizer(path);
    const auto again = make_tokenizer(tokenizer->kind(), tokenizer->files());
    EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint()) << path;
    EXPECT_EQ(again->vocab_size(), tokenizer->vocab_size()) << path;
    EXPECT_EQ(again->encode("abba ab"), tokenizer->encode("abba ab")) << path;
    EXPECT_EQ(tokenizer->fingerprint().size(), 32u);
  }
  EXPECT_NE(load_tokenizer("bytes")->fingerprint(), load_tokenizer(folder.path())->fingerprint());
  EXPECT_THAT(error_of([] { make_tokenizer("wordpiece", {}); }), HasSubstr("'wordpiece'"));
  EXPECT_THAT(error_of([] { make_tokenizer("gpt2", {}, "store"); }), HasSubstr("store"));
}

TEST(Tokenizer, Gpt2Files) {
  const TempFolder folder;
  // A merge may begin with #; only the first line may be a comment.
  write_text(folder / "vocab.json",
             R"({"a": 0, "b": 1, "#": 2, "##": 3, "ab": 4, "\u0120": 5, "<|endoftext|>": 6})");
  write_text(folder / "merges.txt", "#version: 0.2\r\na b\r\n# #\r\n");
  const auto tokenizer = load_tokenizer(folder / "vocab.json");
  EXPECT_EQ(tokenizer->kind(), "gpt2");
  EXPECT_THAT(tokenizer->encode("ab ##<|endoftext|>a"), ElementsAre(4, 5, 3, 6, 0));
  EXPECT_EQ(tokenizer->decode(Ids{4, 5, 3, 6, 0}), "ab ##<|endoftext|>a");
  EXPECT_EQ(tokenizer->bos_id(), 6);
  EXPECT_EQ(tokenizer->eos_id(), 6);
}

TEST(Tokenizer, SentencePiecePutsBosBeforeTheText) {
  const auto tokenizer = load_tokenizer(kGolden / "sentencepiece_bpe" / "tokenizer.model");
  ASSERT_TRUE(tokenizer->bos_id());
  Ids expected = tokenizer->encode("some words");
  expected.insert(expected.begin(), *tokenizer->bos_id());
  EXPECT_EQ(tokenizer->encode_with_special("some words"), expected);
}

TEST(FindTokenizer, TakesTheFirstOfTheKnownFiles) {
  const TempFolder folder;
  EXPECT_EQ(find_tokenizer(folder.path()), nullptr);
  EXPECT_THAT(error_of([&] { load_tokenizer(folder.path()); }), HasSubstr("no tokenizer in this"));
  EXPECT_THAT(error_of([&] { load_tokenizer(folder / "none"); }), HasSubstr("no such tokenizer"));
  write_text(folder / "notes.txt", "x");
  EXPECT_THAT(error_of([&] { load_tokenizer(folder / "notes.txt"); }), HasSubstr("notes.txt"));

  write_text(folder / "vocab.json", R"({"a": 0})");
  EXPECT_EQ(find_tokenizer(folder.path()), nullptr);  // its merges are not there
  write_text(folder / "merges.txt", "");
  EXPECT_EQ(find_tokenizer(folder.path())->kind(), "gpt2");
  copy_file(kGolden / "sentencepiece_bpe" / "tokenizer.model", folder / "tokenizer.model");
  EXPECT_EQ(find_tokenizer(folder.path())->kind(), "sentencepiece");
  copy_file(kGolden / "gpt2_style" / "tokenizer.json", folder / "tokenizer.json");
  EXPECT_EQ(find_tokenizer(folder.path())->kind(), "tokenizer.json");
}

TEST(PieceCache, GivesBackWhatWasPutAndNothingElse) {
  // More than it holds: what it forgets it does not know, and never takes for another piece.
  PieceCache cache;
  std::vector<std::int32_t> ids;
  std::size_t known = 0;
  constexpr int kPieces = 1'100'000;
  for (int i = 0; i < kPieces; ++i) {
    const std::vector<std::int32_t> own(i % 4, i);
    cache.put("piece " + std::to_string(i), own);
  }
  for (int i = 0; i < kPieces; ++i) {
    ids.clear();
    if (!cache.append("piece " + std::to_string(i), ids)) continue;
    ++known;
    ASSERT_EQ(ids, std::vector<std::int32_t>(i % 4, i));
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
