// Windows of documents: which go together, where they are cut, what the loss is of.
#include <gmock/gmock.h>

#include <numeric>

#include "autograd/base/random.h"
#include "data/tokens/batches.h"
#include "data/tokens/tokenize.h"
#include "tests/support/notices.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Ids = std::vector<std::int32_t>;
using Counts = std::vector<std::uint8_t>;

/// Documents of these lengths, ids rising; `prompt` tokens of each are not learned (0: all are).
TokenView documents_of(const std::vector<Index>& lengths, Index prompt = 0) {
  std::vector<Index> offsets = {0};
  Counts counts;
  for (const Index length : lengths) {
    offsets.push_back(offsets.back() + length);
    for (Index i = 0; prompt > 0 && i < length; ++i) counts.push_back(i < prompt ? 0 : 1);
  }
  Ids ids(static_cast<std::size_t>(offsets.back()));
  std::iota(ids.begin(), ids.end(), 0);
  return TokenView(TokenFile::from_tokens(ids, offsets, 100000, {}, counts));
}

BatchOptions by_documents(Index context, Index batch = 1) {
  return {.batch = batch, .context = context, .shuffle = false, .packing = Packing::documents};
}

TEST(Packing, BestFitTheLongestFirst) {
  // 7 first, 6 in a window of its own, 4 fits behind 6 exactly, 3 behind 7 exactly, 2 alone.
  const Batches batches(documents_of({2, 3, 4, 6, 7}), by_documents(10));
  ASSERT_EQ(batches.num_windows(), 3);
  EXPECT_EQ(batches.num_tokens(), 22);
  EXPECT_THAT(batches.windows(0, 1).ids, ElementsAre(0, 1));
  EXPECT_THAT(batches.windows(1, 1).ids, ElementsAre(2, 3, 4, 15, 16, 17, 18, 19, 20, 21));
  EXPECT_THAT(batches.windows(1, 1).documents, ElementsAre(0, 3, 10));
  EXPECT_THAT(batches.windows(2, 1).ids, ElementsAre(5, 6, 7, 8, 9, 10, 11, 12, 13, 14));
}

TEST(Packing, PairsStayTogether) {
  // Answers behind prompts of 2; the third pair's second has none.
  BatchOptions options{.context = 6, .shuffle = false, .pairs = true};
  const Notices notices;
  const Batches batches(documents_of({4, 3, 9, 6, 5, 2}, 2), options);
  ASSERT_EQ(batches.num_windows(), 2);
  EXPECT_THAT(batches.windows(0, 1).ids, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(batches.windows(0, 1).documents, ElementsAre(0, 4, 7));
  EXPECT_THAT(batches.windows(1, 1).documents, ElementsAre(0, 6, 12));  // 9 is cut at 6
  EXPECT_THAT(batches.windows(0, 1).counts, ElementsAre(0, 0, 1, 1, 0, 0, 1));
  EXPECT_THAT(notices.text(), HasSubstr("1 of 3 pairs"));
  options.packing = Packing::wrapped;
  EXPECT_THROW(Batches(documents_of({4, 3}, 2), options), std::invalid_argument);
}

TEST(Packing, WindowsOfABatchAreOneRow) {
  Batches batches(documents_of({2, 3, 4, 6, 7}), by_documents(10, 2));
  const Batch batch = batches.next();
  EXPECT_EQ(batch.batch, 1);
  EXPECT_EQ(batch.context, 12);
  EXPECT_THAT(batch.documents, ElementsAre(0, 2, 5, 12));
  EXPECT_THAT(batch.counts, IsEmpty());
  EXPECT_EQ(batches.next().ids.size(), 12u);  // into the next epoch
  EXPECT_EQ(batches.state().epoch, 1);
}

TEST(Packing, TargetsEndWithTheirDocument) {
  const Batches plain(documents_of({2, 3}), by_documents(10));
  EXPECT_THAT(plain.windows(0, 1).targets(), ElementsAre(1, -1, 3, 4, -1));
  const Batches prompts(documents_of({3, 4}, 2), by_documents(10));
  EXPECT_THAT(prompts.windows(0, 1).counts, ElementsAre(0, 0, 1, 0, 0, 1, 1));
  EXPECT_THAT(prompts.windows(0, 1).targets(), ElementsAre(-1, 2, -1, -1, 5, 6, -1));
  Batches rows(documents_of({6}), {.batch = 2, .context = 3, .shuffle = false});
  EXPECT_THAT(rows.next().targets(), ElementsAre(1, 2, -1, 4, 5, -1));
}

TEST(Packing, OneDocumentToAWindow) {
  BatchOptions options = by_documents(10);
  options.packing = Packing::none;
  const Batches batches(documents_of({2, 3, 4}), options);
  ASSERT_EQ(batches.num_windows(), 3);
  EXPECT_THAT(batches.windows(1, 1).ids, ElementsAre(2, 3, 4));
}

TEST(Packing, AutomaticAsksWhatTheLossIsOf) {
  const BatchOptions options{.batch = 1, .context = 4, .shuffle = false};
  EXPECT_FALSE(Batches(documents_of({3, 5}), options).by_document());
  EXPECT_TRUE(Batches(documents_of({3, 4}, 1), options).by_document());
  BatchOptions wrapped = options;
  wrapped.packing = Packing::wrapped;
  EXPECT_THAT(error_of([&] {
                Batches(documents_of({3, 4}, 1), wrapped);
              }),
              HasSubstr("data.packing wrapped"));
}

TEST(Packing, LongTextsAreSplitAndLongExamplesCut) {
  const Batches texts(documents_of({9, 2, 1}), by_documents(4));
  EXPECT_EQ(texts.num_tokens(), 10);  // a last token alone has nothing to predict
  const Notices notices;
  const Batches examples(documents_of({9, 3, 6}, 2), by_documents(4));
  EXPECT_EQ(examples.num_tokens(), 4 + 3 + 4);
  EXPECT_THAT(notices.text(), HasSubstr("2 of 3 examples are longer than the context of 4 tokens "
                                        "and are cut at its end; 0 of them are left out"));
  const Batches prompts(documents_of({9, 5, 6}, 4), by_documents(5));
  EXPECT_EQ(prompts.num_windows(), 3);
  const Batches without(documents_of({9, 3, 6}, 4), by_documents(8));
  EXPECT_EQ(without.num_tokens(), 8 + 6);  // a prompt alone
  EXPECT_THROW(Batches(documents_of({9, 8}, 4), by_documents(4)), std::invalid_argument);
}

TEST(Packing, WhatIsPutBeforeAWindowIsPutBeforeEachDocument) {
  BatchOptions options = by_documents(5);
  options.window_start = 77;
  const Batches batches(documents_of({2, 3, 4}, 1), options);
  EXPECT_THAT(batches.windows(0, 1).ids, ElementsAre(77, 0, 1));
  EXPECT_THAT(batches.windows(2, 1).ids, ElementsAre(77, 5, 6, 7, 8));
  EXPECT_THAT(batches.windows(2, 1).targets(), ElementsAre(-1, 6, 7, 8, -1));
}

TEST(Packing, GoesOnFromASavedStateWithTheSameBatches) {
  Rng rng(3);
  std::vector<Index> lengths;
  for (int i = 0; i < 60; ++i) lengths.push_back(2 + static_cast<Index>(rng.below(30)));
  BatchOptions options = by_documents(32, 3);
  options.shuffle = true;
  options.seed = 4;
  Batches whole(documents_of(lengths, 1), options);
  for (int i = 0; i < 7; ++i) whole.next();
  Batches resumed(documents_of(lengths, 1), options);
  resumed.restore(whole.state());
  for (int i = 0; i < 20; ++i) {
    const Batch a = whole.next(), b = resumed.next();
    EXPECT_EQ(a.ids, b.ids);
    EXPECT_EQ(a.documents, b.documents);
    EXPECT_EQ(a.counts, b.counts);
  }
}

TEST(Packing, EveryTokenIsInOneWindow) {
  Rng rng(5);
  std::vector<Index> lengths;
  for (int i = 0; i < 200; ++i) lengths.push_back(2 + static_cast<Index>(rng.below(63)));
  const Batches batches(documents_of(lengths, 1), by_documents(64));
  std::vector<int> seen(batches.num_tokens());
  for (Index w = 0; w < batches.num_windows(); ++w) {
    const Batch window = batches.windows(w, 1);
    EXPECT_LE(window.ids.size(), 64u);
    for (const std::int32_t id : window.ids) ++seen[id];
  }
  EXPECT_THAT(seen, testing::Each(1));
  // Nearly as few windows as there could be.
  EXPECT_LE(batches.num_windows(), batches.num_tokens() / 64 + 8);
}

TEST(TokenFile, SaysWhatTheLossIsOf) {
  const TempFolder folder;
  Ids ids(21);
  Counts counts(21);
  for (std::size_t i = 0; i < 21; ++i) counts[i] = i % 3 == 1;
  TokenFile::from_tokens(ids, std::vector<Index>{0, 5, 21}, 10, {}, counts).save(folder / "t");
  const TokenFile file = TokenFile::open(folder / "t");
  EXPECT_TRUE(file.has_counts());
  for (Index i = 0; i < 21; ++i) EXPECT_EQ(file.counts(i), i % 3 == 1) << i;
  Counts of_view(16);
  TokenView(file, {{5, 21}}).copy_counts(0, of_view);
  EXPECT_EQ(of_view, Counts(counts.begin() + 5, counts.end()));
  EXPECT_FALSE(TokenFile::from_tokens(ids, {}, 10).has_counts());
  EXPECT_TRUE(TokenFile::from_tokens(ids, {}, 10).counts(3));
  EXPECT_THROW(TokenFile::from_tokens(ids, {}, 10, {}, Counts(20)), std::invalid_argument);
  // Cut or longer files are refused.
  const std::string bytes = read_text(folder / "t");
  for (const std::string& wrong : {bytes.substr(0, bytes.size() - 1), bytes + "x"}) {
    write_text(folder / "x", wrong);
    EXPECT_THAT(error_of([&] { TokenFile::open(folder / "x"); }), HasSubstr("damaged token file"));
  }
}

TEST(TokenizeCached, KeepsExamplesByWhatTheyBecome) {
  const TempFolder folder;
  const auto tokenizer = load_tokenizer("bytes");
  write_text(
      folder / "a.jsonl",
      "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n{\"prompt\": \"e\", \"completion\": \"\"}\n"
      "{\"prompt\": \"f\", \"completion\": \"g\"}\n");
  const std::vector<std::filesystem::path> paths = {folder / "a.jsonl"};
  TokenizeOptions options{.cache_dir = folder / "cache"};
  const Notices notices;
  const TokenFile file = tokenize_cached(paths, *tokenizer, options);
  EXPECT_EQ(file.num_documents(), 2);
  EXPECT_THAT(notices.text(), HasSubstr("1 of 3 examples are left out, the first on line 2"));
  EXPECT_TRUE(file.has_counts());
  EXPECT_FALSE(file.counts(1));
  EXPECT_TRUE(file.counts(2));
  EXPECT_EQ(files_in(folder / "cache"), 2u);  // the tokens, and what was said of them
  options.examples.settings.completion_only_loss = false;
  EXPECT_TRUE(tokenize_cached(paths, *tokenizer, options).counts(1));
  EXPECT_EQ(files_in(folder / "cache"), 4u);
  // The same bytes under another name are the same records, and the notice comes again.
  write_text(folder / "a.txt", read_text(folder / "a.jsonl"));
  const std::vector<std::filesystem::path> text = {folder / "a.txt"};
  EXPECT_TRUE(tokenize_cached(text, *tokenizer, options).has_counts());
  EXPECT_EQ(files_in(folder / "cache"), 4u);
  EXPECT_THAT(notices.text(),
              HasSubstr("a.txt: 1 of 3 examples are left out, the first on line 2"));
  // Where all are, the line says why.
  write_text(folder / "b.jsonl", R"({"messages": [{"role": "gpt", "content": "a"}]})");
  options.examples.chat = [](const ChatPart&) { return "gpt: a"; };
  const std::vector<std::filesystem::path> none = {folder / "b.jsonl"};
  EXPECT_THAT(error_of([&] { tokenize_cached(none, *tokenizer, options); }),
              testing::AllOf(HasSubstr("all 1 examples are left out"), HasSubstr("roles: gpt")));
}

}  // namespace
}  // namespace focus
