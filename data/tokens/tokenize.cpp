#include "data/tokens/tokenize.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "autograd/base/check.h"
#include "data/files/checksum.h"
#include "data/text/text.h"

namespace focus {
namespace {

/// What tells one result from another: tokenizer, options and the bytes of every text.
std::string cache_key(std::span<const std::filesystem::path> files, const Tokenizer& tokenizer,
                      const TokenizeOptions& options) {
  Checksum checksum;
  checksum.update(fmt::format("tokens 2\n{}\n{} {}\n{}:{}\n", tokenizer.fingerprint(),
                              fmt::join(options.ends.prefix, ","),
                              fmt::join(options.ends.suffix, ","),
                              options.document_separator.size(), options.document_separator));
  for (const std::filesystem::path& file : files) {
    const std::string text = read_text_file(file);
    checksum.update(fmt::format("{}\n", text.size()));
    checksum.update(text);
  }
  return checksum.hex();
}

TokenFile tokenize(std::span<const std::filesystem::path> files, const Tokenizer& tokenizer,
                   const TokenizeOptions& options) {
  std::vector<std::int32_t> tokens;
  std::vector<Index> offsets = {0};
  std::size_t bytes = 0;
  for (const std::filesystem::path& file : files) {
    const std::string text = read_document_file(file);
    bytes += text.size();
    for (const std::string_view document : split_documents(text, options.document_separator)) {
      std::vector<std::int32_t> ids = tokenizer.encode(document);
      options.ends.put_around(ids);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      offsets.push_back(static_cast<Index>(tokens.size()));
    }
  }
  if (tokens.empty()) {
    fail("no tokens in {} text files ({} bytes): they hold only white space and separators",
         files.size(), bytes);
  }
  spdlog::debug("tokenized {} files, {} bytes: {} documents, {} tokens", files.size(), bytes,
                offsets.size() - 1, tokens.size());
  return TokenFile::from_tokens(tokens, offsets, tokenizer.vocab_size(), tokenizer.fingerprint());
}

}  // namespace

TokenFile tokenize_cached(std::span<const std::filesystem::path> paths, const Tokenizer& tokenizer,
                          const TokenizeOptions& options) {
  for (const auto& ids : {options.ends.prefix, options.ends.suffix})
    for (const std::int32_t id : ids)
      check(id >= 0 && id < tokenizer.vocab_size(),
            "tokenize: the id {} to put around documents is outside the vocabulary of {}", id,
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
