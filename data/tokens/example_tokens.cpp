#include "data/tokens/example_tokens.h"

#include <algorithm>
#include <stdexcept>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"

namespace focus {
namespace {

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::ordered_json;

/// How many tokens at the beginning of `all` are those of `beginning`.
std::size_t common_prefix(const Ids& all, const Ids& beginning) {
  return static_cast<std::size_t>(std::ranges::mismatch(all, beginning).in1 - all.begin());
}

bool is_white(const Tokenizer& tokenizer, std::int32_t id) {
  return tokenizer.decode(std::span(&id, 1)).find_first_not_of(" \t\r\n") == std::string::npos;
}

/// The end of tokens [begin, end) without white space behind a special token: what
/// ends the turn is that token, and nobody generates what comes after it.
std::size_t without_space_after_end(const Tokenizer& tokenizer, const Ids& ids, std::size_t begin,
                                    std::size_t end) {
  std::size_t last = end;
  while (last > begin && !tokenizer.is_special(ids[last - 1]) && is_white(tokenizer, ids[last - 1]))
    --last;
  return last > begin && tokenizer.is_special(ids[last - 1]) ? last : end;
}

ExampleTokens of_text(const Example& example, const Tokenizer& tokenizer,
                      const ExampleFormat& format) {
  ExampleTokens tokens{.ids = tokenizer.encode(example.text), .counts = {}};
  format.ends.put_around(tokens.ids);
  tokens.counts.assign(tokens.ids.size(), 1);
  return tokens;
}

ExampleTokens of_prompt(const Example& example, const Tokenizer& tokenizer,
                        const ExampleFormat& format) {
  const TextEnds before{.prefix = format.ends.prefix, .suffix = {}};
  const auto encoded = [&](const std::string& text) {
    Ids ids = tokenizer.encode(text);
    before.put_around(ids);
    return ids;
  };
  ExampleTokens tokens{.ids = encoded(example.text + example.completion), .counts = {}};
  const std::size_t prompt =
      std::min(common_prefix(tokens.ids, encoded(example.text)), tokens.ids.size());
  if (format.end && (tokens.ids.empty() || tokens.ids.back() != *format.end))
    tokens.ids.push_back(*format.end);
  tokens.counts.assign(tokens.ids.size(), 1);
  if (format.settings.completion_only_loss)
    std::fill_n(tokens.counts.begin(), prompt, std::uint8_t{0});
  return tokens;
}

/// The first messages, `count` of them.
Json first_of(const Json& messages, std::size_t count) {
  Json part = Json::array();
  for (std::size_t i = 0; i < count; ++i) part.push_back(messages[i]);
  return part;
}

ExampleTokens of_messages(const Example& example, const Tokenizer& tokenizer,
                          const ExampleFormat& format, const std::string& where) {
  if (!format.chat) fail("{}: messages need a model with a chat template", where);
  const Json& messages = example.messages;
  const auto rendered = [&](std::size_t count, bool add_generation_prompt) {
    try {
      return format.chat(first_of(messages, count), add_generation_prompt);
    } catch (const std::runtime_error& error) {
      fail("{}: {}", where, error.what());
    }
  };
  const std::string text = rendered(messages.size(), false);
  ExampleTokens tokens{.ids = tokenizer.encode(text), .counts = {}};
  tokens.counts.assign(tokens.ids.size(), format.settings.assistant_only_loss ? 0 : 1);
  if (!format.settings.assistant_only_loss) return tokens;
  for (std::size_t i = example.first_of_completion; i < messages.size(); ++i) {
    if (messages[i].at("role") != "assistant") continue;
    if (i == 0)
      fail("{}: the first message is the assistant's, but a user message must precede it", where);
    const std::string before = rendered(i, true), after = rendered(i + 1, false);
    if (!after.starts_with(before) || !text.starts_with(after))
      fail(
          "{}: the chat template renders message {} differently when others follow, so its turn "
          "cannot be found in the text; give each turn a separate line, or set "
          "assistant_only_loss=false",
          where, i + 1);
    const std::size_t begin = common_prefix(tokens.ids, tokenizer.encode(before));
    std::size_t end = after.size() == text.size()
                          ? tokens.ids.size()
                          : common_prefix(tokens.ids, tokenizer.encode(after));
    end = without_space_after_end(tokenizer, tokens.ids, begin, end);
    std::fill(tokens.counts.begin() + static_cast<std::ptrdiff_t>(begin),
              tokens.counts.begin() + static_cast<std::ptrdiff_t>(std::max(begin, end)),
              std::uint8_t{1});
  }
  return tokens;
}

}  // namespace

bool ExampleTokens::trains() const {
  return !counts.empty() && std::find(counts.begin() + 1, counts.end(), 1) != counts.end();
}

ExampleTokens tokens_of(const Example& example, const Tokenizer& tokenizer,
                        const ExampleFormat& format, const std::string& where) {
  switch (example.kind) {
    case Example::Kind::text:
      return of_text(example, tokenizer, format);
    case Example::Kind::prompt:
      return of_prompt(example, tokenizer, format);
    case Example::Kind::messages:
      break;
  }
  return of_messages(example, tokenizer, format, fmt::format("{}: line {}", where, example.line));
}

}  // namespace focus
