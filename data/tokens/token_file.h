#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/tensor.h"

namespace focus {

/// Tokens [begin, end) of a token file.
struct TokenRange {
  Index begin = 0;
  Index end = 0;
  Index size() const { return end - begin; }
  bool operator==(const TokenRange&) const = default;
};

/// Token ids of a text, document after document: memory-mapped from a file, or in memory. Copies
/// share the ids. Layout of the file, little-endian: a header of 96 bytes (magic, version, bytes
/// per id, vocabulary, documents, tokens, tokenizer fingerprint, XXH3-128 of all the rest), the
/// documents' first tokens and the end as 64-bit numbers, the ids in 2 or 4 bytes each, and in
/// version 2 a bit for each token that the loss is of.
class TokenFile {
 public:
  /// Maps a file. Its header and length are always checked; with `verify_contents` so are the
  /// checksum and that every id is below vocab_size. Throws std::runtime_error with one line.
  static TokenFile open(const std::filesystem::path& path, bool verify_contents = true);

  /// In memory. `document_offsets` are the first tokens of the documents and the end, so one more
  /// than documents; empty means that everything is one document. `counts` is 0 for tokens that the
  /// loss is not of; empty: it is of all. Throws std::invalid_argument.
  static TokenFile from_tokens(std::span<const std::int32_t> tokens,
                               std::span<const Index> document_offsets, std::int32_t vocab_size,
                               std::string_view tokenizer_fingerprint = {},
                               std::span<const std::uint8_t> counts = {});

  /// Writes the file, whole or not at all.
  void save(const std::filesystem::path& path) const;

  Index size() const { return tokens_; }
  std::int32_t operator[](Index i) const;
  /// Tokens [begin, begin + out.size()). Throws std::invalid_argument outside the file.
  void copy(Index begin, std::span<std::int32_t> out) const;

  /// Whether the loss is of some tokens alone, and whether it is of token i.
  bool has_counts() const { return counts_ != nullptr; }
  bool counts(Index i) const;

  Index num_documents() const { return documents_; }
  TokenRange document(Index i) const;

  std::int32_t vocab_size() const { return vocab_size_; }
  /// 32 hexadecimal digits, or empty for ids that no tokenizer made.
  const std::string& tokenizer_fingerprint() const { return fingerprint_; }

 private:
  struct Bytes;
  TokenFile(std::shared_ptr<const Bytes> bytes, const std::string& where);
  void verify(const std::string& where) const;

  std::shared_ptr<const Bytes> bytes_;  // the file, header included
  const std::byte* offsets_ = nullptr;
  const std::byte* ids_ = nullptr;
  const std::byte* counts_ = nullptr;  // a bit a token, from the lowest; null: all count
  Index tokens_ = 0;
  Index documents_ = 0;
  std::int32_t vocab_size_ = 0;
  int width_ = 2;  // bytes per id
  std::string fingerprint_;
};

/// Some of the documents of a token file, one after the other, seen as one run of tokens.
class TokenView {
 public:
  /// Everything.
  explicit TokenView(TokenFile file);
  /// The given ranges, each of them a document, which must lie in the file and be in order.
  TokenView(TokenFile file, const std::vector<TokenRange>& ranges);

  Index size() const { return starts_.back(); }
  Index num_documents() const { return static_cast<Index>(documents_.size()) - 1; }
  /// Document i in tokens of the view.
  TokenRange document(Index i) const { return {documents_[i], documents_[i + 1]}; }
  /// Whether the loss is of some tokens alone.
  bool has_counts() const { return file_.has_counts(); }
  const std::vector<TokenRange>& ranges() const { return ranges_; }
  std::int32_t vocab_size() const { return file_.vocab_size(); }
  std::int32_t operator[](Index i) const;
  /// Tokens [begin, begin + out.size()) of the view. Throws std::invalid_argument outside it.
  void copy(Index begin, std::span<std::int32_t> out) const;
  /// For the same tokens 1 if the token has a loss, else 0.
  void copy_counts(Index begin, std::span<std::uint8_t> out) const;

 private:
  /// Calls f(first token of the file, how many, how many before) for the runs that tokens
  /// [begin, begin + count) are made of.
  template <class F>
  void for_runs(Index begin, Index count, F&& f) const;

  TokenFile file_;
  std::vector<TokenRange> ranges_;      // neighbours joined
  std::vector<Index> starts_;           // of the ranges in the view, and its size
  std::vector<Index> documents_ = {0};  // their first tokens in the view, and its size
};

/// Sources in shares of the tokens that are as their weights, one behind the other: that of the
/// fewest tokens for its weight is there several times over, so that every source is there as a
/// whole. What is left of a share is whole documents, or the beginning of one where it has only
/// that. The loss is of all tokens of a source without counts. Throws std::invalid_argument where
/// the sources are of different tokenizers, and where there would be more than a billion tokens.
TokenFile mixed_tokens(const std::vector<TokenFile>& sources, const std::vector<double>& weights);

struct TokenSplit {
  TokenView train;
  TokenView valid;
};

/// Deals whole documents out at random until `valid` has about `valid_fraction` of the tokens. The
/// same arguments give the same split. With a fraction of 0 everything is for training; otherwise
/// each side gets a document at least. The end of a single document is held out. Throws
/// std::invalid_argument for a fraction outside [0, 1) and for a file with a single example. Of
/// documents that belong together, so many, all or none go to a side.
TokenSplit split_by_document(const TokenFile& file, double valid_fraction, std::uint64_t seed,
                             Index together = 1);

}  // namespace focus
