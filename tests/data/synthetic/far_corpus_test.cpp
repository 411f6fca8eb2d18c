#include "data/synthetic/far_corpus.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>
#include <span>

#include "data/files/utf8.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;

constexpr CorpusKind kAsking[] = {CorpusKind::recall, CorpusKind::copy, CorpusKind::lookup,
                                  CorpusKind::chain};

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
  const std::uint64_t hashes[] = {16431521517302372457ULL, 12844291705202761652ULL,
                                  17772718269276725465ULL, 14722146730987811553ULL};
  for (std::size_t i = 0; i < 4; ++i) {
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
    // Parts of it follow each sentence of a chain.
    const std::size_t most = kind == CorpusKind::chain ? 1900 : 600;
    for (const AskedDocument& document :
         generate_far_documents({.kind = kind, .documents = 20, .distance = {300}})) {
      EXPECT_GE(gap(document), 300U) << document.text;
      EXPECT_LT(gap(document), most) << document.text;
    }
    std::set<bool> far;
    for (const AskedDocument& document :
         generate_far_documents({.kind = kind, .documents = 30, .distance = {0, 4000}}))
      far.insert(gap(document) >= 4000);
    EXPECT_EQ(far.size(), 2U) << "each document draws one of the distances";
  }
}

TEST(FarCorpus, RecallAsksEachOfItsKeysOnceARound) {
  for (const auto& [keys, asked] : {std::pair(1, 1), std::pair(8, 1), std::pair(26, 1),
                                    std::pair(27, 1), std::pair(800, 1), std::pair(6, 3)})
    for (const AskedDocument& document : generate_far_documents({.kind = CorpusKind::recall,
                                         .documents = 5,
                                         .keys = {keys},
                                         .distance = {0},
                                         .asked = asked})) {
      const std::string& text = document.text;
      const auto key_before = [&](std::size_t digit) {
        const std::size_t begin =
            text.find_last_not_of("abcdefghijklmnopqrstuvwxyz", digit - 1) + 1;
        return text.substr(begin, digit - begin);
      };
      ASSERT_EQ(std::ssize(document.answers), keys * asked);
      std::set<std::vector<std::size_t>> orders;
      for (auto answer = document.answers.begin(); answer != document.answers.end();) {
        std::set<std::string> told;
        std::vector<std::size_t> sources;
        for (int i = 0; i < keys; ++i, ++answer) {
          EXPECT_EQ(key_before(answer->begin), key_before(answer->source));
          EXPECT_EQ(answer->end - answer->begin, 1U);
          EXPECT_LT(answer->source, text.find('\n')) << "where it was told";
          told.insert(key_before(answer->begin));
          sources.push_back(answer->source);
        }
        EXPECT_EQ(std::ssize(told), keys) << "no key twice";
        EXPECT_EQ(std::ssize(std::set(sources.begin(), sources.end())), keys) << "no source twice";
        orders.insert(sources);
      }
      EXPECT_EQ(orders.size() > 1, asked > 1);
    }
}

TEST(FarCorpus, LengthFillsEveryDocumentUp) {
  for (const CorpusKind kind : kAsking) {
    const FarCorpusOptions options{
        .kind = kind, .documents = 12, .keys = {2, 9}, .distance = {0, 60}, .length = 1700};
    const auto documents = generate_far_documents(options);
    std::set<std::size_t> places;
    for (const AskedDocument& document : documents) {
      EXPECT_EQ(document.text.size(), 1700U);
      expect_told(document);
      places.insert(document.answers.front().source);
    }
    EXPECT_GT(places.size(), 1U) << "what fills up stands before";
    FarCorpusOptions fewer = options;
    fewer.documents = 5;
    EXPECT_TRUE(std::ranges::equal(generate_far_documents(fewer), std::span(documents).first(5)));
  }
  // A document that is as long already, and one byte less.
  FarCorpusOptions exact{.kind = CorpusKind::recall, .documents = 1};
  const auto document = generate_far_documents(exact);
  exact.length = std::ssize(document[0].text);
  EXPECT_EQ(generate_far_documents(exact), document);
  --exact.length;
  EXPECT_THROW(generate_far_documents(exact), std::invalid_argument);
}

TEST(FarCorpus, EachDocumentDrawsItsNumberOfKeys) {
  std::set<std::size_t> drawn;
  for (const AskedDocument& document : generate_far_documents(
           {.kind = CorpusKind::recall, .documents = 40, .keys = {2, 5, 30}, .distance = {0}}))
    drawn.insert(document.answers.size());
  EXPECT_EQ(drawn, (std::set<std::size_t>{2, 5, 30}));
}

/// Whom the question before an answer is about.
std::string asked_name(const std::string& text, const Answer& answer) {
  const std::size_t asked = text.rfind("Where does ", answer.begin) + 11;
  return text.substr(asked, text.find(' ', asked) - asked);
}

/// The source is where `name` was said to live.
void expect_home(const std::string& text, const Answer& answer, const std::string& name) {
  const std::string fact = name + " lives in the ";
  EXPECT_EQ(text.substr(answer.source - fact.size(), fact.size()), fact);
}

TEST(FarCorpus, LookupAsksForHalfOfThePeople) {
  for (const auto& [text, answers] : generate_far_documents(
           {.kind = CorpusKind::lookup, .documents = 20, .keys = {9}, .distance = {0}})) {
    EXPECT_EQ(answers.size(), 5U);
    for (const Answer& answer : answers) expect_home(text, answer, asked_name(text, answer));
  }
}

TEST(FarCorpus, AChainLeadsFromTheQuestionToTheHome) {
  for (const std::int64_t people : {1, 2, 5})
    for (const auto& [text, answers] : generate_far_documents(
             {.kind = CorpusKind::chain, .documents = 20, .keys = {people}, .distance = {200}})) {
      ASSERT_EQ(answers.size(), 2U);
      std::set<std::string> homes;
      for (const Answer& answer : answers) {
        std::string name = asked_name(text, answer);
        for (std::int64_t person = 1; person < people; ++person) {
          const std::string sentence = name + " lives with ";
          const std::size_t with = text.find(sentence);
          ASSERT_NE(with, std::string::npos) << name << "\n" << text;
          EXPECT_EQ(text.find(sentence, with + 1), std::string::npos) << "told twice";
          name = text.substr(with + sentence.size(), text.find('.', with) - with - sentence.size());
        }
        expect_home(text, answer, name);
        homes.insert(text.substr(answer.begin, answer.end - answer.begin));
      }
      EXPECT_EQ(homes.size(), 2U);
    }
}

TEST(FarCorpus, AHaystackIsTheTextBetween) {
  const TempFolder folder;
  const std::string_view paragraphs[] = {"One fine day.", "Two crows\nsat – there.", "Three."};
  std::string haystack = "\n  \n";
  for (const auto paragraph : paragraphs) haystack += std::string(paragraph) + "\n\n";
  write_text(folder / "novel.txt", haystack);
  for (const CorpusKind kind : kAsking) {
    std::set<std::string_view> first;
    for (const AskedDocument& document : generate_far_documents({.kind = kind,
                                         .documents = 40,
                                         .keys = {1},
                                         .distance = {0, 5, 200},
                                         .length = 700,
                                         .haystack = (folder / "novel.txt").string()})) {
      EXPECT_EQ(document.text.size(), 700U);
      EXPECT_TRUE(is_valid_utf8(document.text)) << document.text;
      const std::size_t told = document.text.find('\n', document.answers[0].source) + 1;
      for (const auto paragraph : paragraphs)
        if (document.text.substr(told).starts_with(paragraph.substr(0, 3))) first.insert(paragraph);
    }
    EXPECT_EQ(first.size(), 3U) << "any paragraph can be the first";
  }
  write_text(folder / "blank.txt", " \n\t\n ");
  EXPECT_THROW(
      generate_far_documents({.kind = CorpusKind::lookup, .haystack = folder / "blank.txt"}),
      std::invalid_argument);
  EXPECT_THROW(
      generate_far_documents({.kind = CorpusKind::lookup, .haystack = folder / "none.txt"}),
      std::runtime_error);
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
  for (const FarCorpusOptions& wrong : std::initializer_list<FarCorpusOptions>{
           {.documents = -1},
           {.kind = copy, .keys = {4, 0}},
           {.kind = copy, .keys = {}},
           {.kind = copy, .distance = {}},
           {.kind = copy, .distance = {-1}},
           {.kind = copy, .share = 1.5},
           {.kind = CorpusKind::recall, .asked = 0},
           {.kind = copy, .length = -1},
           {.kind = copy, .length = 4000, .share = 0.5},
           {.kind = CorpusKind::tales, .length = 4000},
           {.kind = CorpusKind::tales, .haystack = "novel.txt"}})
    EXPECT_THROW(generate_far_documents(wrong), std::invalid_argument);
}

TEST(AskedDocument, LinesAreReadBack) {
  std::vector<AskedDocument> documents =
      generate_far_documents({.kind = CorpusKind::lookup, .documents = 6, .share = 0.5});
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
