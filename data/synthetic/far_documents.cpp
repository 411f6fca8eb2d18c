#include "data/synthetic/far_documents.h"

#include <fmt/format.h>

#include <algorithm>

#include "autograd/base/check.h"
#include "data/synthetic/corpus_draws.h"

namespace focus::corpus {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

/// Sentences of the tales that tell nothing.
std::string sentences(Rng& rng, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    if (!text.empty()) text += ' ';
    for (Text sentence = pick(rng, kFillers); !sentence.empty();) {
      const std::size_t open = sentence.find('{');
      text += sentence.substr(0, open);
      if (open == Text::npos) break;
      const std::size_t close = sentence.find('}', open);
      text += small_word(rng, sentence.substr(open + 1, close - open - 1));
      sentence.remove_prefix(close + 1);
    }
  }
  return text;
}

}  // namespace

Filler::Filler(std::string haystack) : haystack_(std::move(haystack)) {
  bool blank = true;  // the line before
  for (std::size_t line = 0; line < haystack_.size();) {
    const std::size_t end = std::min(haystack_.find('\n', line), haystack_.size());
    const std::size_t word = haystack_.find_first_not_of(kBlanks, line);
    if (word < end && blank) paragraphs_.push_back(word);
    blank = word >= end;
    line = end + 1;
  }
  check(!paragraphs_.empty(), "corpus: the haystack holds nothing but white space");
}

std::string Filler::passage(Rng& rng, std::size_t bytes) const {
  std::string text;
  for (std::size_t at = pick(rng, std::span<const std::size_t>(paragraphs_)); text.size() < bytes;
       at = paragraphs_[0]) {
    if (!text.empty()) text += "\n\n";
    // To the end of the word that the last byte lies in.
    const std::size_t missing = bytes - std::min(bytes, text.size());
    std::size_t end = haystack_.find_first_of(kBlanks, std::min(at + missing, haystack_.size()));
    if (end == std::string::npos) end = haystack_.find_last_not_of(kBlanks) + 1;
    text += std::string_view(haystack_).substr(at, end - at);
  }
  return text;
}

std::string Filler::operator()(Rng& rng, std::size_t bytes) const {
  return (haystack_.empty() ? sentences(rng, bytes) : passage(rng, bytes)) + '\n';
}

std::string new_name(Rng& rng, std::set<std::string>& taken) {
  while (true) {
    std::string name = first_name(rng, rng.below(2) == 0);
    if (taken.insert(name).second) return name;
  }
}

std::size_t tell_home(AskedDocument& document, std::string_view name, std::string_view home) {
  document.text += fmt::format("{} lives in the ", name);
  const std::size_t told = document.text.size();
  document.text += fmt::format("{}.", home);
  return told;
}

void ask_home(AskedDocument& document, std::string_view name, std::string_view home,
              std::size_t told) {
  document.text += fmt::format("Question: Where does {} live?\nAnswer: In the ", name);
  add_answer(document, home, told);
  document.text += ".\n";
}

void add_answer(AskedDocument& document, std::string_view answer, std::size_t source) {
  const std::size_t begin = document.text.size();
  document.text += answer;
  document.answers.push_back({.begin = begin, .end = document.text.size(), .source = source});
}

}  // namespace focus::corpus
