#include <fmt/format.h>

#include <set>

#include "data/synthetic/corpus_draws.h"
#include "data/synthetic/far_documents.h"

namespace focus::corpus {

AskedDocument lookup_document(Rng& rng, const FarDraw& draw) {
  struct Fact {
    std::string name;
    Text home;
    std::size_t told = 0;  // where the home stands
  };
  AskedDocument document;
  std::vector<Fact> facts;
  std::set<std::string> taken;
  while (static_cast<std::int64_t>(facts.size()) < draw.keys) {
    std::string name = first_name(rng, rng.below(2) == 0);
    if (!taken.insert(name).second) continue;
    const Text home = pick(rng, kBuildings);
    document.text += fmt::format("{}{} lives in the ", facts.empty() ? "" : " ", name);
    facts.push_back({std::move(name), home, document.text.size()});
    document.text += fmt::format("{}.", home);
  }
  document.text += '\n' + draw.filler(rng, draw.distance);
  // Whoever is not asked for is there to be mistaken for those who are.
  shuffle(rng, facts);
  facts.resize((facts.size() + 1) / 2);
  for (const Fact& fact : facts) {
    document.text += fmt::format("Question: Where does {} live?\nAnswer: In the ", fact.name);
    add_answer(document, fact.home, fact.told);
    document.text += ".\n";
  }
  return document;
}

}  // namespace focus::corpus
