#include "data/tokens/tokenize.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <stdexcept>

#include "autograd/base/check.h"
#include "data/files/checksum.h"
#include "data/files/json_reader.h"
#include "data/files/notice.h"
#include "data/text/text.h"

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

/// What lines of JSONL become beside what their bytes and the tokenizer say.
std::string key_of(const ExampleFormat& format) {
  const ExampleSettings& s = format.settings;
  return fmt::format("jsonl 1\n{}:{}\n{} {} {}\n{}\n", s.dataset_text_field.size(),
                     s.dataset_text_field, s.completion_only_loss, s.assistant_only_loss,
                     format.end.value_or(-1), format.chat_identity);
}

/// What tells one result from another: tokenizer, options and the bytes of every text.
std::string cache_key(std::span<const std::filesystem::path> files, const Tokenizer& tokenizer,
                      const TokenizeOptions& options) {
  Checksum checksum;
  checksum.update(fmt::format("tokens 2\n{}\n{} {}\n{}:{}\n", tokenizer.fingerprint(),
                              fmt::join(options.ends.prefix, ","),
                              fmt::join(options.ends.suffix, ","),
                              options.document_separator.size(), options.document_separator));
  if (std::ranges::any_of(files, is_jsonl)) checksum.update(key_of(options.examples));
  for (const std::filesystem::path& file : files) {
    const std::string text = read_document_file(file);
    if (is_jsonl(file)) checksum.update(std::string("jsonl "));
    checksum.update(fmt::format("{}\n", text.size()));
    checksum.update(text);
  }
  return checksum.hex();
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

namespace {

/// Documents one after the other.
class Documents {
 public:
  Documents(const Tokenizer& tokenizer, const TokenizeOptions& options)
      : tokenizer_(tokenizer), options_(options) {
    options_.examples.ends = options.ends;
  }

  void add_file(const std::filesystem::path& file) {
    const std::string text = read_document_file(file);
    bytes_ += text.size();
    ++files_;
    if (is_jsonl(file)) {
      add_examples(text, file.string());
      return;
    }
    for (const std::string_view document : split_documents(text, options_.document_separator)) {
      std::vector<std::int32_t> ids = tokenizer_.encode(document);
      options_.ends.put_around(ids);
      add(ids);
    }
  }

  TokenFile take() {
    if (tokens_.empty())
      fail("no tokens in {} text files ({} bytes): they hold only whitespace and separators",
           files_, bytes_);
    spdlog::debug("tokenized {} files, {} bytes: {} documents, {} tokens", files_, bytes_,
                  offsets_.size() - 1, tokens_.size());
    if (!counts_.empty()) counts_.resize(tokens_.size(), 1);
    return TokenFile::from_tokens(tokens_, offsets_, tokenizer_.vocab_size(),
                                  tokenizer_.fingerprint(), counts_);
  }

 private:
  void add_examples(const std::string& text, const std::string& where) {
    std::size_t examples = 0, left_out = 0, first_left_out = 0;
    for_each_example(
        text, where, options_.examples.settings.dataset_text_field, [&](Example&& example) {
          ++examples;
          const ExampleTokens tokens = tokens_of(example, tokenizer_, options_.examples, where);
          if (example.kind != Example::Kind::text) {
            if (!tokens.trains()) {
              if (left_out++ == 0) first_left_out = example.line;
              return;
            }
            counts_.resize(tokens_.size(), 1);  // of what came before
            counts_.insert(counts_.end(), tokens.counts.begin(), tokens.counts.end());
          }
          add(tokens.ids);
        });
    if (left_out > 0)
      notice(
          "{}: {} of {} examples are left out, the first on line {}: no token has a loss, since "
          "they have no completion or no assistant turn",
          where, left_out, examples, first_left_out);
  }

  void add(std::span<const std::int32_t> ids) {
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    offsets_.push_back(static_cast<Index>(tokens_.size()));
  }

  const Tokenizer& tokenizer_;
  TokenizeOptions options_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint8_t> counts_;  // of the first tokens; none where the loss is of all
  std::vector<Index> offsets_ = {0};
  std::size_t bytes_ = 0, files_ = 0;
};

TokenFile tokenize(std::span<const std::filesystem::path> files, const Tokenizer& tokenizer,
                   const TokenizeOptions& options) {
  Documents documents(tokenizer, options);
  for (const std::filesystem::path& file : files) documents.add_file(file);
  return documents.take();
}

}  // namespace

TokenFile tokenize_cached(std::span<const std::filesystem::path> paths, const Tokenizer& tokenizer,
                          const TokenizeOptions& options) {
  for (const auto& ids : {options.ends.prefix, options.ends.suffix})
    for (const std::int32_t id : ids)
      check(id >= 0 && id < tokenizer.vocab_size(),
            "tokenize: the id {} to add around documents is outside the vocabulary of {}", id,
            tokenizer.vocab_size());
  const std::vector<std::filesystem::path> files = expand_text_paths(paths);
  check(!files.empty(), "tokenize: the list of text files is empty");
  if (options.cache_dir.empty()) return tokenize(files, tokenizer, options);

  std::filesystem::create_directories(options.cache_dir);
  const std::filesystem::path cached =
      options.cache_dir / (cache_key(files, tokenizer, options) + ".tokens");
  if (exists(cached)) {
    try {
      return TokenFile::open(cached);
    } catch (const std::runtime_error& error) {
      spdlog::warn("{}; tokenizing the text again", error.what());
    }
  }
  tokenize(files, tokenizer, options).save(cached);
  return TokenFile::open(cached, false);
}

}  // namespace focus
