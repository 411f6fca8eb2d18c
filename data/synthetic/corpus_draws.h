#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/base/random.h"

// How the built-in texts draw their words: the same numbers in the same order on every platform.
namespace focus::corpus {

using Text = std::string_view;

/// The entries of a section of tales.txt. Throws std::out_of_range without such a section.
const std::vector<Text>& tales(Text section);

template <class T>
const T& pick(Rng& rng, const std::vector<T>& items) {
  return items[rng.below(items.size())];
}

template <class T>
void shuffle(Rng& rng, std::vector<T>& items) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[rng.below(i)]);
}

/// One word of each section.
std::string draw_parts(Rng& rng, std::initializer_list<Text> sections);

std::string first_name(Rng& rng, bool female);

/// A word for a slot that has a section of its own; empty otherwise.
Text small_word(Rng& rng, Text slot);

}  // namespace focus::corpus
