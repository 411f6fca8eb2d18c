#include <algorithm>

#include "autograd/base/check.h"
#include "data/tokens/tokenize.h"

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

/// How many bytes at the beginning of `text` are those of `other`.
std::size_t seam(std::string_view text, std::string_view other) {
  return static_cast<std::size_t>(std::ranges::mismatch(text, other).in1 - text.begin());
}

/// A conversation as the template writes it, and the places of its messages in that.
class Conversation {
 public:
  Conversation(const Example& example, const Tokenizer& tokenizer, const ExampleFormat& format,
               const std::string& where)
      : example_(example), tokenizer_(tokenizer), format_(format), where_(where) {
    text_ = rendered(messages().size(), false, &marked_);
    ids = tokenizer.encode(text_);
    for (std::size_t i = 0; i < messages().size(); ++i) {
      learned_.push_back(is_learned(messages()[i], where));
      if (answers(i)) answers_.push_back(i);
    }
  }

  /// The tokens that count: of the assistant's turns, or all but of what is not to be learned.
  std::vector<std::uint8_t> counts() {
    const std::size_t first = example_.first_of_completion;
    if (!format_.settings.assistant_only_loss) {
      counts_.assign(ids.size(), 1);
      if (format_.settings.completion_only_loss && first > 0) fill({0, begin_of(first)}, 0);
      for (std::size_t i = 0; i < messages().size(); ++i)
        if (!learned_[i]) fill(turn(i), 0);
      return std::move(counts_);
    }
    counts_.assign(ids.size(), 0);
    const auto counts = [&](std::size_t i) { return i >= first && learned_[i]; };
    if (marked_.size() == answers_.size()) {
      for (std::size_t k = 0; k < answers_.size(); ++k)
        if (counts(answers_[k])) fill(marked(k), 1);
    } else if (!marked_.empty()) {
      if (!std::ranges::all_of(answers_, counts))
        fail(
            "{}: the chat template marks {} parts for {} turns of the assistant, so those that are "
            "not to be learned cannot be found; leave them out",
            where_, marked_.size(), answers_.size());
      for (std::size_t k = 0; k < marked_.size(); ++k) fill(marked(k), 1);
    } else {
      for (const std::size_t i : answers_)
        if (counts(i)) fill(turn(i), 1);
    }
    return std::move(counts_);
  }

  Ids ids;

 private:
  using Range = std::pair<std::size_t, std::size_t>;  // of tokens

  const Json& messages() const { return example_.messages; }
  bool answers(std::size_t i) const { return messages()[i].at("role") == "assistant"; }

  /// The first messages, `count` of them; with another content of the first one where there is one.
  std::string rendered(std::size_t count, bool add_generation_prompt,
                       jinja::TextRanges* generated = nullptr,
                       const std::optional<std::string>& content = std::nullopt) const {
    ChatPart part{.messages = Json::array(),
                  .add_generation_prompt = add_generation_prompt,
                  .variables = example_.variables,
                  .generated = generated};
    for (std::size_t i = 0; i < count; ++i) part.messages.push_back(messages()[i]);
    if (content) part.messages[0]["content"] = *content;
    try {
      return format_.chat(part);
    } catch (const std::runtime_error& error) {
      fail("{}: {}", where_, error.what());
    }
  }

  /// How many tokens the conversation has in common with another text from the start.
  std::size_t tokens_in(std::string_view other) const {
    return common_prefix(ids, tokenizer_.encode(other));
  }

  /// The first messages, where the template writes them so: it may refuse a prompt behind an
  /// answer, or no message at all.
  std::optional<std::string> tried(std::size_t count, bool add_generation_prompt) const {
    try {
      return rendered(count, add_generation_prompt);
    } catch (const std::runtime_error&) {
      return std::nullopt;
    }
  }

  /// The text before message i, with a generation prompt and without. The whole text must begin as
  /// both do, up to where they part: the latter may write an end of the text there.
  std::pair<std::string, std::string> before(std::size_t i) const {
    std::optional<std::string> open = tried(i, true), closed = tried(i, false);
    if (!open) open = closed ? closed : rendered(i, true);
    if (!closed) closed = open;
    if (std::max(seam(text_, *open), seam(text_, *closed)) < seam(*open, *closed))
      fail(
          "{}: the chat template renders message {} differently when others follow, so its turn "
          "cannot be found in the text; give each turn a separate line, or set "
          "assistant_only_loss=false",
          where_, i);
    return {*std::move(open), *std::move(closed)};
  }

  /// Where message i begins; one of the assistant's behind what the generation prompt shares with
  /// it.
  std::size_t begin_of(std::size_t i) const {
    if (i == 0) return answers(0) ? begin_of_first_answer() : 0;
    const auto [open, closed] = before(i);
    return tokens_in(answers(i) ? open : closed);
  }

  /// Where nothing precedes the assistant: behind the generation prompt, or where the text is
  /// another with another content.
  std::size_t begin_of_first_answer() const {
    const std::optional<std::string> open = tried(0, true);
    if (open && !open->empty() && text_.starts_with(*open)) return tokens_in(*open);
    const Json content = messages()[0].value("content", Json());
    const std::string text = content.is_string() ? content.get<std::string>() : "";
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first == text.npos)
      fail(
          "{}: the first message is the assistant's and has no text, so its turn cannot be found; "
          "put a user message before it",
          where_);
    const std::string other =
        rendered(messages().size(), false, nullptr, text[first] == '?' ? "!" : "?");
    return tokens_in(std::string_view(text_).substr(0, seam(text_, other)));
  }

  Range turn(std::size_t i) const {
    const std::size_t begin = begin_of(i);
    const auto [open, closed] = before(i + 1);
    std::size_t end = tokens_in(closed);
    // A text's end behind the last turn is learned only where the turn has no other end.
    if (i + 1 == messages().size() && has_end(messages()[i], text_.substr(0, seam(open, closed))))
      end = tokens_in(std::string_view(text_).substr(0, seam(open, closed)));
    return {begin, without_space_after_end(tokenizer_, ids, begin, std::max(begin, end))};
  }

  /// Whether a template writes more behind a message than its content.
  static bool has_end(const Json& message, std::string_view text) {
    const Json content = message.value("content", Json());
    if (!content.is_string()) return false;
    const auto trimmed = [](std::string_view of) {
      return of.substr(0, of.find_last_not_of(" \t\r\n") + 1);
    };
    return !trimmed(text).ends_with(trimmed(content.get_ref<const std::string&>()));
  }

  Range marked(std::size_t k) const {
    const auto [begin, end] = marked_[k];
    return {tokens_in(std::string_view(text_).substr(0, begin)),
            end == text_.size() ? ids.size() : tokens_in(std::string_view(text_).substr(0, end))};
  }

  void fill(const Range& range, std::uint8_t value) {
    for (std::size_t i = range.first; i < range.second; ++i) counts_[i] = value;
  }

  const Example& example_;
  const Tokenizer& tokenizer_;
  const ExampleFormat& format_;
  const std::string& where_;
  std::string text_;
  jinja::TextRanges marked_;
  std::vector<bool> learned_;
  std::vector<std::size_t> answers_;  // the assistant's messages
  std::vector<std::uint8_t> counts_;
};

ExampleTokens of_messages(const Example& example, const Tokenizer& tokenizer,
                          const ExampleFormat& format, const std::string& where) {
  if (!format.chat) fail("{}: messages need a model with a chat template", where);
  Conversation conversation(example, tokenizer, format, where);
  std::vector<std::uint8_t> counts = conversation.counts();
  return {.ids = std::move(conversation.ids), .counts = std::move(counts)};
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
  return of_messages(example, tokenizer, format, fmt::format("{}: {}", where, example.place()));
}

}  // namespace focus
