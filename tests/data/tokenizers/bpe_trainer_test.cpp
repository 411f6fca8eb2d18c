#include "data/tokenizers/bpe_trainer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "data/synthetic/far_corpus.h"
#include "data/text/text.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/tokenizer_steps.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using Ids = std::vector<std::int32_t>;

BpeTrainer::Model train(const std::vector<std::string>& documents, BpeTrainerOptions options) {
  BpeTrainer trainer(std::move(options));
  for (const std::string& document : documents) trainer.add(document);
  return trainer.train();
}

std::unique_ptr<Tokenizer> tokenizer_of(const BpeTrainer& trainer) {
  return make_tokenizer("tokenizer.json",
                        {{"tokenizer.json", trainer.tokenizer_json(trainer.train())},
                         {"tokenizer_config.json", trainer.tokenizer_config_json()}});
}

/// By the definition: count all pairs of neighbours in all words, merge the most frequent one
/// (of equals the one with the smaller ids) everywhere, and again.
Bpe::Merges train_by_definition(const std::vector<std::string>& documents,
                                const BpeTrainerOptions& options) {
  std::vector<std::string> tokens = {options.special_token};
  for (const std::string& character : ByteAlphabet::instance().sorted())
    tokens.push_back(character);
  const auto id_of = [&](const std::string& token) {
    return std::find(tokens.begin(), tokens.end(), token) - tokens.begin();
  };
  std::vector<std::vector<std::ptrdiff_t>> words;
  for (const std::string& document : documents) {
    gpt2_pattern().for_each_part(document, [&](std::string_view word, bool) {
      words.emplace_back();
      for (const char byte : word) {
        std::string character;
        ByteAlphabet::instance().encode(std::string_view(&byte, 1), character);
        words.back().push_back(id_of(character));
      }
    });
  }
  Bpe::Merges merges;
  while (tokens.size() < static_cast<std::size_t>(options.vocab_size)) {
    std::map<std::pair<std::ptrdiff_t, std::ptrdiff_t>, std::int64_t> counts;
    for (const auto& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    }
    const auto best = std::ranges::max_element(
        counts, [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == counts.end() || best->second < options.min_frequency) break;
    const auto [left, right] = best->first;
    const std::string merged = tokens[left] + tokens[right];
    merges.emplace_back(tokens[left], tokens[right]);
    if (std::find(tokens.begin(), tokens.end(), merged) == tokens.end()) tokens.push_back(merged);
    for (auto& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] != left || word[i + 1] != right) continue;
        word[i] = id_of(merged);
        word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  return merges;
}

TEST(BpeTrainer, LearnsWhatTokenizersLearns) {
  const auto golden =
      nlohmann::json::parse(read_text(FOCUS_SOURCE_DIR "/tests/golden/bpe_training/trained.json"));
  BpeTrainer trainer(
      {.vocab_size = golden.at("vocab_size"), .min_frequency = golden.at("min_frequency")});
  for (const std::string document : golden.at("documents")) trainer.add(document);
  const BpeTrainer::Model model = trainer.train();
  EXPECT_EQ(model.merges, golden.at("merges").get<Bpe::Merges>());
  ASSERT_EQ(model.tokens.size(), golden.at("vocab").size());
  for (std::size_t id = 0; id < model.tokens.size(); ++id)
    EXPECT_EQ(golden.at("vocab").at(model.tokens[id]), id) << model.tokens[id];
  EXPECT_EQ(tokenizer_of(trainer)->encode(golden.at("text").get<std::string>()),
            golden.at("ids").get<Ids>());
}

RC_GTEST_PROP(BpeTrainer, AgreesWithItsDefinition, ()) {
  // Words of distinct letters in a row: in "aaa" the pairs overlap, and counts kept up to date then
  // differ from a full recount, in the reference implementation as here.
  std::vector<std::string> documents;
  for (int i = 0; i < 3; ++i) {
    std::string text;
    for (const auto& word :
         *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
             "abcd", "bcad", "dcb", "cab", " abc", " bca", " dab", ".")))
      text += word;
    text.erase(std::unique(text.begin(), text.end()), text.end());
    documents.push_back(text);
  }
  const BpeTrainerOptions options{.vocab_size = *rc::gen::inRange(257, 275),
                                  .min_frequency = *rc::gen::inRange(1, 4)};
  const auto expected = train_by_definition(documents, options);
  // A pair that comes up a second time is listed once.
  RC_PRE(std::set(expected.begin(), expected.end()).size() == expected.size());
  RC_ASSERT(train(documents, options).merges == expected);
}

TEST(BpeTrainer, BuiltInTextComesBackInFewerTokensAndTheSameEveryTime) {
  const std::string separator = "<|endoftext|>";
  const std::string text = joined_texts(generate_far_documents({.documents = 60}), separator);
  const BpeTrainerOptions options{.vocab_size = 600};
  BpeTrainer trainer(options), again(options);
  trainer.add(text);
  auto documents = split_documents(text, separator);
  std::ranges::reverse(documents);  // their order does not matter
  again.add(fmt::format("{}", fmt::join(documents, separator)));
  EXPECT_EQ(trainer.tokenizer_json(trainer.train()), again.tokenizer_json(again.train()));

  const auto tokenizer = tokenizer_of(trainer);
  EXPECT_EQ(tokenizer->vocab_size(), 600);
  EXPECT_EQ(tokenizer->bos_id(), 0);
  EXPECT_EQ(tokenizer->eos_id(), 0);
  const Ids ids = tokenizer->encode(text);
  EXPECT_LT(ids.size(), text.size() / 2);
  EXPECT_EQ(std::ranges::count(ids, 0), 59);
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("\u4f60\u597d \U0001F600")),
            "\u4f60\u597d \U0001F600");
}

TEST(BpeTrainer, StopsWhereNothingIsFrequentEnough) {
  const auto model = train({"ab ab ab cd cd ef"}, {.vocab_size = 1000, .min_frequency = 2});
  // " ab" is seen twice, so is " cd"; "ef" once.
  EXPECT_EQ(model.tokens.size(), 257u + model.merges.size());
  EXPECT_THAT(model.tokens, testing::Contains("\u0120ab"));
  EXPECT_THAT(model.tokens, testing::Contains("\u0120cd"));
  EXPECT_THAT(model.tokens, testing::Not(testing::Contains("ef")));
  EXPECT_TRUE(train({}, {.vocab_size = 1000}).merges.empty());
}

TEST(BpeTrainer, NeverLearnsFromTheSpecialToken) {
  const auto model = train({"ab<|endoftext|>ab<|endoftext|>ab<|endoftext|>"}, {.vocab_size = 1000});
  EXPECT_EQ(model.merges, (Bpe::Merges{{"a", "b"}}));
}

TEST(BpeTrainer, RefusesSizesThatCannotBe) {
  EXPECT_THAT(error_of([] { BpeTrainer({.vocab_size = 256}); }), testing::HasSubstr("256"));
  EXPECT_THAT(error_of([] { BpeTrainer({.vocab_size = 1 << 30}); }),
              testing::HasSubstr("1073741824"));
  EXPECT_THAT(error_of([] { BpeTrainer({.special_token = ""}); }),
              testing::HasSubstr("special token"));
}

}  // namespace
}  // namespace focus
