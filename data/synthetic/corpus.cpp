#include "data/synthetic/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "autograd/base/check.h"
#include "data/synthetic/corpus_draws.h"

namespace focus {
namespace {

using corpus::first_name;
using corpus::join_parts;
using corpus::pick;
using corpus::Question;
using corpus::shuffle;
using corpus::Text;

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
  const std::string last =
      join_parts(rng, corpus::kSurnameStarts, corpus::kSurnameMiddles, corpus::kSurnameEnds);
  person["first"] = first;
  person["full"] = fmt::format("{} {}", first, last);
  person["sir"] = fmt::format("{} {}", female ? "Mrs" : "Mr", last);
  person["he"] = female ? "she" : "he";
  person["He"] = female ? "She" : "He";
  person["him"] = female ? "her" : "him";
  person["his"] = female ? "her" : "his";
  person["His"] = female ? "Her" : "His";
  person["job"] = pick(rng, corpus::kJobs);
  person["a_job"] = with_article(person["job"]);
  person["town"] = join_parts(rng, corpus::kTownStarts, corpus::kTownEnds);
  return person;
}

/// One kind of fact: gives the person its slots, and has sentences to tell it and to ask for it.
struct FactKind {
  std::function<void(Rng&, Person&)> add;
  std::span<const Text> tell;
  std::span<const Question> ask;
  std::vector<Text> slots;  // what an answer has to copy
};

const std::vector<FactKind>& optional_facts() {
  static const std::vector<FactKind> kinds = {
      {[](Rng& rng, Person& person) {
         person["thing"] = join_parts(rng, corpus::kMaterials, " ", corpus::kObjects);
         person["spot"] = join_parts(rng, corpus::kHidingPlaces, " in the ", corpus::kBuildings);
       },
       corpus::kTellThing,
       corpus::kAskThing,
       {"thing", "spot"}},
      {[](Rng& rng, Person& person) {
         person["house"] = number_between(rng, 2, 99);
         person["street"] = join_parts(rng, corpus::kStreetStarts, " ", corpus::kStreetEnds);
       },
       corpus::kTellHouse,
       corpus::kAskHouse,
       {"house", "street"}},
      {[](Rng& rng, Person& person) { person["year"] = number_between(rng, 1702, 1889); },
       corpus::kTellYear,
       corpus::kAskYear,
       {"year"}},
      {[](Rng& rng, Person& person) {
         const std::string coat(pick(rng, corpus::kCoats));
         person["animal"] = pick(rng, corpus::kAnimals);
         person["a_pet"] = with_article(coat + " " + person["animal"]);
         person["pet"] = first_name(rng, rng.below(2) == 0);
       },
       corpus::kTellPet,
       corpus::kAskPet,
       {"pet", "animal"}},
      {[](Rng& rng, Person& person) { person["coins"] = number_between(rng, 12, 980); },
       corpus::kTellDebt,
       corpus::kAskDebt,
       {"coins"}},
  };
  return kinds;
}

/// Writes one document. The templates are dealt like cards, so that none comes twice before all
/// the others that fit have come.
class Writer {
 public:
  Writer(Rng& rng, const CorpusOptions& options) : rng_(rng), options_(options) {}

  CorpusDocument write() {
    cast_people();
    const std::string opening = write_opening();
    const std::string ending = write_ending();
    const std::size_t around = opening.size() + ending.size();

    const std::size_t most_wanted = options_.max_bytes - 700;  // a paragraph is shorter than that
    const std::size_t wanted =
        options_.min_bytes + rng_.below(most_wanted - options_.min_bytes + 1);
    std::string body;
    while (body.size() < kMinBody || around + body.size() < wanted) {
      const std::string paragraph = write_paragraph();
      if (body.size() >= kMinBody && around + body.size() + paragraph.size() > options_.max_bytes)
        break;
      body += paragraph;
    }
    return {opening + body + ending, facts_};
  }

 private:
  static constexpr std::size_t kMinBody = 400;  // keeps questions away from the opening

  /// Two or three people with two or three optional facts each; nothing that a question asks for
  /// belongs to two of them.
  void cast_people() {
    const std::size_t count = 2 + rng_.below(2);
    while (people_.size() < count) {
      Person person = make_person(rng_);
      std::vector<const FactKind*> kinds;
      for (const FactKind& kind : optional_facts()) kinds.push_back(&kind);
      shuffle(rng_, kinds);
      kinds.resize(2 + rng_.below(4 - count));
      for (const FactKind* kind : kinds) kind->add(rng_, person);
      if (std::ranges::any_of(people_, [&](const Person& p) { return collide(p, person); }))
        continue;
      people_.push_back(std::move(person));
      told_.push_back(std::move(kinds));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Person& next = people_[(i + 1) % count];
      people_[i]["creditor"] = next.at("first");
      people_[i]["full_creditor"] = next.at("full");
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

  const Person& other_than(std::size_t i) {
    return people_[(i + 1 + rng_.below(people_.size() - 1)) % people_.size()];
  }

  /// The text with its slots filled, or nothing where it needs what is not known of a person.
  std::optional<std::string> fill(Text text, const Person& first, const Person& second) {
    std::string result;
    while (!text.empty()) {
      const std::size_t open = text.find('{');
      result += text.substr(0, open);
      if (open == Text::npos) break;
      const std::size_t close = text.find('}', open);
      const std::optional<Text> value =
          slot_value(text.substr(open + 1, close - open - 1), first, second);
      if (!value) return std::nullopt;
      result += *value;
      text.remove_prefix(close + 1);
    }
    return result;
  }

  std::optional<Text> slot_value(Text slot, const Person& first, const Person& second) {
    if (const Text word = corpus::small_word(rng_, slot); !word.empty()) return word;
    const Person& person = slot.ends_with('2') ? second : first;
    if (slot.ends_with('2')) slot.remove_suffix(1);
    const auto found = person.find(slot);
    if (found == person.end()) return std::nullopt;
    return found->second;
  }

  /// The next sentence of the deck that fits the two, put back at the bottom.
  std::string deal(std::span<const Text> templates, const Person& first, const Person& second) {
    std::vector<Text>& cards = decks_[templates.data()];
    if (cards.empty()) {
      cards.assign(templates.begin(), templates.end());
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
    std::string text = deal(corpus::kTitles, people_[0], people_[1]) + "\n\n";
    for (std::size_t i = 0; i < people_.size(); ++i) {
      const Person& person = people_[i];
      const Person& other = people_[(i + 1) % people_.size()];
      text += deal(corpus::kTellPerson, person, other);
      for (const FactKind* kind : told_[i])
        text += fmt::format(" {}", deal(kind->tell, person, other));
      text += "\n\n";
    }
    return text;
  }

  /// A question for every fact, in an order of their own.
  std::string write_ending() {
    std::vector<std::string> pairs;
    for (std::size_t i = 0; i < people_.size(); ++i) {
      const Person& person = people_[i];
      const Person& other = people_[(i + 1) % people_.size()];
      pairs.push_back(ask(corpus::kAskPerson, person, other));
      facts_.push_back(person.at("full"));
      facts_.push_back(person.at("town"));
      for (const FactKind* kind : told_[i]) {
        pairs.push_back(ask(kind->ask, person, other));
        for (const Text slot : kind->slots) facts_.push_back(person.at(std::string(slot)));
      }
    }
    shuffle(rng_, pairs);
    std::string text;
    for (const std::string& pair : pairs) text += pair;
    return text;
  }

  std::string ask(std::span<const Question> questions, const Person& person, const Person& other) {
    const Question& question = pick(rng_, questions);
    const std::optional<std::string> asked = fill(question.question, person, other);
    const std::optional<std::string> answered = fill(question.answer, person, other);
    check(asked && answered, "corpus: no fact fits \"{}\"", question.question);
    return fmt::format("Question: {}\nAnswer: {}\n", *asked, *answered);
  }

  std::string write_paragraph() {
    const std::size_t i = rng_.below(people_.size());
    const Person& person = people_[i];
    const Person& other = other_than(i);
    std::string text = deal(corpus::kEvents, person, other);
    const std::size_t sentences = 2 + rng_.below(4);
    for (std::size_t n = 0; n < sentences; ++n) {
      text += ' ';
      switch (rng_.below(8)) {
        case 0:
        case 1:
          text += deal(corpus::kFillers, person, other);
          break;
        case 2:
          text += deal(corpus::kDialogues, person, other);
          break;
        case 3:
        case 4:
          text += deal(corpus::kRecalls, person, other);
          break;
        default:
          text += deal(corpus::kContinuations, person, other);
          break;
      }
    }
    return text + "\n\n";
  }

  Rng& rng_;
  const CorpusOptions& options_;
  std::vector<Person> people_;
  std::vector<std::vector<const FactKind*>> told_;  // of each person
  std::vector<std::string> facts_;
  std::map<const Text*, std::vector<Text>> decks_;
};

}  // namespace

std::vector<CorpusDocument> generate_documents(const CorpusOptions& options) {
  check(options.documents >= 0, "corpus: documents must be 0 or more, got {}", options.documents);
  check(options.max_bytes >= 3500 && options.max_bytes - 1500 >= options.min_bytes,
        "corpus: max_bytes must be at least 3500 and min_bytes + 1500, got {} with min_bytes {}",
        options.max_bytes, options.min_bytes);
  Rng rng(options.seed);
  std::vector<CorpusDocument> documents;
  for (std::int64_t i = 0; i < options.documents; ++i)
    documents.push_back(Writer(rng, options).write());
  return documents;
}

std::string generate_corpus(const CorpusOptions& options) {
  std::string text;
  for (const CorpusDocument& document : generate_documents(options)) {
    if (!text.empty()) text += options.separator;
    text += document.text;
  }
  return text;
}

}  // namespace focus
