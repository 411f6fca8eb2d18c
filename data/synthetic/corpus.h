#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/base/random.h"

// How the built-in texts of far_corpus.h draw their words: the same numbers in the same order on
// every platform.
namespace focus::corpus {

using Text = std::string_view;

/// The entries of a section of tales.txt. Throws std::out_of_range without such a section.
const std::vector<Text>& section(Text name);

template <class T>
const T& pick(Rng& rng, const std::vector<T>& items) {
  return items[rng.below(items.size())];
}

template <class T>
void shuffle(Rng& rng, std::vector<T>& items) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[rng.below(i)]);
}

/// One word of each section.
std::string draw_parts(Rng& rng, std::initializer_list<Text> names);

std::string first_name(Rng& rng, bool female);

/// A word for a slot that has a section of its own.
std::optional<Text> small_word(Rng& rng, Text slot);

/// The text with a word for each {slot}, or nothing where one has none.
std::optional<std::string> fill_slots(Text text,
                                      const std::function<std::optional<Text>(Text)>& word);

/// Short invented tales in plain ASCII English, of 1,500 to 4,000 bytes each. Each opens with two
/// or three people whose names, towns, belongings, hiding places, house numbers and years are
/// invented, needs them all the way down, and ends with questions about them. The grammar is
/// quickly learnt; beyond it only attention to far earlier text helps.
std::vector<std::string> tell_tales(std::uint64_t seed, std::int64_t count);

}  // namespace focus::corpus
