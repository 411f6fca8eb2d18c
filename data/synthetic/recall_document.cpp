#include <set>

#include "data/synthetic/corpus_draws.h"
#include "data/synthetic/far_documents.h"

namespace focus::corpus {
namespace {

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

}  // namespace

AskedDocument recall_document(Rng& rng, const FarDraw& draw) {
  struct Pair {
    std::string key;
    char digit = '0';
    std::size_t told = 0;  // where the digit stands
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

}  // namespace focus::corpus
