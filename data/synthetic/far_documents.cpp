#include "data/synthetic/far_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "autograd/base/check.h"
#include "data/synthetic/corpus_draws.h"

namespace focus::corpus {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

/// Sentences of the tales that tell nothing.
std::string sentences(Rng& rng, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    if (!text.empty()) text += ' ';
    for (Text sentence = pick(rng, tales("fillers")); !sentence.empty();) {
      const std::size_t open = sentence.find('{');
      text += sentence.substr(0, open);
      if (open == Text::npos) break;
      const std::size_t close = sentence.find('}', open);
      text += small_word(rng, sentence.substr(open + 1, close - open - 1));
      sentence.remove_prefix(close + 1);
    }
  }
  return text;
}

/// `count` keys, no two alike: as many letters each as that many keys need. Letters before digits
/// are tokens of their own in every published tokenizer, so that no token is a pair.
std::vector<std::string> distinct_keys(Rng& rng, std::int64_t count) {
  std::size_t letters = 1;
  for (std::int64_t possible = 26; possible < count; possible *= 26) ++letters;
  std::vector<std::string> keys;
  std::set<std::string> taken;
  while (static_cast<std::int64_t>(keys.size()) < count) {
    std::string key;
    for (std::size_t i = 0; i < letters; ++i) key += static_cast<char>('a' + rng.below(26));
    if (taken.insert(key).second) keys.push_back(std::move(key));
  }
  return keys;
}

/// A first name that is not `taken` yet.
std::string new_name(Rng& rng, std::set<std::string>& taken) {
  while (true) {
    std::string name = first_name(rng, rng.below(2) == 0);
    if (taken.insert(name).second) return name;
  }
}

/// Appends that somebody lives somewhere; returns the byte where the home begins.
std::size_t tell_home(AskedDocument& document, std::string_view name, std::string_view home) {
  document.text += fmt::format("{} lives in the ", name);
  const std::size_t told = document.text.size();
  document.text += fmt::format("{}.", home);
  return told;
}

/// Appends an answer and marks it.
void add_answer(AskedDocument& document, std::string_view answer, std::size_t source) {
  const std::size_t begin = document.text.size();
  document.text += answer;
  document.answers.push_back({.begin = begin, .end = document.text.size(), .source = source});
}

/// Appends the question where somebody lives, and its answer.
void ask_home(AskedDocument& document, std::string_view name, std::string_view home,
              std::size_t told) {
  document.text += fmt::format("Question: Where does {} live?\nAnswer: In the ", name);
  add_answer(document, home, told);
  document.text += ".\n";
}

}  // namespace

Filler::Filler(std::string haystack) : haystack_(std::move(haystack)) {
  bool blank = true;  // the line before
  for (std::size_t line = 0; line < haystack_.size();) {
    const std::size_t end = std::min(haystack_.find('\n', line), haystack_.size());
    const std::size_t word = haystack_.find_first_not_of(kBlanks, line);
    if (word < end && blank) paragraphs_.push_back(word);
    blank = word >= end;
    line = end + 1;
  }
  check(!paragraphs_.empty(), "corpus: the haystack holds nothing but white space");
}

std::string Filler::passage(Rng& rng, std::size_t bytes) const {
  std::string text;
  for (std::size_t at = pick(rng, paragraphs_); text.size() < bytes; at = paragraphs_[0]) {
    if (!text.empty()) text += "\n\n";
    // To the end of the word that the last byte lies in.
    const std::size_t missing = bytes - std::min(bytes, text.size());
    std::size_t end = haystack_.find_first_of(kBlanks, std::min(at + missing, haystack_.size()));
    if (end == std::string::npos) end = haystack_.find_last_not_of(kBlanks) + 1;
    text += std::string_view(haystack_).substr(at, end - at);
  }
  return text;
}

std::string Filler::operator()(Rng& rng, std::size_t bytes) const {
  return (haystack_.empty() ? sentences(rng, bytes) : passage(rng, bytes)) + '\n';
}

AskedDocument recall_document(Rng& rng, const FarDraw& draw) {
  struct Pair {
    std::string key;
    char digit = '0';
    std::size_t told = 0;  // byte of the digit
  };
  AskedDocument document;
  std::vector<Pair> pairs;
  for (std::string& key : distinct_keys(rng, draw.keys)) {
    document.text += (pairs.empty() ? "" : " ") + key;
    const char digit = static_cast<char>('0' + rng.below(10));
    pairs.push_back({std::move(key), digit, document.text.size()});
    document.text += digit;
  }
  document.text += '\n' + draw.filler(rng, draw.distance);
  for (std::int64_t round = 0; round < draw.asked; ++round) {
    shuffle(rng, pairs);
    for (const Pair& pair : pairs) {
      document.text += (document.answers.empty() ? "" : " ") + pair.key;
      add_answer(document, std::string_view(&pair.digit, 1), pair.told);
    }
  }
  document.text += '\n';
  return document;
}

AskedDocument copy_document(Rng& rng, const FarDraw& draw) {
  AskedDocument document{.text = "Say:", .answers = {}};
  struct Word {
    std::string text;
    std::size_t told = 0;
  };
  std::vector<Word> words;
  for (std::int64_t i = 0; i < draw.keys; ++i) {
    Word word{.text = {}, .told = document.text.size() + 1};
    for (int letter = 0; letter < 4; ++letter) word.text += static_cast<char>('a' + rng.below(26));
    document.text += ' ' + word.text;
    words.push_back(std::move(word));
  }
  document.text += '\n' + draw.filler(rng, draw.distance) + "Say:";
  for (const Word& word : words) {
    document.text += ' ';
    add_answer(document, word.text, word.told);
  }
  document.text += '\n';
  return document;
}

AskedDocument lookup_document(Rng& rng, const FarDraw& draw) {
  struct Fact {
    std::string name;
    Text home;
    std::size_t told = 0;  // byte of the home
  };
  AskedDocument document;
  std::vector<Fact> facts;
  std::set<std::string> taken;
  while (static_cast<std::int64_t>(facts.size()) < draw.keys) {
    std::string name = new_name(rng, taken);
    const Text home = pick(rng, tales("buildings"));
    if (!facts.empty()) document.text += ' ';
    const std::size_t told = tell_home(document, name, home);
    facts.push_back({std::move(name), home, told});
  }
  document.text += '\n' + draw.filler(rng, draw.distance);
  // Whoever is not asked for is there to be mistaken for those who are.
  shuffle(rng, facts);
  facts.resize((facts.size() + 1) / 2);
  for (const Fact& fact : facts) ask_home(document, fact.name, fact.home, fact.told);
  return document;
}

AskedDocument chain_document(Rng& rng, const FarDraw& draw) {
  struct Chain {
    Text home;
    std::string last;      // the last person
    std::size_t told = 0;  // byte of the home
  };
  AskedDocument document;
  std::vector<Chain> chains;
  std::set<std::string> taken;
  while (chains.size() < 2) {
    const Text home = pick(rng, tales("buildings"));
    if (!chains.empty() && home == chains[0].home) continue;
    std::string name = new_name(rng, taken);
    const std::size_t told = tell_home(document, name, home);
    chains.push_back({.home = home, .last = std::move(name), .told = told});
    document.text += chains.size() < 2 ? ' ' : '\n';
  }
  const auto people = static_cast<std::size_t>(draw.keys);
  for (std::size_t person = 1; person < people; ++person) {
    document.text += draw.filler(rng, draw.distance / people);
    shuffle(rng, chains);
    for (Chain& chain : chains) {
      const std::string name = new_name(rng, taken);
      document.text +=
          fmt::format("{}{} lives with {}.", &chain == chains.data() ? "" : " ", name, chain.last);
      chain.last = name;
    }
    document.text += '\n';
  }
  document.text += draw.filler(rng, draw.distance - draw.distance / people * (people - 1));
  shuffle(rng, chains);
  for (const Chain& chain : chains) ask_home(document, chain.last, chain.home, chain.told);
  return document;
}

}  // namespace focus::corpus
