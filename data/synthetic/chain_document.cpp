#include <fmt/format.h>

#include <set>

#include "data/synthetic/corpus_draws.h"
#include "data/synthetic/far_documents.h"

namespace focus::corpus {

AskedDocument chain_document(Rng& rng, const FarDraw& draw) {
  struct Chain {
    Text home;
    std::string last;      // who was told of last
    std::size_t told = 0;  // where the home stands
  };
  AskedDocument document;
  std::vector<Chain> chains;
  std::set<std::string> taken;
  while (chains.size() < 2) {
    const Text home = pick(rng, kBuildings);
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
