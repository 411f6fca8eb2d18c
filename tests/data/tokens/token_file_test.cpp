#include "data/tokens/token_file.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "data/files/checksum.h"
#include "data/tokens/tokenize.h"
#include "tests/support/notices.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;
using Offsets = std::vector<Index>;
using Paths = std::vector<std::filesystem::path>;

Ids all_ids(const auto& tokens) {
  Ids ids(static_cast<std::size_t>(tokens.size()));
  tokens.copy(0, ids);
  return ids;
}

/// Documents of 1, 2, ... tokens; document d holds only the id d.
TokenFile stairs(Index documents) {
  Ids tokens;
  Offsets offsets = {0};
  for (Index d = 0; d < documents; ++d) {
    tokens.insert(tokens.end(), static_cast<std::size_t>(d) + 1, static_cast<std::int32_t>(d));
    offsets.push_back(static_cast<Index>(tokens.size()));
  }
  return TokenFile::from_tokens(tokens, offsets, 1000);
}

RC_GTEST_PROP(TokenFile, ComesBackFromDisk, ()) {
  const auto vocab_size = *rc::gen::element(1, 300, 65536, 65537, 2000000000);
  const auto tokens = *rc::gen::container<Ids>(rc::gen::inRange<std::int32_t>(0, vocab_size));
  const auto cut = *rc::gen::inRange<Index>(0, static_cast<Index>(tokens.size()) + 1);
  const Offsets offsets = {0, cut, static_cast<Index>(tokens.size())};
  const TempFolder folder;
  TokenFile::from_tokens(tokens, offsets, vocab_size, "0123").save(folder / "t");
  const TokenFile file = TokenFile::open(folder / "t");
  RC_ASSERT(all_ids(file) == tokens);
  RC_ASSERT(file.vocab_size() == vocab_size);
  RC_ASSERT(file.num_documents() == 2);
  RC_ASSERT(file.document(1) == (TokenRange{cut, file.size()}));
  RC_ASSERT(file.tokenizer_fingerprint() == "0123");
  for (std::size_t i = 0; i < tokens.size(); ++i)
    RC_ASSERT(file[static_cast<Index>(i)] == tokens[i]);
}

TEST(TokenFile, RefusesWrongArguments) {
  EXPECT_THROW(TokenFile::from_tokens(Ids{5}, {}, 5), std::invalid_argument);
  EXPECT_THROW(TokenFile::from_tokens(Ids{-1}, {}, 5), std::invalid_argument);
  EXPECT_THROW(TokenFile::from_tokens(Ids{1, 2}, Offsets{0, 1}, 5), std::invalid_argument);
  EXPECT_THROW(TokenFile::from_tokens(Ids{1, 2}, Offsets{0, 2, 1, 2}, 5), std::invalid_argument);
  const TokenFile file = stairs(3);
  Ids out(2);
  EXPECT_THROW(file.copy(5, out), std::invalid_argument);
  EXPECT_THROW(file.copy(-1, out), std::invalid_argument);
  EXPECT_THROW(file.document(3), std::invalid_argument);
}

TEST(TokenFile, RefusesDamagedFiles) {
  const TempFolder folder;
  stairs(5).save(folder / "t");
  const std::string good = read_text(folder / "t");
  const auto error = [&](const std::string& bytes) {
    write_text(folder / "t", bytes);
    return error_of([&] { TokenFile::open(folder / "t"); });
  };
  const auto with = [&](std::size_t at, std::uint64_t value, std::size_t size) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &value, size);
    return bytes;
  };
  EXPECT_EQ(error(good), "");
  EXPECT_THAT(error(""), HasSubstr("not a token file"));
  EXPECT_THAT(error("text"), HasSubstr("not a token file"));
  EXPECT_THAT(error(std::string(200, 'x')), HasSubstr("FOCUSTOK"));
  EXPECT_THAT(error(with(8, 3, 4)), HasSubstr("version 3"));
  EXPECT_THAT(error(with(12, 3, 4)), HasSubstr("3 bytes per id"));
  EXPECT_THAT(error(with(16, 0, 8)), HasSubstr("vocabulary"));
  EXPECT_THAT(error(with(24, ~0ull, 8)), HasSubstr("do not match"));
  EXPECT_THAT(error(with(32, 1ull << 63, 8)), HasSubstr("do not match"));
  EXPECT_THAT(error(good.substr(0, good.size() - 1)), HasSubstr("do not match"));
  EXPECT_THAT(error(good + "x"), HasSubstr("do not match"));
  EXPECT_THAT(error(with(96 + 8, 1000, 8)), HasSubstr("begins at token 1000"));
  EXPECT_THAT(error_of([&] { TokenFile::open(folder / "none"); }), HasSubstr("none"));
  EXPECT_THAT(error_of([&] { TokenFile::open(folder.path()); }), HasSubstr("a folder, not a file"));
  for (std::size_t at = 0; at < good.size(); ++at) {  // any byte at all
    EXPECT_NE(error(with(at, static_cast<unsigned char>(~good[at]), 1)), "") << at;
  }
}

TEST(TokenFile, RefusesIdsOutsideTheVocabulary) {
  // A file whose checksum is right and whose ids are not: only another writer could make it.
  const TempFolder folder;
  stairs(2).save(folder / "t");
  std::string bytes = read_text(folder / "t");
  const std::uint64_t vocab_size = 1;
  std::memcpy(bytes.data() + 16, &vocab_size, sizeof(vocab_size));
  std::fill(bytes.begin() + 80, bytes.begin() + 96, '\0');
  const std::string hex = xxh3_hex(std::as_bytes(std::span(bytes)));
  for (std::size_t i = 0; i < 16; ++i)
    bytes[80 + i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  write_text(folder / "t", bytes);
  EXPECT_THAT(error_of([&] { TokenFile::open(folder / "t"); }),
              HasSubstr("token 1 is 1, outside the vocabulary of 1"));
}

TEST(TokenizeCached, SplitsPrependsAndCaches) {
  const TempFolder folder;
  write_text(folder / "a.txt", "xy|z");
  write_text(folder / "b.txt", "|w|");
  const auto tokenizer = load_tokenizer("bytes");
  const Paths paths = {folder / "a.txt", folder / "b.txt"};
  TokenizeOptions options{
      .document_separator = "|", .ends = {.prefix = {7}}, .cache_dir = folder / "c"};
  const Ids expected = {7, 'x', 'y', 7, 'z', 7, 'w'};

  const TokenFile made = tokenize_cached(paths, *tokenizer, options);
  EXPECT_EQ(all_ids(made), expected);
  EXPECT_EQ(made.num_documents(), 3);
  EXPECT_EQ(made.document(1), (TokenRange{3, 5}));
  EXPECT_EQ(made.tokenizer_fingerprint(), tokenizer->fingerprint());
  ASSERT_EQ(files_in(folder / "c"), 1u);
  const auto cached = std::filesystem::directory_iterator(folder / "c")->path();

  // Taken from the cache: a file with other ids under the same name is believed.
  TokenFile::from_tokens(Ids{1, 2}, {}, 256).save(cached);
  EXPECT_THAT(all_ids(tokenize_cached(paths, *tokenizer, options)), ElementsAre(1, 2));
  // A damaged one is rewritten.
  write_text(cached, read_text(cached) + "x");
  EXPECT_EQ(all_ids(tokenize_cached(paths, *tokenizer, options)), expected);
  EXPECT_EQ(all_ids(TokenFile::open(cached)), expected);
  // Other texts, options and tokenizers have files of their own.
  options.ends = {};
  EXPECT_EQ(all_ids(tokenize_cached(paths, *tokenizer, options)), (Ids{'x', 'y', 'z', 'w'}));
  options.document_separator.clear();
  EXPECT_EQ(tokenize_cached(paths, *tokenizer, options).num_documents(), 2);
  write_text(folder / "b.txt", "v");
  EXPECT_EQ(all_ids(tokenize_cached(paths, *tokenizer, options)), (Ids{'x', 'y', '|', 'z', 'v'}));
  EXPECT_EQ(files_in(folder / "c"), 4u);
}

TEST(TokenizeCached, SeveralDocumentsEndWithTheEos) {
  const TempFolder folder;
  write_text(folder / "a.txt", "xy|z");
  write_text(folder / "b.jsonl", "{\"text\": \"w\"}\n{\"text\": \"v9\"}\n");
  const auto tokenizer = load_tokenizer("bytes");
  const Paths both = {folder / "a.txt", folder / "b.jsonl"}, one = {folder / "a.txt"};
  TokenizeOptions options{.document_separator = "|",
                          .end_documents = true,
                          .cache_dir = folder / "c",
                          .examples = {.end = '9'}};
  const Ids expected = {'x', 'y', '9', 'z', '9', 'w', '9', 'v', '9'};  // not twice
  EXPECT_EQ(all_ids(tokenize_cached(both, *tokenizer, options)), expected);
  options.document_separator.clear();
  EXPECT_EQ(all_ids(tokenize_cached(one, *tokenizer, options)), (Ids{'x', 'y', '|', 'z'}));
  options.document_separator = "|";
  options.ends.suffix = {7};  // the tokenizer's own
  EXPECT_EQ(all_ids(tokenize_cached(one, *tokenizer, options)), (Ids{'x', 'y', 7, 'z', 7}));
  options.ends = {};
  write_text(folder / "a.txt", "x|y|z|w");
  // Without an EOS a notice says that nothing lies between.
  options.examples.end = std::nullopt;
  const Notices notices;
  EXPECT_EQ(all_ids(tokenize_cached(one, *tokenizer, options)), (Ids{'x', 'y', 'z', 'w'}));
  EXPECT_THAT(notices.text(), HasSubstr("4 documents are joined with nothing between"));
  EXPECT_EQ(files_in(folder / "c"), 6u);  // of two with notes
}

TEST(TokenizeCached, WithoutCacheAndErrors) {
  const TempFolder folder;
  write_text(folder / "a.txt", "ab");
  write_text(folder / "blank.txt", "| |");
  const auto tokenizer = load_tokenizer("bytes");
  const auto error = [&](const char* name, const TokenizeOptions& options) {
    return error_of([&] { tokenize_cached(Paths{folder / name}, *tokenizer, options); });
  };
  EXPECT_EQ(all_ids(tokenize_cached(Paths{folder / "a.txt"}, *tokenizer, {})), (Ids{'a', 'b'}));
  EXPECT_EQ(files_in(folder.path()), 2u);
  EXPECT_THAT(error("blank.txt", {.document_separator = "|"}), HasSubstr("no tokens"));
  EXPECT_THAT(error("none.txt", {}), HasSubstr("none.txt"));
  EXPECT_THAT(error("a.txt", {.ends = {.prefix = {256}}}), HasSubstr("256"));
  EXPECT_THROW(tokenize_cached(Paths{}, *tokenizer, {}), std::invalid_argument);
}

TEST(TokenView, SeesItsRangesAsOneRun) {
  const TokenFile file = TokenFile::from_tokens(Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {}, 10);
  const TokenView view(file, {{1, 3}, {3, 4}, {4, 4}, {6, 7}, {9, 10}});
  EXPECT_EQ(view.ranges(), (std::vector<TokenRange>{{1, 4}, {6, 7}, {9, 10}}));
  const Ids expected = {1, 2, 3, 6, 9};
  EXPECT_EQ(all_ids(view), expected);
  for (Index begin = 0; begin < 5; ++begin) {
    EXPECT_EQ(view[begin], expected[begin]);
    for (Index count = 0; begin + count <= 5; ++count) {
      Ids out(static_cast<std::size_t>(count));
      view.copy(begin, out);
      EXPECT_TRUE(std::equal(out.begin(), out.end(), expected.begin() + begin));
    }
  }
  Ids out(2);
  EXPECT_THROW(view.copy(4, out), std::invalid_argument);
  EXPECT_THROW(TokenView(file, {{3, 5}, {4, 6}}), std::invalid_argument);
  EXPECT_THROW(TokenView(file, {{8, 11}}), std::invalid_argument);
  EXPECT_EQ(all_ids(TokenView(file)), all_ids(file));
}

TEST(SplitByDocument, WholeDocumentsOnceEach) {
  const TokenFile file = stairs(40);  // 820 tokens
  const TokenSplit split = split_by_document(file, 0.2, 3);
  const Ids train = all_ids(split.train), valid = all_ids(split.valid);
  EXPECT_NEAR(static_cast<double>(valid.size()), 0.2 * 820, 40);
  EXPECT_EQ(split.train.num_documents() + split.valid.num_documents(), 40);
  Ids together = train;
  together.insert(together.end(), valid.begin(), valid.end());
  std::sort(together.begin(), together.end());
  EXPECT_EQ(together, all_ids(file));  // whose ids rise
  Ids common;
  std::set_intersection(train.begin(), train.end(), valid.begin(), valid.end(),
                        std::back_inserter(common));
  EXPECT_TRUE(common.empty());  // a document is on one side only

  EXPECT_EQ(all_ids(split_by_document(file, 0.2, 3).valid), valid);
  EXPECT_NE(all_ids(split_by_document(file, 0.2, 4).valid), valid);
}

TEST(SplitByDocument, TheEndOfASingleDocumentIsHeldOut) {
  Ids ids(100);
  std::iota(ids.begin(), ids.end(), 0);
  const TokenFile file = TokenFile::from_tokens(ids, {}, 100);
  const TokenSplit split = split_by_document(file, 0.1, 3);
  EXPECT_EQ(all_ids(split.train), Ids(ids.begin(), ids.begin() + 90));
  EXPECT_EQ(all_ids(split.valid), Ids(ids.begin() + 90, ids.end()));
  EXPECT_EQ(split_by_document(file, 1e-9, 3).valid.size(), 1);
  EXPECT_EQ(split_by_document(file, 0.9999, 3).train.size(), 1);
}

TEST(SplitByDocument, EdgesAndErrors) {
  const TokenFile two = stairs(2);
  for (const double fraction : {1e-9, 0.999}) {
    const TokenSplit split = split_by_document(two, fraction, 0);
    EXPECT_EQ(split.train.num_documents(), 1);
    EXPECT_EQ(split.valid.num_documents(), 1);
  }
  EXPECT_EQ(split_by_document(two, 0, 0).train.size(), two.size());
  EXPECT_EQ(split_by_document(two, 0, 0).valid.size(), 0);
  EXPECT_THROW(split_by_document(two, 1, 0), std::invalid_argument);
  EXPECT_THROW(split_by_document(two, -0.1, 0), std::invalid_argument);
  EXPECT_THROW(split_by_document(two, std::nan(""), 0), std::invalid_argument);
  EXPECT_THAT(error_of([] { split_by_document(stairs(1), 0.1, 0); }), HasSubstr("one example"));
}

TEST(MixedTokens, SharesAreAsTheWeights) {
  const auto source = [](Index documents, Index length, std::int32_t id, bool counts) {
    std::vector<std::int32_t> ids(documents * length, id);
    std::vector<Index> offsets;
    for (Index i = 0; i <= documents; ++i) offsets.push_back(i * length);
    const std::vector<std::uint8_t> none(counts ? ids.size() : 0, 0);
    return TokenFile::from_tokens(ids, offsets, 9, "", none);
  };
  const auto count = [](const TokenFile& file, std::int32_t id) {
    Index n = 0;
    for (Index t = 0; t < file.size(); ++t) n += file[t] == id;
    return n;
  };
  // The first has the most tokens for its weight: once. Of the others there are whole documents, or
  // a part of the only one.
  const TokenFile mixed = mixed_tokens(
      {source(10, 10, 1, false), source(3, 7, 2, true), source(1, 40, 3, false)}, {1, 0.5, 0.9});
  EXPECT_EQ(count(mixed, 1), 100);
  EXPECT_EQ(count(mixed, 2), 49);  // of 50
  EXPECT_EQ(count(mixed, 3), 90);
  EXPECT_EQ(mixed.num_documents(), 10 + 7 + 3);
  EXPECT_TRUE(mixed.has_counts() && mixed.counts(0) && !mixed.counts(100) && mixed.counts(149));
  EXPECT_THROW(mixed_tokens({source(1, 4, 1, false)}, {1, 1}), std::invalid_argument);
  EXPECT_THROW(mixed_tokens({source(1, 4, 1, false)}, {0}), std::invalid_argument);
  EXPECT_THROW(mixed_tokens({source(1, 9, 1, false), source(1, 9, 1, false)}, {1, 1e-9}),
               std::invalid_argument);
}

}  // namespace
}  // namespace focus
