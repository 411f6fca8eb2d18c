#include "data/tokenizers/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>
#include <unordered_map>

#include "autograd/base/check.h"
#include "data/files/utf8.h"
#include "data/text/text.h"
#include "data/tokenizers/flat_map.h"
#include "data/tokenizers/tokenizer_config.h"
#include "data/tokenizers/tokenizer_steps.h"

namespace focus {
namespace {

using nlohmann::ordered_json;

struct Pair {
  std::uint32_t left = 0;
  std::uint32_t right = 0;
  std::uint64_t key() const { return (static_cast<std::uint64_t>(left) << 32) | right; }
  static Pair of(std::uint64_t key) {
    return {static_cast<std::uint32_t>(key >> 32), static_cast<std::uint32_t>(key)};
  }
};

/// The words of a text as tokens, and the pairs of neighbours in them.
class PairCounter {
 public:
  void add_word(std::span<const std::uint32_t> tokens, std::int64_t count) {
    words_.push_back({tokens_.size(), tokens.size(), count});
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
      change({tokens[i], tokens[i + 1]}, count, words_.size() - 1);
  }

  /// Pairs that have appeared since the last call, each with the words it appeared in.
  using NewPairs = std::unordered_map<std::uint64_t, std::vector<std::uint32_t>>;
  NewPairs take_new_pairs() { return std::exchange(new_pairs_, {}); }

  std::int64_t count(std::uint64_t pair) const {
    const std::int64_t* count = counts_.find(pair);
    return count == nullptr ? 0 : *count;
  }

  /// Makes `merged` of every such pair in a word, from the left.
  void merge(Pair pair, std::uint32_t merged, std::uint32_t word_index) {
    Word& word = words_[word_index];
    std::uint32_t* tokens = tokens_.data() + word.begin;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < word.size; ++i) {
      if (i + 1 == word.size || tokens[i] != pair.left || tokens[i + 1] != pair.right) {
        tokens[kept++] = tokens[i];
        continue;
      }
      if (kept > 0) {
        change({tokens[kept - 1], pair.left}, -word.count, word_index);
        change({tokens[kept - 1], merged}, word.count, word_index);
      }
      if (i + 2 < word.size) {
        change({pair.right, tokens[i + 2]}, -word.count, word_index);
        change({merged, tokens[i + 2]}, word.count, word_index);
      }
      tokens[kept++] = merged;
      ++i;
    }
    word.size = kept;
  }

 private:
  struct Word {
    std::size_t begin = 0;  // in tokens_
    std::size_t size = 0;
    std::int64_t count = 0;
  };

  void change(Pair pair, std::int64_t count, std::size_t word_index) {
    counts_[pair.key()] += count;
    if (count <= 0) return;
    const auto word = static_cast<std::uint32_t>(word_index);
    std::vector<std::uint32_t>& words = new_pairs_[pair.key()];
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  std::vector<std::uint32_t> tokens_;
  std::vector<Word> words_;
  FlatMap<std::int64_t> counts_;  // by pair
  NewPairs new_pairs_;
};

struct Candidate {
  std::int64_t count = 0;
  std::uint64_t pair = 0;
  std::uint64_t number = 0;  // of its making: decides between candidates of one pair
  std::vector<std::uint32_t> words;

  /// The most frequent pair comes out of the queue first, of equals the one with the smaller ids.
  bool operator<(const Candidate& other) const {
    return std::tuple(count, other.pair, other.number) < std::tuple(other.count, pair, number);
  }
};

/// The special token before every text: what models that are trained with it see.
ordered_json template_with(const std::string& special) {
  const ordered_json token = {{"SpecialToken", {{"id", special}, {"type_id", 0}}}};
  const auto text = [](const char* id) {
    return ordered_json{{"Sequence", {{"id", id}, {"type_id", 0}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", ordered_json::array({token, text("A")})},
          {"pair", ordered_json::array({token, text("A"), token, text("B")})},
          {"special_tokens",
           {{special,
             {{"id", special},
              {"ids", ordered_json::array({0})},
              {"tokens", ordered_json::array({special})}}}}}};
}

}  // namespace

BpeTrainer::BpeTrainer(BpeTrainerOptions options) : options_(std::move(options)) {
  check(!options_.special_token.empty(), "BPE training: the special token is empty");
  constexpr std::int32_t kSmallest = 257;
  check(options_.vocab_size >= kSmallest && options_.vocab_size <= kMaxIds,
        "BPE training: the vocabulary size is {}: it must be from {} (the special token and 256 "
        "bytes) to {}",
        options_.vocab_size, kSmallest, kMaxIds);
}

void BpeTrainer::add(std::string_view text) {
  const std::string valid = replace_invalid_utf8(text);
  const Pattern words = gpt2_pattern();
  for (const std::string_view document : split_documents(valid, options_.special_token)) {
    words.for_each_part(document, [&](std::string_view word, bool) {
      ++words_;
      const auto found = counts_.find(word);
      if (found != counts_.end())
        ++found->second;
      else
        counts_.emplace(word, 1);
    });
  }
}

BpeTrainer::Model BpeTrainer::train(const std::function<void(std::int32_t)>& on_token) const {
  Model model;
  Bpe::Vocabulary ids;
  const auto id_of = [&](const std::string& token) {
    const auto [place, is_new] = ids.emplace(token, static_cast<std::int32_t>(model.tokens.size()));
    if (is_new) {
      model.tokens.push_back(token);
      if (on_token) on_token(static_cast<std::int32_t>(model.tokens.size()));
    }
    return static_cast<std::uint32_t>(place->second);
  };
  id_of(options_.special_token);
  const ByteAlphabet& alphabet = ByteAlphabet::instance();
  std::array<std::uint32_t, 256> byte_ids{};
  for (const std::string& character : alphabet.sorted())
    byte_ids[static_cast<unsigned char>(alphabet.decode(character)[0])] = id_of(character);

  PairCounter pairs;
  std::vector<std::uint32_t> tokens;
  for (const auto& [word, count] : counts_) {
    tokens.clear();
    for (const char byte : word) tokens.push_back(byte_ids[static_cast<unsigned char>(byte)]);
    pairs.add_word(tokens, count);
  }

  std::vector<Candidate> queue;  // a heap
  const auto enqueue = [&](Candidate candidate) {
    queue.push_back(std::move(candidate));
    std::push_heap(queue.begin(), queue.end());
  };
  std::uint64_t made = 0;
  const auto queue_new_pairs = [&] {
    for (auto& [pair, words] : pairs.take_new_pairs()) {
      const std::int64_t count = pairs.count(pair);
      if (count > 0) enqueue({count, pair, made, std::move(words)});
    }
    ++made;
  };
  queue_new_pairs();
  const std::int64_t enough = std::max<std::int64_t>(1, options_.min_frequency);
  std::unordered_map<std::uint64_t, std::uint64_t> ranks;  // a pair's latest place in the list
  std::vector<std::uint64_t> order;
  while (static_cast<std::int32_t>(model.tokens.size()) < options_.vocab_size && !queue.empty()) {
    std::pop_heap(queue.begin(), queue.end());
    Candidate best = std::move(queue.back());
    queue.pop_back();
    const std::int64_t count = pairs.count(best.pair);
    if (count != best.count) {  // merges since then took some of them, or added some
      best.count = count;
      if (count > 0) enqueue(std::move(best));
      continue;
    }
    if (best.count < enough) break;
    const Pair pair = Pair::of(best.pair);
    const std::uint32_t merged = id_of(model.tokens[pair.left] + model.tokens[pair.right]);
    ranks[best.pair] = order.size();
    order.push_back(best.pair);
    for (const std::uint32_t word : best.words) pairs.merge(pair, merged, word);
    queue_new_pairs();
  }
  // A token that two pairs lead to creates its pairs each time, and these come up twice.
  // What counts is the last time, as in the reference implementation.
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    if (ranks.at(order[rank]) != rank) continue;
    const Pair pair = Pair::of(order[rank]);
    model.merges.emplace_back(model.tokens[pair.left], model.tokens[pair.right]);
  }
  return model;
}

std::string BpeTrainer::tokenizer_json(const Model& model) const {
  ordered_json vocabulary = ordered_json::object();
  auto& members = vocabulary.get_ref<ordered_json::object_t&>();
  for (std::size_t id = 0; id < model.tokens.size(); ++id)
    members.push_back({model.tokens[id], id});  // not [], which would look through all before
  ordered_json file = ordered_json::parse(kByteLevelFile);
  file["added_tokens"].push_back({{"id", 0},
                                  {"content", options_.special_token},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", true}});
  file["post_processor"] = template_with(options_.special_token);
  file["model"]["vocab"] = std::move(vocabulary);
  file["model"]["merges"] = model.merges;
  return file.dump(2) + "\n";
}

std::string BpeTrainer::tokenizer_config_json() const {
  const ordered_json file = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                             {"bos_token", options_.special_token},
                             {"eos_token", options_.special_token},
                             {"clean_up_tokenization_spaces", false}};
  return file.dump(2) + "\n";
}

}  // namespace focus
