#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/tokens/token_file.h"

namespace focus {

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
  TokenRange document(Index i) const {
    return {documents_[static_cast<std::size_t>(i)], documents_[static_cast<std::size_t>(i) + 1]};
  }
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

struct TokenSplit {
  TokenView train;
  TokenView valid;
};

/// Deals whole documents out at random until `valid` has about `valid_fraction` of the tokens. The
/// same arguments give the same split. With a fraction of 0 everything is for training; otherwise
/// each side gets a document at least. Throws std::invalid_argument for a fraction outside [0, 1)
/// and for a file with a single document.
TokenSplit split_by_document(const TokenFile& file, double valid_fraction, std::uint64_t seed);

}  // namespace focus
