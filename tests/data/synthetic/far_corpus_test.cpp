#include "data/synthetic/far_corpus.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>

#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;

constexpr CorpusKind kAsking[] = {CorpusKind::recall, CorpusKind::copy};

std::uint64_t fnv1a_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

std::vector<std::string> tales(std::uint64_t seed, std::int64_t count) {
  std::vector<std::string> texts;
  for (AskedDocument& tale : generate_far_documents({.documents = count, .seed = seed})) {
    EXPECT_TRUE(tale.answers.empty());
    texts.push_back(std::move(tale.text));
  }
  return texts;
}

TEST(Tales, AreOfSomeSizeInAsciiAndWellFormed) {
  for (const std::string& text : tales(1, 500)) {
    EXPECT_GE(text.size(), 1500u);
    EXPECT_LE(text.size(), 4000u);
    EXPECT_TRUE(text.ends_with('\n'));
    EXPECT_TRUE(std::ranges::all_of(text, [](char c) {
      return c == '\n' || (c >= ' ' && c <= '~' && c != '{' && c != '}');
    })) << text;
    for (const char* wrong : {"  ", "..", " .", " ,", "\n\n\n", " a a", " a e", " a i", " a u",
                              " an b", " an m", "\" \"\""})
      EXPECT_EQ(text.find(wrong), std::string::npos) << wrong << " in\n" << text;
    EXPECT_EQ(std::ranges::count(text, '"') % 2, 0);
  }
}

TEST(Tales, WhatIsAnsweredWasToldFarAbove) {
  const std::set<std::string> small = {"at",       "the",  "it",  "in", "was", "kept",
                                       "belonged", "owed", "did", "to", "of"};
  const std::regex word("[A-Za-z0-9-]+");
  for (const std::string& text : tales(5, 300)) {
    std::size_t questions = 0, words = 0;
    for (std::size_t at = text.find("Answer: "); at != std::string::npos;
         at = text.find("Answer: ", at + 1), ++questions) {
      const std::string answer = text.substr(at + 8, text.find('\n', at) - at - 8);
      for (std::sregex_iterator found(answer.begin(), answer.end(), word), end; found != end;
           ++found) {
        std::string one = found->str();
        if (small.contains(std::string(1, static_cast<char>(std::tolower(one[0]))) + one.substr(1)))
          continue;
        ++words;
        EXPECT_LT(text.find(one) + 300, at) << one << " in\n" << text;
      }
    }
    EXPECT_GE(questions, 6u);
    EXPECT_GE(words, 8u);
  }
}

TEST(Tales, PeopleCannotBeLearntByHeart) {
  const std::regex name("[A-Z][a-z]+ [A-Z][a-z]+");
  std::set<std::string> names;
  for (const std::string& text : tales(7, 500)) {
    std::smatch found;
    const std::string told = text.substr(text.find("\n\n"));
    ASSERT_TRUE(std::regex_search(told, found, name)) << text;
    names.insert(found.str());
  }
  EXPECT_GE(names.size(), 498u);
}

TEST(FarCorpus, SameSeedSameBytes) {
  EXPECT_EQ(fnv1a_of(joined_texts(generate_far_documents({.documents = 100}), "\n\n")),
            0x0d35f2284ee44eccULL);
  const std::uint64_t hashes[] = {16431521517302372457ULL, 12844291705202761652ULL};
  for (std::size_t i = 0; i < 2; ++i) {
    const CorpusKind kind = kAsking[i];
    EXPECT_EQ(fnv1a_of(joined_texts(generate_far_documents({.kind = kind, .documents = 40}), "\n")),
              hashes[i]);
    EXPECT_NE(generate_far_documents({.kind = kind, .documents = 2, .seed = 1}),
              generate_far_documents({.kind = kind, .documents = 2, .seed = 2}));
  }
}

TEST(FarCorpus, TextsAreSeparatedAsAsked) {
  const auto documents = generate_far_documents({.documents = 2});
  EXPECT_EQ(joined_texts(documents, "<|end|>"), documents[0].text + "<|end|>" + documents[1].text);
  EXPECT_EQ(joined_texts({}, "<|end|>"), "");
}

TEST(FarCorpus, AShorterCorpusStartsALongerOne) {
  for (const CorpusKind kind : kAsking) {
    const FarCorpusOptions options{.kind = kind, .documents = 7, .share = 0.4};
    const auto shorter = generate_far_documents(options);
    auto longer =
        generate_far_documents({.kind = options.kind, .documents = 19, .share = options.share});
    longer.resize(shorter.size());
    EXPECT_EQ(longer, shorter);
  }
}

/// Answers follow each other, and each repeats what begins at its source, and no more.
void expect_told(const AskedDocument& document) {
  const std::string& text = document.text;
  ASSERT_FALSE(document.answers.empty());
  std::size_t last = 0;
  for (const auto& [begin, end, source] : document.answers) {
    ASSERT_LT(source, begin);
    ASSERT_LT(begin, end);
    ASSERT_LE(end, text.size());
    EXPECT_GT(begin, last) << "from left to right";
    EXPECT_EQ(text.substr(begin, end - begin), text.substr(source, end - begin)) << text;
    last = begin;
  }
}

TEST(FarCorpus, AnAnswerIsWhatItsSourceSays) {
  for (const CorpusKind kind : kAsking)
    for (const AskedDocument& document : generate_far_documents(
             {.kind = kind, .documents = 40, .keys = {30}, .distance = {0, 90}})) {
      EXPECT_TRUE(document.text.ends_with('\n'));
      expect_told(document);
    }
}

/// Bytes of sentences between the last source and the first answer, at least.
std::size_t gap(const AskedDocument& document) {
  std::size_t last_source = 0;
  for (const Answer& answer : document.answers) last_source = std::max(last_source, answer.source);
  return document.answers.front().begin - last_source;
}

TEST(FarCorpus, TheDistanceIsKept) {
  for (const CorpusKind kind : kAsking) {
    for (const AskedDocument& document :
         generate_far_documents({.kind = kind, .documents = 20, .distance = {300}})) {
      EXPECT_GE(gap(document), 300U) << document.text;
      EXPECT_LT(gap(document), 600U) << document.text;
    }
    std::set<bool> far;
    for (const AskedDocument& document :
         generate_far_documents({.kind = kind, .documents = 30, .distance = {0, 4000}}))
      far.insert(gap(document) >= 4000);
    EXPECT_EQ(far.size(), 2U) << "each document draws one of the distances";
  }
}

TEST(FarCorpus, RecallAsksEachOfItsKeysOnce) {
  for (const int keys : {1, 8, 26, 27, 800})
    for (const AskedDocument& document : generate_far_documents(
             {.kind = CorpusKind::recall, .documents = 5, .keys = {keys}, .distance = {0}})) {
      const std::string& text = document.text;
      const auto key_before = [&](std::size_t digit) {
        const std::size_t begin =
            text.find_last_not_of("abcdefghijklmnopqrstuvwxyz", digit - 1) + 1;
        return text.substr(begin, digit - begin);
      };
      ASSERT_EQ(std::ssize(document.answers), keys);
      std::set<std::string> told;
      std::set<std::size_t> sources;
      for (const Answer& answer : document.answers) {
        EXPECT_EQ(key_before(answer.begin), key_before(answer.source));
        EXPECT_EQ(answer.end - answer.begin, 1U);
        EXPECT_LT(answer.source, text.find('\n')) << "where it was told";
        told.insert(key_before(answer.begin));
        sources.insert(answer.source);
      }
      EXPECT_EQ(std::ssize(told), keys) << "no key twice";
      EXPECT_EQ(std::ssize(sources), keys) << "no source twice";
    }
}

TEST(FarCorpus, EachDocumentDrawsItsNumberOfKeys) {
  std::set<std::size_t> drawn;
  for (const AskedDocument& document : generate_far_documents(
           {.kind = CorpusKind::recall, .documents = 40, .keys = {2, 5, 30}, .distance = {0}}))
    drawn.insert(document.answers.size());
  EXPECT_EQ(drawn, (std::set<std::size_t>{2, 5, 30}));
}

TEST(FarCorpus, TheShareIsOfTheKindAndTheRestAreTales) {
  std::vector<std::string> told;
  for (const AskedDocument& document :
       generate_far_documents({.kind = CorpusKind::copy, .documents = 40, .share = 0.3}))
    if (document.answers.empty()) told.push_back(document.text);
  EXPECT_EQ(told, tales(1, 28));
}

TEST(FarCorpus, RefusesWhatIsOutOfRange) {
  const auto copy = CorpusKind::copy;
  for (const FarCorpusOptions& wrong :
       std::initializer_list<FarCorpusOptions>{{.documents = -1},
                                               {.kind = copy, .keys = {4, 0}},
                                               {.kind = copy, .keys = {}},
                                               {.kind = copy, .distance = {}},
                                               {.kind = copy, .distance = {-1}},
                                               {.kind = copy, .share = 1.5}})
    EXPECT_THROW(generate_far_documents(wrong), std::invalid_argument);
}

TEST(AskedDocument, LinesAreReadBack) {
  std::vector<AskedDocument> documents =
      generate_far_documents({.kind = CorpusKind::recall, .documents = 6, .share = 0.5});
  const std::string lines = questions_jsonl(documents);
  std::erase_if(documents, [](const AskedDocument& one) { return one.answers.empty(); });
  EXPECT_EQ(documents.size(), 3U);
  EXPECT_EQ(read_questions(lines, "here"), documents);
  EXPECT_EQ(read_questions("\n" + lines + "\n  \n", "here"), documents);
}

TEST(AskedDocument, MistakesNameTheLine) {
  const std::string good = R"({"text": "a1 a1", "answers": [{"begin":4,"end":5,"source":1}]})";
  for (const auto& [line, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {"no json", "line 2"},
           {R"({"answers": [{"begin":4,"end":5,"source":1}]})", "text"},
           {R"({"text": "a1 a1"})", "answers"},
           {R"({"text": "a1 a1", "answers": []})", "has no question"},
           {R"({"text": "a1 a1", "answers": [{"begin":4,"source":1}]})", "end"},
           {R"({"text": "a1 a1", "answers": [{"begin":4,"end":6,"source":1}]})", "end"},
           {R"({"text": "a1 a1", "answers": [{"begin":4,"end":4,"source":1}]})",
            "source < begin < end"},
           {R"({"text": "a1 a1", "answers": [{"begin":4,"end":5,"source":4}]})",
            "source < begin < end"},
           {R"({"text": "\ud800 a1", "answers": [{"begin":4,"end":5,"source":1}]})", "line 2"}})
    EXPECT_THAT(error_of([&] { read_questions(good + "\n" + line, "q.jsonl"); }),
                AllOf(HasSubstr("q.jsonl, line 2"), HasSubstr(part), Not(HasSubstr("\n"))));
  EXPECT_THROW(read_questions("\n\n", "q.jsonl"), std::runtime_error);
}

}  // namespace
}  // namespace focus
