#include "data/tokens/tokenize.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

#include "autograd/base/check.h"
#include "data/files/checksum.h"
#include "data/files/durable_file.h"
#include "data/files/input_file.h"
#include "data/files/json_reader.h"
#include "data/files/notice.h"

namespace focus {
namespace {

/// What lines of JSONL become beside what their bytes and the tokenizer say.
std::string key_of(const ExampleFormat& format) {
  const ExampleSettings& s = format.settings;
  return fmt::format("records 3\n{}:{}\n{} {} {}\n{}\n", s.dataset_text_field.size(),
                     s.dataset_text_field, s.completion_only_loss, s.assistant_only_loss,
                     format.end.value_or(-1), format.chat_identity);
}

/// What tells one result from another: tokenizer, options and the bytes of every text. Notes of
/// each file whether it holds records.
std::string cache_key(std::span<const std::filesystem::path> files, const Tokenizer& tokenizer,
                      const TokenizeOptions& options, std::span<std::optional<bool>> records) {
  Checksum checksum;
  checksum.update(fmt::format("tokens 3\n{}\n{} {} {}\n{}:{}\n", tokenizer.fingerprint(),
                              fmt::join(options.ends.prefix, ","),
                              fmt::join(options.ends.suffix, ","),
                              options.end_documents ? options.examples.end.value_or(-1) : -2,
                              options.document_separator.size(), options.document_separator));
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string text = read_document_file(files[i], &records[i]);
    if (*records[i]) checksum.update(key_of(options.examples));
    if (options.preferences) checksum.update("preferences\n");
    checksum.update(fmt::format("{}\n", text.size()));
    checksum.update(text);
  }
  return checksum.hex();
}

/// A line about a file, or about all of them, for each run.
struct Note {
  static constexpr std::size_t kAll = std::string::npos, kInfo = kAll - 1;  // no notice
  std::size_t file;
  std::string text;
};

void say(const std::vector<Note>& notes, std::span<const std::filesystem::path> files) {
  for (const auto& [file, text] : notes)
    if (file == Note::kInfo)
      spdlog::info("{}", text);
    else if (file < files.size())
      notice("{}: {}", files[file].string(), text);
    else
      notice("{}", text);
}

/// Documents one after the other.
class Documents {
 public:
  Documents(const Tokenizer& tokenizer, const TokenizeOptions& options)
      : tokenizer_(tokenizer), options_(options) {
    options_.examples.ends = options.ends;
  }

  void add_file(const std::filesystem::path& file, std::optional<bool>& records) {
    const std::string text = read_document_file(file, &records);
    bytes_ += text.size();
    if (*records) {
      add_examples(text, file.string());
    } else {
      split_text(text, file.string());
    }
    ++files_;
  }

  void add_document(const std::string& text) {
    bytes_ += text.size();
    split_text(text, "a text in memory");
    ++files_;
  }

  TokenFile take() {
    if (tokens_.empty() && left_out_ > 0)
      fail("no token of {} texts has a loss: all {} examples are left out, {}", files_, left_out_,
           reason());
    if (tokens_.empty())
      fail("no tokens in {} texts ({} bytes): they hold only whitespace and separators", files_,
           bytes_);
    if (offsets_.size() == 2 && added_end_) {  // nothing follows the only document
      tokens_.pop_back();
      offsets_.back() -= 1;
    }
    tell_ends();
    spdlog::debug("tokenized {} files, {} bytes: {} documents, {} tokens", files_, bytes_,
                  offsets_.size() - 1, tokens_.size());
    if (!counts_.empty()) counts_.resize(tokens_.size(), 1);
    return TokenFile::from_tokens(tokens_, offsets_, tokenizer_.vocab_size(),
                                  tokenizer_.fingerprint(), counts_);
  }

  std::vector<Note> notes;

 private:
  void split_text(const std::string& text, const std::string& where) {
    if (options_.preferences)
      fail(
          "{}: objective dpo needs JSON records of \"prompt\", \"chosen\" and \"rejected\", but it "
          "is plain text",
          where);
    for (const std::string_view document : split_documents(text, options_.document_separator)) {
      std::vector<std::int32_t> ids = tokenizer_.encode(document);
      options_.ends.put_around(ids);
      add_text(std::move(ids));
    }
  }

  void add_examples(const std::string& text, const std::string& where) {
    std::size_t examples = 0, left_out = 0;
    std::string first_left_out;
    for_each_example(
        text, where, options_.examples.settings.dataset_text_field, [&](Example&& example) {
          ++examples;
          ExampleTokens tokens = tokens_of(example, tokenizer_, options_.examples, where);
          std::vector<ExampleTokens> both;
          if (example.rejected.empty() == options_.preferences)
            fail("{}: {}: {}", where, example.place(),
                 options_.preferences
                     ? "objective dpo needs \"chosen\" and \"rejected\" in each record"
                     : "\"chosen\" and \"rejected\" are for objective dpo");
          for (const Example& rejected : example.rejected)
            both.push_back(tokens_of(rejected, tokenizer_, options_.examples, where));
          if (example.kind == Example::Kind::text) return add_text(std::move(tokens.ids));
          if (!tokens.trains() || !std::ranges::all_of(both, &ExampleTokens::trains)) {
            if (left_out++ == 0) first_left_out = example.place();
            for (const auto& message : example.messages)
              if (roles_.size() < 8) roles_.insert(message.at("role").get<std::string>());
            return;
          }
          both.insert(both.begin(), std::move(tokens));
          for (const ExampleTokens& one : both) {
            counts_.resize(tokens_.size(), 1);  // of what came before
            counts_.insert(counts_.end(), one.counts.begin(), one.counts.end());
            add(one.ids);
          }
        });
    left_out_ += left_out;
    if (left_out > 0)
      notes.push_back({files_, fmt::format("{} of {} examples are left out, the first on {}: no "
                                           "token has a loss, {}",
                                           left_out, examples, first_left_out, reason())});
  }

  std::string reason() const {
    std::string roles;
    for (const std::string& role : roles_)
      roles += (roles.empty() ? "; their roles: " : ", ") + shown(role);
    return "since they have no completion or no assistant turn that is to be learned" + roles;
  }

  /// A document that is a text.
  void add_text(std::vector<std::int32_t> ids) {
    const std::optional<std::int32_t> end = options_.examples.end;
    ++texts_;
    added_end_ = options_.end_documents && options_.ends.suffix.empty() && end && !ids.empty() &&
                 ids.back() != *end;
    if (added_end_) ids.push_back(*end);
    if (added_end_) ++ends_;
    add(ids);
  }

  void tell_ends() {
    if (offsets_.size() <= 2 || texts_ < 2) return;
    if (ends_ > 0)
      notes.push_back({Note::kInfo, fmt::format("the EOS, id {}, is put behind {} of {} documents "
                                                "(data.document_eos)",
                                                *options_.examples.end, ends_, texts_)});
    else if (options_.end_documents && !options_.examples.end && options_.ends == TextEnds())
      notes.push_back(
          {Note::kAll, fmt::format("{} documents are joined with nothing between: neither "
                                   "the model nor its tokenizer has an EOS",
                                   texts_)});
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
  std::set<std::string> roles_;  // of examples that are left out
  std::size_t bytes_ = 0, files_ = 0, left_out_ = 0;
  std::size_t texts_ = 0, ends_ = 0;  // documents that are texts; those that got an end
  bool added_end_ = false;            // the last one did
};

/// Beside the tokens in the cache lie the notes of how they were made.
std::filesystem::path notes_path(std::filesystem::path cached) {
  return cached.replace_extension(".notes");
}

std::vector<Note> read_notes(const std::filesystem::path& path) {
  std::vector<Note> notes;
  if (!exists(path)) return notes;
  const std::string text = read_file(path);
  for_each_row(text, [&](std::string_view row, std::size_t) {
    Note note{Note::kAll, std::string(row.substr(std::min(row.size(), row.find(' ') + 1)))};
    std::from_chars(row.data(), row.data() + row.size(), note.file);
    notes.push_back(std::move(note));
  });
  return notes;
}

void write_notes(const std::filesystem::path& path, const std::vector<Note>& notes) {
  std::string text;
  for (const auto& [file, line] : notes) text += fmt::format("{} {}\n", file, line);
  if (!text.empty()) write_file_durably(path, std::string_view(text));
}

void require_ends(const TextEnds& ends, const Tokenizer& tokenizer) {
  for (const auto& ids : {ends.prefix, ends.suffix})
    for (const std::int32_t id : ids)
      check(id >= 0 && id < tokenizer.vocab_size(),
            "tokenize: the id {} to add around documents is outside the vocabulary of {}", id,
            tokenizer.vocab_size());
}

}  // namespace

TokenFile tokenize_texts(const Texts& texts, const Tokenizer& tokenizer,
                         const TokenizeOptions& options) {
  if (texts.documents.empty()) return tokenize_cached(texts.files, tokenizer, options);
  require_ends(options.ends, tokenizer);
  const std::vector<std::filesystem::path> files = expand_text_paths(texts.files);
  Documents documents(tokenizer, options);
  std::vector<std::optional<bool>> records(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) documents.add_file(files[i], records[i]);
  for (const std::string& text : texts.documents) documents.add_document(text);
  TokenFile made = documents.take();
  say(documents.notes, files);
  return made;
}

TokenFile tokenize_cached(std::span<const std::filesystem::path> paths, const Tokenizer& tokenizer,
                          const TokenizeOptions& options) {
  require_ends(options.ends, tokenizer);
  const std::vector<std::filesystem::path> files = expand_text_paths(paths);
  check(!files.empty(), "tokenize: the list of text files is empty");
  Documents documents(tokenizer, options);
  std::vector<std::optional<bool>> records(files.size());  // whether each holds some
  const auto tokenize = [&] {
    for (std::size_t i = 0; i < files.size(); ++i) documents.add_file(files[i], records[i]);
    TokenFile made = documents.take();
    say(documents.notes, files);
    return made;
  };
  if (options.cache_dir.empty()) return tokenize();

  std::filesystem::create_directories(options.cache_dir);
  const std::filesystem::path cached =
      options.cache_dir / (cache_key(files, tokenizer, options, records) + ".tokens");
  if (exists(cached)) {
    try {
      TokenFile tokens = TokenFile::open(cached);
      say(read_notes(notes_path(cached)), files);
      return tokens;
    } catch (const std::runtime_error& error) {
      spdlog::warn("{}; tokenizing the text again", error.what());
    }
  }
  const TokenFile made = tokenize();
  write_notes(notes_path(cached), documents.notes);
  made.save(cached);
  return TokenFile::open(cached, false);
}

}  // namespace focus
