#include "data/synthetic/far_corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "autograd/base/check.h"
#include "autograd/base/random.h"
#include "data/files/json_reader.h"
#include "data/synthetic/tales.inc"
#include "data/text/text.h"

namespace focus {
namespace {

using Text = std::string_view;
using Sections = std::map<Text, std::vector<Text>>;

Text trimmed(Text text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

Sections read_sections(Text text) {
  Sections sections;
  std::vector<Text>* entries = nullptr;
  while (!text.empty()) {
    const Text line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[') {
      entries = &sections[line.substr(1, line.size() - 2)];
      continue;
    }
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t end = std::min(line.find('|', begin), line.size());
      entries->push_back(trimmed(line.substr(begin, end - begin)));
      begin = end + 1;
    }
  }
  return sections;
}

const Sections& sections() {
  static const Sections kSections = read_sections(kTales);
  return kSections;
}

/// The entries of a section of tales.txt. Throws std::out_of_range without such a section.
const std::vector<Text>& section(Text name) { return sections().at(name); }

template <class T>
const T& pick(Rng& rng, const std::vector<T>& items) {
  return items[rng.below(items.size())];
}

template <class T>
void shuffle(Rng& rng, std::vector<T>& items) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[rng.below(i)]);
}

/// One word of each section.
std::string draw_parts(Rng& rng, std::initializer_list<Text> names) {
  std::string text;
  for (const Text name : names) text += pick(rng, section(name));
  return text;
}

std::string first_name(Rng& rng, bool female) {
  return draw_parts(rng, {"first_starts", "first_middles", female ? "female_ends" : "male_ends"});
}

/// A word for a slot that has a section of its own.
std::optional<Text> small_word(Rng& rng, Text slot) {
  const auto found = sections().find(fmt::format("{{{}}}", slot));
  if (found == sections().end()) return std::nullopt;
  return pick(rng, found->second);
}

/// The text with a word for each {slot}, or nothing where one has none.
std::optional<std::string> fill_slots(Text text,
                                      const std::function<std::optional<Text>(Text)>& word) {
  std::string filled;
  while (true) {
    const std::size_t open = text.find('{');
    filled += text.substr(0, open);
    if (open == Text::npos) return filled;
    const std::size_t close = text.find('}', open);
    const std::optional<Text> value = word(text.substr(open + 1, close - open - 1));
    if (!value) return std::nullopt;
    filled += *value;
    text.remove_prefix(close + 1);
  }
}

/// What is known of a person: the slots that sentences about him or her may use.
using Person = std::map<std::string, std::string, std::less<>>;

std::string with_article(const std::string& noun) {
  const bool vowel = std::string_view("aeiou").find(noun[0]) != std::string_view::npos;
  // "one-eyed" is spoken with a w.
  return fmt::format("{} {}", vowel && !noun.starts_with("one") ? "an" : "a", noun);
}

std::string number_between(Rng& rng, std::uint64_t low, std::uint64_t high) {
  return fmt::format("{}", low + rng.below(high - low + 1));
}

Person make_person(Rng& rng) {
  Person person;
  const bool female = rng.below(2) == 0;
  const std::string first = first_name(rng, female);
  const std::string last = draw_parts(rng, {"surname_starts", "surname_middles", "surname_ends"});
  person["first"] = first;
  person["full"] = fmt::format("{} {}", first, last);
  person["sir"] = fmt::format("{} {}", female ? "Mrs" : "Mr", last);
  person["he"] = female ? "she" : "he";
  person["He"] = female ? "She" : "He";
  person["him"] = female ? "her" : "him";
  person["his"] = female ? "her" : "his";
  person["His"] = female ? "Her" : "His";
  person["job"] = pick(rng, section("jobs"));
  person["a_job"] = with_article(person["job"]);
  person["town"] = draw_parts(rng, {"town_starts", "town_ends"});
  return person;
}

/// One kind of fact: gives the person its slots, and has sections of sentences to tell it and to
/// ask for it.
struct FactKind {
  void (*add)(Rng&, Person&);
  Text tell, ask;
};

const std::array<FactKind, 5> kOptionalFacts = {{
    {[](Rng& rng, Person& person) {
       person["thing"] = pick(rng, section("materials"));
       (person["thing"] += " ") += pick(rng, section("objects"));
       person["spot"] = pick(rng, section("hiding_places"));
       (person["spot"] += " in the ") += pick(rng, section("buildings"));
     },
     "tell_thing", "ask_thing"},
    {[](Rng& rng, Person& person) {
       person["house"] = number_between(rng, 2, 99);
       person["street"] = pick(rng, section("street_starts"));
       (person["street"] += " ") += pick(rng, section("street_ends"));
     },
     "tell_house", "ask_house"},
    {[](Rng& rng, Person& person) { person["year"] = number_between(rng, 1702, 1889); },
     "tell_year", "ask_year"},
    {[](Rng& rng, Person& person) {
       const std::string coat(pick(rng, section("coats")));
       person["animal"] = pick(rng, section("animals"));
       person["a_pet"] = with_article(coat + " " + person["animal"]);
       person["pet"] = first_name(rng, rng.below(2) == 0);
     },
     "tell_pet", "ask_pet"},
    {[](Rng& rng, Person& person) { person["coins"] = number_between(rng, 12, 980); }, "tell_debt",
     "ask_debt"},
}};

/// Writes one document. The templates are dealt like cards, so that none comes twice before all
/// the others that fit have come.
class Writer {
 public:
  explicit Writer(Rng& rng) : rng_(rng) {}

  std::string write() {
    cast_people();
    const std::string opening = write_opening();
    const std::string ending = write_ending();
    const std::size_t around = opening.size() + ending.size();

    const std::size_t wanted = 1500 + rng_.below(kMostBytes - kParagraph - 1500 + 1);
    std::string body;
    while (body.size() < kMinBody || around + body.size() < wanted) {
      const std::string paragraph = write_paragraph();
      if (body.size() >= kMinBody && around + body.size() + paragraph.size() > kMostBytes) break;
      body += paragraph;
    }
    return opening + body + ending;
  }

 private:
  static constexpr std::size_t kMostBytes = 4000;
  static constexpr std::size_t kParagraph = 700;  // one is shorter than that
  static constexpr std::size_t kMinBody = 400;    // keeps questions away from the opening

  /// Two or three people with two or three optional facts each; nothing that a question asks for
  /// belongs to two of them.
  void cast_people() {
    const std::size_t count = 2 + rng_.below(2);
    while (people_.size() < count) {
      Person person = make_person(rng_);
      std::vector<FactKind> kinds(kOptionalFacts.begin(), kOptionalFacts.end());
      shuffle(rng_, kinds);
      kinds.resize(2 + rng_.below(4 - count));
      for (const FactKind& kind : kinds) kind.add(rng_, person);
      if (std::ranges::any_of(people_, [&](const Person& p) { return collide(p, person); }))
        continue;
      people_.push_back(std::move(person));
      told_.push_back(std::move(kinds));
    }
    for (std::size_t i = 0; i < count; ++i) {
      people_[i]["creditor"] = after(i).at("first");
      people_[i]["full_creditor"] = after(i).at("full");
    }
  }

  static bool collide(const Person& a, const Person& b) {
    static constexpr auto kUnique =
        std::to_array<Text>({"first", "full", "job", "town", "thing", "spot", "house", "year",
                             "pet", "animal", "coins"});
    return std::ranges::any_of(kUnique, [&](Text slot) {
      const auto in_a = a.find(slot), in_b = b.find(slot);
      return in_a != a.end() && in_b != b.end() && in_a->second == in_b->second;
    });
  }

  /// The person that many places after i, in a circle.
  const Person& after(std::size_t i, std::size_t places = 1) const {
    return people_[(i + places) % people_.size()];
  }

  std::optional<std::string> fill(Text text, const Person& first, const Person& second) {
    return fill_slots(text, [&](Text slot) -> std::optional<Text> {
      if (const auto word = small_word(rng_, slot)) return word;
      const Person& person = slot.ends_with('2') ? second : first;
      if (slot.ends_with('2')) slot.remove_suffix(1);
      const auto found = person.find(slot);
      if (found == person.end()) return std::nullopt;
      return found->second;
    });
  }

  /// The next sentence of the deck that fits the two, put back at the bottom.
  std::string deal(Text name, const Person& first, const Person& second) {
    std::vector<Text>& cards = decks_[name];
    if (cards.empty()) {
      cards = section(name);
      shuffle(rng_, cards);
    }
    for (std::size_t i = 0; i < cards.size(); ++i) {
      const std::optional<std::string> text = fill(cards[i], first, second);
      if (!text) continue;
      std::rotate(cards.begin() + static_cast<std::ptrdiff_t>(i),
                  cards.begin() + static_cast<std::ptrdiff_t>(i) + 1, cards.end());
      return *text;
    }
    return "";
  }

  std::string write_opening() {
    std::string text = deal("titles", people_[0], people_[1]) + "\n\n";
    for (std::size_t i = 0; i < people_.size(); ++i) {
      const Person &person = people_[i], &other = after(i);
      text += deal("tell_person", person, other);
      for (const FactKind& kind : told_[i]) (text += ' ') += deal(kind.tell, person, other);
      text += "\n\n";
    }
    return text;
  }

  /// A question for every fact, in an order of their own.
  std::string write_ending() {
    std::vector<std::string> pairs;
    for (std::size_t i = 0; i < people_.size(); ++i) {
      const Person &person = people_[i], &other = after(i);
      pairs.push_back(ask("ask_person", person, other));
      for (const FactKind& kind : told_[i]) pairs.push_back(ask(kind.ask, person, other));
    }
    shuffle(rng_, pairs);
    std::string text;
    for (const std::string& pair : pairs) text += pair;
    return text;
  }

  std::string ask(Text name, const Person& person, const Person& other) {
    const std::vector<Text>& entries = section(name);  // questions, each before its answer
    const std::size_t question = 2 * rng_.below(entries.size() / 2);
    const std::optional<std::string> asked = fill(entries[question], person, other);
    const std::optional<std::string> answered = fill(entries[question + 1], person, other);
    check(asked && answered, "corpus: no fact fits \"{}\"", entries[question]);
    return fmt::format("Question: {}\nAnswer: {}\n", *asked, *answered);
  }

  std::string write_paragraph() {
    const std::size_t i = rng_.below(people_.size());
    const Person &person = people_[i], &other = after(i, 1 + rng_.below(people_.size() - 1));
    std::string text = deal("events", person, other);
    const std::size_t sentences = 2 + rng_.below(4);
    for (std::size_t n = 0; n < sentences; ++n) {
      static constexpr std::array<Text, 8> kSections = {
          "fillers", "fillers",       "dialogues",     "recalls",
          "recalls", "continuations", "continuations", "continuations"};
      (text += ' ') += deal(kSections[rng_.below(8)], person, other);
    }
    return text + "\n\n";
  }

  Rng& rng_;
  std::vector<Person> people_;
  std::vector<std::vector<FactKind>> told_;  // of each person
  std::map<Text, std::vector<Text>> decks_;  // by section
};

/// Short invented tales in plain ASCII English, of 1,500 to 4,000 bytes each. Each opens with two
/// or three people whose names, towns, belongings, hiding places, house numbers and years are
/// invented, needs them all the way down, and ends with questions about them. The grammar is
/// quickly learnt; beyond it only attention to far earlier text helps.
std::vector<std::string> tell_tales(std::uint64_t seed, std::int64_t count) {
  Rng rng(seed);
  std::vector<std::string> tales;
  for (std::int64_t i = 0; i < count; ++i) tales.push_back(Writer(rng).write());
  return tales;
}

/// Sentences of the tales that tell nothing, at least so many bytes, and a line break.
std::string filler(Rng& rng, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    if (!text.empty()) text += ' ';
    const auto word = [&](Text slot) { return small_word(rng, slot); };
    text += fill_slots(pick(rng, section("fillers")), word).value();
  }
  return text + '\n';
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

AskedDocument recall_document(Rng& rng, std::int64_t keys, std::size_t distance) {
  AskedDocument document;
  std::vector<Fact> pairs;
  for (std::string& key : distinct_keys(rng, keys)) {
    document.text += (pairs.empty() ? "" : " ") + key;
    std::string digit(1, static_cast<char>('0' + rng.below(10)));
    pairs.push_back({std::move(key), digit, document.text.size()});
    document.text += digit;
  }
  document.text += '\n' + filler(rng, distance);
  shuffle(rng, pairs);
  for (const Fact& pair : pairs) {
    document.text += (document.answers.empty() ? "" : " ") + pair.name;
    add_answer(document, pair);
  }
  document.text += '\n';
  return document;
}

AskedDocument copy_document(Rng& rng, std::int64_t count, std::size_t distance) {
  AskedDocument document{.text = "Say:", .answers = {}};
  std::vector<Fact> words;
  for (std::int64_t i = 0; i < count; ++i) {
    words.push_back({"", random_letters(rng, 4), document.text.size() + 1});
    document.text += ' ' + words.back().answer;
  }
  document.text += '\n' + filler(rng, distance) + "Say:";
  for (const Fact& word : words) {
    document.text += ' ';
    add_answer(document, word);
  }
  document.text += '\n';
  return document;
}

/// Spreads the share of documents of the kind evenly over documents 0, 1, 2, ...
bool is_of_kind(std::int64_t document, double share) {
  const auto before = [&](std::int64_t n) { return std::floor(static_cast<double>(n) * share); };
  return before(document + 1) > before(document);
}

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
  const double share = options.kind == CorpusKind::tales ? 0 : options.share;
  std::int64_t tales = 0;
  for (std::int64_t i = 0; i < options.documents; ++i) tales += is_of_kind(i, share) ? 0 : 1;
  std::vector<std::string> told = tell_tales(options.seed, tales);
  std::vector<AskedDocument> documents;
  Rng rng(options.seed);
  auto tale = told.begin();
  for (std::int64_t i = 0; i < options.documents; ++i) {
    if (!is_of_kind(i, share)) {
      documents.push_back({.text = std::move(*tale++), .answers = {}});
      continue;
    }
    const auto distance = static_cast<std::size_t>(pick(rng, options.distance));
    // One number is not drawn: its documents are what they were when there was no list.
    const auto keys = options.keys.size() == 1 ? options.keys[0] : pick(rng, options.keys);
    documents.push_back((options.kind == CorpusKind::recall ? recall_document : copy_document)(
        rng, keys, distance));
  }
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
