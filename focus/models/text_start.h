#pragma once

#include <array>
#include <string_view>

namespace focus {

/// Which special tokens precede and follow a text.
enum class Bos {
  automatic,  // what the tokenizer's files put there
  always,     // before it the config's BOS, else the tokenizer's
  never,
  window  // before each window: what `automatic` has, else what `always` has
};
constexpr auto enum_names(Bos) {
  return std::array<std::string_view, 4>{"auto", "always", "never", "window"};
}

}  // namespace focus
