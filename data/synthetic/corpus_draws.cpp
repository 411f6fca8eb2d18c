#include "data/synthetic/corpus_draws.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "data/synthetic/tales.inc"

namespace focus::corpus {
namespace {

using Sections = std::map<Text, std::vector<Text>>;

Text trimmed(Text text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

Sections read_sections(Text text) {
  Sections sections;
  std::vector<Text>* section = nullptr;
  while (!text.empty()) {
    const Text line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[') {
      section = &sections[line.substr(1, line.size() - 2)];
      continue;
    }
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t end = std::min(line.find('|', begin), line.size());
      section->push_back(trimmed(line.substr(begin, end - begin)));
      begin = end + 1;
    }
  }
  return sections;
}

const Sections& sections() {
  static const Sections kSections = read_sections(kTales);
  return kSections;
}

}  // namespace

const std::vector<Text>& tales(Text section) { return sections().at(section); }

std::string draw_parts(Rng& rng, std::initializer_list<Text> sections) {
  std::string text;
  for (const Text section : sections) text += pick(rng, tales(section));
  return text;
}

std::string first_name(Rng& rng, bool female) {
  return draw_parts(rng, {"first_starts", "first_middles", female ? "female_ends" : "male_ends"});
}

Text small_word(Rng& rng, Text slot) {
  const auto found = sections().find(fmt::format("{{{}}}", slot));
  return found == sections().end() ? Text() : pick(rng, found->second);
}

}  // namespace focus::corpus
