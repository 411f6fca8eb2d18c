#include "data/text/wikitext.h"

#include <algorithm>
#include <array>
#include <utility>

#include "data/files/utf8.h"

namespace focus {
namespace {

constexpr std::string_view kWhite = " \t\r\n\v\f";

using Replacement = std::pair<std::string_view, std::string_view>;

/// Takes the white space away inside each pair of marks: ( a ) becomes (a).
void close_pairs(std::string& text, char open, char close) {
  std::string result;
  std::size_t done = 0;
  while (true) {
    const std::size_t begin = text.find(open, done);
    const std::size_t end = begin == std::string::npos ? begin : text.find(close, begin + 1);
    if (end == std::string::npos) break;
    std::string_view inside = std::string_view(text).substr(begin + 1, end - begin - 1);
    const std::size_t first = std::min(inside.find_first_not_of(kWhite), inside.size());
    inside = inside.substr(first, inside.find_last_not_of(kWhite) + 1 - first);
    result.append(text, done, begin + 1 - done).append(inside) += close;
    done = end + 1;
  }
  text = std::move(result.append(text, done));
}

std::string detokenized_article(std::string text) {
  constexpr Replacement kPoints[] = {{"s '", "s'"}, {" @-@ ", "-"}, {" @,@ ", ","}, {" @.@ ", "."},
                                     {" : ", ": "}, {" ; ", "; "},  {" . ", ". "},  {" ! ", "! "},
                                     {" ? ", "? "}, {" , ", ", "}};
  constexpr Replacement kRest[] = {{"= = = =", "===="},    {"= = =", "==="}, {"= =", "=="},
                                   {" \u00B0 ", "\u00B0"}, {" \n", "\n"},    {"\n ", "\n"},
                                   {" N ", " 1 "},         {" 's", "'s"}};
  for (const auto& [tokens, meant] : kPoints) text = replaced(text, tokens, meant);
  for (const auto& [open, close] :
       {std::pair('(', ')'), {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}})
    close_pairs(text, open, close);
  for (const auto& [tokens, meant] : kRest) text = replaced(text, tokens, meant);
  return text;
}

/// " = Title = ", and no " = = Section = = ".
bool begins_article(std::string_view line) {
  return line.starts_with(" = ") && line.ends_with(" = ") && line.size() > 6 &&
         !line.starts_with(" = = ") && !line.ends_with(" = = ");
}

}  // namespace

std::int64_t count_words(std::string_view text) {
  std::int64_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool white = kWhite.find(c) != std::string_view::npos;
    words += !white && !inside ? 1 : 0;
    inside = !white;
  }
  return words;
}

std::int64_t count_wikitext_words(std::string_view text) {
  return count_words(text) + std::ranges::count(text, '\n');
}

std::string wikitext_detokenized(std::string_view text) {
  std::string result, article;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (begins_article(line)) {
      result += detokenized_article(std::move(article));
      article.clear();
    }
    article += text.substr(begin, end + 1 - begin);
    begin = end + 1;
  }
  return result + detokenized_article(std::move(article));
}

}  // namespace focus
