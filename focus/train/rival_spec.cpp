#include "focus/train/rival_spec.h"

#include <algorithm>
#include <charconv>

#include "data/settings/recipe.h"
#include "autograd/check.h"

namespace focus {

RivalConfig rival_of_kind(const std::string& kind, const std::string& where) {
  for (const RivalConfig& config : {RivalConfig(WindowConfig{}), RivalConfig(PerformerConfig{}),
                                    RivalConfig(RoutingTransformerConfig{}),
                                    RivalConfig(SparqConfig{}), RivalConfig(MagicPigConfig{})})
    if (kind_of(config) == (kind == "routing" ? RoutingTransformerConfig::kName : kind))
      return config;
  fail(
      "{}: unknown attention \"{}\"; the rivals are window, performer, routing_transformer (or "
      "routing), sparq, magicpig",
      where, kind);
}

RivalConfig parse_rival(const std::string& word, const std::string& where) {
  std::vector<std::string> parts(1);
  for (const char c : word)
    if (c == ':')
      parts.emplace_back();
    else
      parts.back() += c;
  RivalConfig rival = rival_of_kind(parts[0], where);
  std::visit(
      [&](auto& config) {
        std::vector<std::string> overrides;
        for (std::size_t i = 1; i < parts.size(); ++i) {
          const bool bare = parts[i].find('=') == std::string::npos;
          if (bare && i > 1)
            fail("{} {}: \"{}\" is no KEY=VALUE; only the first setting may be a value alone",
                 where, word, parts[i]);
          overrides.push_back(bare ? recipe_fields(config)[0].key + "=" + parts[i] : parts[i]);
        }
        try {
          read_recipe_text("", "", overrides, config);
          config.validate();
        } catch (const std::exception& error) {
          std::string problems = error.what();
          std::ranges::replace(problems, '\n', ';');
          fail("{} {}: {}", where, word, problems);
        }
      },
      rival);
  return rival;
}

AttentionWord parse_attention(const std::string& word, const std::string& where) {
  if (word == "dense") return DenseWord{};
  if (word == "local") return LocalWord{};
  if (word == "soft") return SoftWord{};
  if (word == "focus") return FocusWord{};
  if (word == "trained") return TrainedWord{};
  if (word == "hard" || word.starts_with("hard:")) {
    HardWord hard;
    const char* const end = word.data() + word.size();
    const auto [stop, error] =
        std::from_chars(word.data() + std::min<std::size_t>(word.size(), 5), end, hard.top_k);
    if (error != std::errc() || stop != end || hard.top_k < 1)
      fail("{} {}: wanted hard:K with K groups of a token, such as hard:2", where, word);
    return hard;
  }
  return parse_rival(word, where);
}

}  // namespace focus
