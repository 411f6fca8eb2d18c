#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/base/random.h"
#include "data/synthetic/corpus_text.h"

// How the built-in texts draw their words: the same numbers in the same order on every platform.
namespace focus::corpus {

template <class T>
const T& pick(Rng& rng, std::span<const T> items) {
  return items[rng.below(items.size())];
}
template <class T, std::size_t N>
const T& pick(Rng& rng, const std::array<T, N>& items) {
  return pick(rng, std::span<const T>(items));
}

template <class T>
void shuffle(Rng& rng, std::vector<T>& items) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[rng.below(i)]);
}

/// Joins one part of each list, and bare text as it is, strictly from left to right: the order of
/// the operands of + is each compiler's own, and would change the text.
template <class... Parts>
std::string join_parts(Rng& rng, const Parts&... parts) {
  std::string text;
  const auto add = [&](const auto& part) {
    if constexpr (std::is_convertible_v<decltype(part), Text>)
      text += part;
    else
      text += pick(rng, part);
  };
  (add(parts), ...);
  return text;
}

inline std::string first_name(Rng& rng, bool female) {
  std::string name = join_parts(rng, kFirstStarts, kFirstMiddles);
  return name += female ? pick(rng, kFemaleEnds) : pick(rng, kMaleEnds);
}

/// A word of a small list, where the slot is that of one; empty otherwise.
inline Text small_word(Rng& rng, Text slot) {
  for (const WordList& list : kWordLists)
    if (list.slot == slot) return pick(rng, list.words);
  return {};
}

}  // namespace focus::corpus
