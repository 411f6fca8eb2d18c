#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

/// A token that is found in the text before the model sees it, as tokenizer.json lists it.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no letter, digit or underscore touches it
  bool lstrip = false;       // takes the blanks before it
  bool rstrip = false;       // takes the blanks after it
  bool normalized = false;   // looked for in the normalized text
  bool special = false;
};

/// Finds a set of added tokens: leftmost first, and of several at one place the longest.
class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  /// Calls on_text for the parts between the tokens and on_token(id) for the tokens, in order.
  void split(std::string_view text, const std::function<void(std::string_view)>& on_text,
             const std::function<void(std::int32_t)>& on_token) const;

 private:
  const AddedToken* longest_at(std::string_view text, std::size_t position) const;

  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // the longest first
  bool empty_ = true;
};

}  // namespace focus
