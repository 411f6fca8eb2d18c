#include <algorithm>

#include "data/files/utf8.h"
#include "focus/evaluation/statistics/statistics.h"

namespace focus {
namespace {

struct WordList {
  TokenCategory category;
  std::string_view words;
};
constexpr std::array<WordList, 5> kFunctionWords = {{
    {TokenCategory::determiner,
     "a an the this that these those my your his her its our their thy some any no every each all "
     "both few many much more most such another other either neither several which whose what"},
    {TokenCategory::pronoun,
     "i me mine myself you yours yourself he him himself she hers herself it itself we us ours "
     "ourselves they them theirs themselves thou thee who whom one none someone something anyone "
     "anything everyone everything nobody nothing somebody there"},
    {TokenCategory::auxiliary,
     "am is are was were be been being have has had having do does did can could shall should will "
     "would may might must ought not cannot"},
    {TokenCategory::preposition,
     "of in to for with on at by from into upon about over under after before between through "
     "against among amongst without within during towards toward across behind beyond near off out "
     "up down along around above below beneath beside besides except round like"},
    {TokenCategory::connective,
     "and or but nor so yet if because although though while whilst when where whether until till "
     "since as than unless then thus however therefore for how why"},
}};

/// Function words and their categories: a word that is in two lists has that of the first.
std::map<std::string_view, TokenCategory> function_words() {
  std::map<std::string_view, TokenCategory> all;
  for (auto [category, words] : kFunctionWords)
    while (!words.empty()) {
      const std::string_view word = words.substr(0, words.find(' '));
      all.emplace(word, category);
      words.remove_prefix(std::min(word.size() + 1, words.size()));
    }
  return all;
}

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

/// Signs beyond ASCII that novels have: dashes, quotes, dots, and the like (U+2010 to U+205F), and
/// those of Latin-1.
bool is_sign(char32_t c) {
  return (c >= 0x2000 && c <= 0x206F) || (c >= 0xA0 && c <= 0xBF) || c == 0xD7 || c == 0xF7 ||
         (c >= 0x2190 && c <= 0x2BFF) || (c >= 0x3000 && c <= 0x303F);
}

/// Letters of any script; a part of a character (U+FFFD) is taken for one.
bool is_letter(std::string_view at) {
  const char c = at.front();
  if (static_cast<unsigned char>(c) < 0x80) return is_upper(c) || (c >= 'a' && c <= 'z');
  return !is_sign(utf8_code_point(at));
}

std::string_view without_blanks(std::string_view text) {
  constexpr const char* kBlanks = " \t\n\r";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

bool has_letter(std::string_view text) {
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), utf8_char_size(text.front()))))
    if (is_letter(text)) return true;
  return false;
}

bool starts_with_letter(std::string_view text) { return !text.empty() && is_letter(text); }

/// "ing", and "'s" behind a word.
bool goes_on(std::string_view text) {
  for (const std::string_view apostrophe : {"'", "\xE2\x80\x99"})
    if (text.starts_with(apostrophe)) return starts_with_letter(text.substr(apostrophe.size()));
  return starts_with_letter(text);
}

bool ends_with_letter(std::string_view text) {
  if (text.empty()) return false;
  std::size_t last = text.size() - 1;
  while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
  return is_letter(text.substr(last));
}

/// In lower case, without blanks around it.
std::string folded(std::string_view text) {
  std::string lower(without_blanks(text));
  for (char& c : lower) c = is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

}  // namespace

TokenCategory category_of(std::string_view before, std::string_view token, std::string_view after) {
  const std::string_view text = without_blanks(token);
  if (text.empty()) return TokenCategory::white_space;
  if (!has_letter(text))
    return text.find_first_of("0123456789") != std::string_view::npos ? TokenCategory::digits
                                                                      : TokenCategory::punctuation;
  if (goes_on(token) && ends_with_letter(before)) return TokenCategory::continuation;
  const bool whole = !ends_with_letter(token) || !starts_with_letter(after);
  static const std::map<std::string_view, TokenCategory> kWords = function_words();
  if (const auto found = kWords.find(folded(token)); whole && found != kWords.end())
    return found->second;
  return is_upper(text.front()) ? TokenCategory::capitalised : TokenCategory::word;
}

std::vector<TokenCategory> categorise(std::span<const std::string> texts,
                                      const std::vector<bool>& special) {
  std::vector<TokenCategory> categories;
  const auto text = [&](std::size_t t) {
    return t < texts.size() && !special[t] ? std::string_view(texts[t]) : std::string_view();
  };
  for (std::size_t t = 0; t < texts.size(); ++t)
    categories.push_back(special[t] ? TokenCategory::special
                                    : category_of(text(t - 1), text(t), text(t + 1)));
  return categories;
}

std::string token_text(const Tokenizer& tokenizer, std::int32_t id) {
  if (id < 0 || id >= tokenizer.vocab_size()) return "";
  const std::string alone = tokenizer.decode(std::span(&id, 1));
  // A tokenizer may drop the blank before the first token of a text: seen behind another it is
  // there.
  std::vector<std::int32_t> pair = tokenizer.encode("a");
  const std::string first = tokenizer.decode(pair);
  pair.push_back(id);
  const std::string both = tokenizer.decode(pair);
  return replace_invalid_utf8(both.starts_with(first) && both.size() - first.size() >= alone.size()
                                  ? both.substr(first.size())
                                  : alone);
}

}  // namespace focus
