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
  const auto new_name = [&] {
    while (true) {
      std::string name = first_name(rng, rng.below(2) == 0);
      if (taken.insert(name).second) return name;
    }
  };
  while (chains.size() < 2) {
    const Text home = pick(rng, kBuildings);
    if (!chains.empty() && home == chains[0].home) continue;
    chains.push_back({.home = home, .last = new_name()});
    document.text += fmt::format("{} lives in the ", chains.back().last);
    chains.back().told = document.text.size();
    document.text += fmt::format("{}.{}", home, chains.size() < 2 ? " " : "\n");
  }
  const auto people = static_cast<std::size_t>(draw.keys);
  for (std::size_t person = 1; person < people; ++person) {
    document.text += draw.filler(rng, draw.distance / people);
    shuffle(rng, chains);
    for (Chain& chain : chains) {
      const std::string name = new_name();
      document.text +=
          fmt::format("{}{} lives with {}.", &chain == chains.data() ? "" : " ", name, chain.last);
      chain.last = name;
    }
    document.text += '\n';
  }
  document.text += draw.filler(rng, draw.distance - draw.distance / people * (people - 1));
  shuffle(rng, chains);
  for (const Chain& chain : chains) {
    document.text += fmt::format("Question: Where does {} live?\nAnswer: In the ", chain.last);
    add_answer(document, chain.home, chain.told);
    document.text += ".\n";
  }
  return document;
}

}  // namespace focus::corpus
