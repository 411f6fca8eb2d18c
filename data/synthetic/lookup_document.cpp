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
    std::string name = new_name(rng, taken);
    const Text home = pick(rng, kBuildings);
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

}  // namespace focus::corpus
