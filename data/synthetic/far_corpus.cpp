#include "data/synthetic/far_corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/synthetic/corpus.h"
#include "data/text/text.h"

namespace focus {
namespace {

using corpus::fill_slots;
using corpus::first_name;
using corpus::pick;
using corpus::section;
using corpus::shuffle;
using corpus::small_word;
using corpus::Text;

constexpr std::string_view kBlanks = " \t\r\n";

/// Sentences of the tales that tell nothing.
std::string sentences(Rng& rng, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    if (!text.empty()) text += ' ';
    const auto word = [&](Text slot) { return small_word(rng, slot); };
    text += fill_slots(pick(rng, section("fillers")), word).value();
  }
  return text;
}

std::string random_letters(Rng& rng, std::size_t count) {
  std::string letters;
  while (letters.size() < count) letters += static_cast<char>('a' + rng.below(26));
  return letters;
}

/// `count` keys, no two alike: as many letters each as that many keys need. Letters before digits
/// are tokens of their own in every published tokenizer, so that no token is a pair.
std::vector<std::string> distinct_keys(Rng& rng, std::int64_t count) {
  std::size_t letters = 1;
  for (std::int64_t possible = 26; possible < count; possible *= 26) ++letters;
  std::vector<std::string> keys;
  std::set<std::string> taken;
  while (std::ssize(keys) < count) {
    std::string key = random_letters(rng, letters);
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

/// The sentences between facts and questions: those of the tales without facts, or a passage of a
/// text (the haystack).
class Filler {
 public:
  Filler() = default;
  /// Throws std::invalid_argument where the text has no paragraph.
  explicit Filler(std::string haystack) : haystack_(std::move(haystack)) {
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

  /// At least so many bytes, then a line break; a line break alone where none are wanted.
  std::string operator()(Rng& rng, std::size_t bytes) const {
    return (haystack_.empty() ? sentences(rng, bytes) : passage(rng, bytes)) + '\n';
  }

 private:
  /// Begins with a paragraph, ends after a word and continues at the text's beginning after its
  /// end.
  std::string passage(Rng& rng, std::size_t bytes) const {
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

  std::string haystack_;
  std::vector<std::size_t> paragraphs_;  // where they begin
};

struct FarDraw {
  const Filler& filler;
  std::int64_t keys = 1;
  std::size_t distance = 0;  // bytes of filler, at least
  std::int64_t asked = 1;    // times that each key of recall is asked
};

/// What a document tells and asks for again: the asked name, its answer, the byte where that was
/// told.
struct Fact {
  std::string name, answer;
  std::size_t told = 0;
};

/// Appends an answer and marks it.
void add_answer(AskedDocument& document, const Fact& fact) {
  const std::size_t begin = document.text.size();
  document.text += fact.answer;
  document.answers.push_back({.begin = begin, .end = document.text.size(), .source = fact.told});
}

/// Appends that somebody lives in a building, as yet without a name.
Fact tell_home(AskedDocument& document, std::string name, Text home) {
  document.text += fmt::format("{} lives in the ", name);
  const std::size_t told = document.text.size();
  document.text += fmt::format("{}.", home);
  return {std::move(name), std::string(home), told};
}

/// Appends the question where somebody lives, and its answer.
void ask_home(AskedDocument& document, const Fact& fact) {
  document.text += fmt::format("Question: Where does {} live?\nAnswer: In the ", fact.name);
  add_answer(document, fact);
  document.text += ".\n";
}

AskedDocument recall_document(Rng& rng, const FarDraw& draw) {
  AskedDocument document;
  std::vector<Fact> pairs;
  for (std::string& key : distinct_keys(rng, draw.keys)) {
    document.text += (pairs.empty() ? "" : " ") + key;
    std::string digit(1, static_cast<char>('0' + rng.below(10)));
    pairs.push_back({std::move(key), digit, document.text.size()});
    document.text += digit;
  }
  document.text += '\n' + draw.filler(rng, draw.distance);
  for (std::int64_t round = 0; round < draw.asked; ++round) {
    shuffle(rng, pairs);
    for (const Fact& pair : pairs) {
      document.text += (document.answers.empty() ? "" : " ") + pair.name;
      add_answer(document, pair);
    }
  }
  document.text += '\n';
  return document;
}

AskedDocument copy_document(Rng& rng, const FarDraw& draw) {
  AskedDocument document{.text = "Say:", .answers = {}};
  std::vector<Fact> words;
  for (std::int64_t i = 0; i < draw.keys; ++i) {
    words.push_back({"", random_letters(rng, 4), document.text.size() + 1});
    document.text += ' ' + words.back().answer;
  }
  document.text += '\n' + draw.filler(rng, draw.distance) + "Say:";
  for (const Fact& word : words) {
    document.text += ' ';
    add_answer(document, word);
  }
  document.text += '\n';
  return document;
}

AskedDocument lookup_document(Rng& rng, const FarDraw& draw) {
  AskedDocument document;
  std::vector<Fact> facts;
  std::set<std::string> taken;
  while (std::ssize(facts) < draw.keys) {
    std::string name = new_name(rng, taken);
    const Text home = pick(rng, section("buildings"));
    if (!facts.empty()) document.text += ' ';
    facts.push_back(tell_home(document, std::move(name), home));
  }
  document.text += '\n' + draw.filler(rng, draw.distance);
  // Whoever is not asked for is there to be mistaken for those who are.
  shuffle(rng, facts);
  facts.resize((facts.size() + 1) / 2);
  for (const Fact& fact : facts) ask_home(document, fact);
  return document;
}

AskedDocument chain_document(Rng& rng, const FarDraw& draw) {
  AskedDocument document;
  std::vector<Fact> chains;  // by the name of the last person
  std::set<std::string> taken;
  while (chains.size() < 2) {
    const Text home = pick(rng, section("buildings"));
    if (!chains.empty() && home == chains[0].answer) continue;
    chains.push_back(tell_home(document, new_name(rng, taken), home));
    document.text += chains.size() < 2 ? ' ' : '\n';
  }
  const auto people = static_cast<std::size_t>(draw.keys);
  for (std::size_t person = 1; person < people; ++person) {
    document.text += draw.filler(rng, draw.distance / people);
    shuffle(rng, chains);
    for (Fact& chain : chains) {
      const std::string name = new_name(rng, taken);
      document.text +=
          fmt::format("{}{} lives with {}.", &chain == chains.data() ? "" : " ", name, chain.name);
      chain.name = name;
    }
    document.text += '\n';
  }
  document.text += draw.filler(rng, draw.distance - draw.distance / people * (people - 1));
  shuffle(rng, chains);
  for (const Fact& chain : chains) ask_home(document, chain);
  return document;
}

/// Spreads the share of documents of the kind evenly over documents 0, 1, 2, ...
bool is_of_kind(std::int64_t document, double share) {
  const auto before = [&](std::int64_t n) { return std::floor(static_cast<double>(n) * share); };
  return before(document + 1) > before(document);
}

/// Puts sentences before a document, cut where it begins, so that it has `length` bytes.
AskedDocument filled_up(Rng& rng, AskedDocument document, std::size_t length,
                        const Filler& filler) {
  check(document.text.size() <= length,
        "corpus: length is {}, but a generated document has {} bytes: expected a larger length, "
        "fewer keys or a smaller distance",
        length, document.text.size());
  const std::size_t missing = length - document.text.size();
  if (missing == 0) return document;
  std::string before = filler(rng, missing);
  before.erase(0, before.size() - missing);
  // No part of a character begins the text.
  for (char& byte : before) {
    if ((static_cast<unsigned char>(byte) & 0xC0U) != 0x80U) break;
    byte = ' ';
  }
  document.text.insert(0, before);
  for (Answer& answer : document.answers) {
    answer.begin += missing;
    answer.end += missing;
    answer.source += missing;
  }
  return document;
}

AskedDocument far_document(Rng& rng, const FarCorpusOptions& options, const Filler& filler) {
  const auto distance = static_cast<std::size_t>(pick(rng, options.distance));
  // One number is not drawn: its documents are what they were when there was no list.
  const std::int64_t keys = options.keys.size() == 1 ? options.keys[0] : pick(rng, options.keys);
  const FarDraw draw{.filler = filler, .keys = keys, .distance = distance, .asked = options.asked};
  constexpr std::array kKinds = {recall_document, copy_document, lookup_document, chain_document};
  AskedDocument document = kKinds.at(static_cast<std::size_t>(options.kind) - 1)(rng, draw);
  if (options.length == 0) return document;
  return filled_up(rng, std::move(document), static_cast<std::size_t>(options.length), filler);
}

}  // namespace

std::vector<AskedDocument> generate_far_documents(const FarCorpusOptions& options) {
  check(options.documents >= 0, "corpus: documents must be 0 or more, got {}", options.documents);
  check(options.share >= 0 && options.share <= 1, "corpus: share must be from 0 to 1, got {}",
        options.share);
  check(!options.keys.empty(), "corpus: keys is empty");
  for (const std::int64_t keys : options.keys)
    check(keys >= 1, "corpus: keys must be at least 1, got {}", keys);
  check(!options.distance.empty(), "corpus: distance is empty");
  for (const std::int64_t distance : options.distance)
    check(distance >= 0, "corpus: distance must be 0 or more, got {}", distance);
  check(options.asked >= 1, "corpus: asked must be at least 1, got {}", options.asked);
  check(options.length >= 0, "corpus: length must be 0 or more, got {}", options.length);
  const double share = options.kind == CorpusKind::tales ? 0 : options.share;
  check(options.length == 0 || share == 1,
        "corpus: length is {}, but the length of tales cannot be set: expected share 1 and a kind "
        "other than tales, or length 0",
        options.length);
  check(options.haystack.empty() || options.kind != CorpusKind::tales,
        "corpus: tales take nothing from haystack \"{}\": expected another kind, or none",
        options.haystack);
  std::int64_t tales = 0;
  for (std::int64_t i = 0; i < options.documents; ++i) tales += is_of_kind(i, share) ? 0 : 1;
  std::vector<std::string> told = corpus::tell_tales(options.seed, tales);
  const Filler filler =
      options.haystack.empty() ? Filler() : Filler(read_document_file(options.haystack));
  std::vector<AskedDocument> documents;
  Rng rng(options.seed);
  auto tale = told.begin();
  for (std::int64_t i = 0; i < options.documents; ++i)
    documents.push_back(is_of_kind(i, share)
                            ? far_document(rng, options, filler)
                            : AskedDocument{.text = std::move(*tale++), .answers = {}});
  return documents;
}

std::string joined_texts(const std::vector<AskedDocument>& documents, std::string_view separator) {
  std::string text;
  for (const AskedDocument& document : documents) {
    if (!text.empty()) text += separator;
    text += document.text;
  }
  return text;
}

namespace {

AskedDocument read_question(std::string_view line, const std::string& where) {
  const nlohmann::json json = parse_strict_json(line, where);
  const JsonView view(json, where);
  AskedDocument document{.text = view.at("text").string(), .answers = {}};
  const auto limit = static_cast<std::int64_t>(document.text.size()) + 1;
  const JsonView answers = view.at("answers");
  for (std::size_t i = 0; i < answers.array_size(); ++i) {
    const JsonView item = answers.item(i);
    const auto byte = [&](const char* key) {
      return static_cast<std::size_t>(item.at(key).integer(limit));
    };
    const Answer answer{.begin = byte("begin"), .end = byte("end"), .source = byte("source")};
    if (answer.begin >= answer.end || answer.source >= answer.begin)
      fail("{}: bytes {} to {} with their source at {}: expected source < begin < end",
           item.where(), answer.begin, answer.end, answer.source);
    document.answers.push_back(answer);
  }
  if (document.answers.empty()) fail("{}: has no question: answers is empty", where);
  return document;
}

}  // namespace

std::string questions_jsonl(std::span<const AskedDocument> documents) {
  std::string lines;
  for (const AskedDocument& document : documents) {
    if (document.answers.empty()) continue;
    auto answers = nlohmann::ordered_json::array();
    for (const Answer& answer : document.answers)
      answers.push_back({{"begin", answer.begin}, {"end", answer.end}, {"source", answer.source}});
    lines +=
        nlohmann::ordered_json({{"text", document.text}, {"answers", std::move(answers)}}).dump() +
        "\n";
  }
  return lines;
}

std::vector<AskedDocument> read_questions(std::string_view jsonl, const std::string& where) {
  std::vector<AskedDocument> documents;
  for_each_row(jsonl, [&](std::string_view text, std::size_t line) {
    documents.push_back(read_question(text, fmt::format("{}, line {}", where, line)));
  });
  if (documents.empty()) fail("{}: no document has a question", where);
  return documents;
}

}  // namespace focus
