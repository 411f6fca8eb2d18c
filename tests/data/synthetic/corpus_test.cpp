#include "data/synthetic/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace focus {
namespace {

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

TEST(Corpus, SameSeedSameBytes) {
  EXPECT_EQ(fnv1a(generate_corpus({.seed = 1, .documents = 100})), 0x0d35f2284ee44eccULL);
  EXPECT_NE(generate_corpus({.seed = 1, .documents = 2}),
            generate_corpus({.seed = 2, .documents = 2}));
}

TEST(Corpus, AShorterCorpusStartsALongerOne) {
  const std::string shorter = generate_corpus({.documents = 5});
  EXPECT_TRUE(generate_corpus({.documents = 9}).starts_with(shorter));
}

TEST(Corpus, DocumentsKeepToTheSizesAndAreAscii) {
  for (const CorpusOptions& options :
       {CorpusOptions{.documents = 500},
        CorpusOptions{.seed = 3, .documents = 100, .min_bytes = 0, .max_bytes = 3500},
        CorpusOptions{.seed = 4, .documents = 50, .min_bytes = 8000, .max_bytes = 12000}}) {
    for (const CorpusDocument& document : generate_documents(options)) {
      EXPECT_GE(document.text.size(), options.min_bytes);
      EXPECT_LE(document.text.size(), options.max_bytes);
      EXPECT_TRUE(document.text.ends_with('\n'));
      EXPECT_TRUE(std::ranges::all_of(document.text, [](char c) {
        return c == '\n' || (c >= ' ' && c <= '~' && c != '{' && c != '}');
      })) << document.text;
    }
  }
}

TEST(Corpus, EveryFactComesBackFarBelow) {
  for (const CorpusDocument& document : generate_documents({.seed = 5, .documents = 300})) {
    EXPECT_GE(document.facts.size(), 8u);
    for (const std::string& fact : document.facts) {
      const std::size_t first = document.text.find(fact);
      ASSERT_NE(first, std::string::npos) << fact;
      EXPECT_GT(document.text.rfind(fact) - first, 300u) << fact << " in\n" << document.text;
    }
  }
}

TEST(Corpus, SentencesAreWellFormed) {
  for (const CorpusDocument& document : generate_documents({.seed = 6, .documents = 300})) {
    const std::string& text = document.text;
    for (const char* wrong : {"  ", "..", " .", " ,", "\n\n\n", " a a", " a e", " a i", " a u",
                              " an b", " an m", "\" \"\""})
      EXPECT_EQ(text.find(wrong), std::string::npos) << wrong << " in\n" << text;
    EXPECT_EQ(std::ranges::count(text, '"') % 2, 0);
  }
}

TEST(Corpus, PeopleCannotBeLearntByHeart) {
  std::set<std::string> names;
  std::size_t people = 0;
  for (const CorpusDocument& document : generate_documents({.seed = 7, .documents = 500})) {
    names.insert(document.facts[0]);
    ++people;
  }
  EXPECT_GE(names.size(), people - 2);
}

TEST(Corpus, TextsAreSeparatedAsAsked) {
  const auto documents = generate_documents({.documents = 2});
  EXPECT_EQ(generate_corpus({.documents = 2, .separator = "<|end|>"}),
            documents[0].text + "<|end|>" + documents[1].text);
  EXPECT_EQ(generate_corpus({.documents = 0}), "");
}

TEST(Corpus, RefusesSizesThatDoNotFit) {
  EXPECT_THROW(generate_documents({.documents = -1}), std::invalid_argument);
  EXPECT_THROW(generate_documents({.min_bytes = 3000, .max_bytes = 4000}), std::invalid_argument);
  EXPECT_THROW(generate_documents({.min_bytes = 0, .max_bytes = 2000}), std::invalid_argument);
}

}  // namespace
}  // namespace focus
