#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "autograd/tensor.h"
#include "data/tokens/token_file.h"

namespace focus {

/// ids [batch, context], row-major. The loss is the mean over the shifted tokens inside a row:
/// token t predicts token t + 1. Where windows hold documents all of them lie in one row, one
/// behind the other without padding, and `documents` says where each begins.
struct Batch {
  std::vector<std::int32_t> ids;
  Index batch = 0;
  Index context = 0;
  /// The documents' first tokens and the end; empty: each row is one.
  std::vector<Index> documents = {};
  /// 1 for each id that has a loss, else 0; empty: all have one.
  std::vector<std::uint8_t> counts = {};

  /// What each token is to predict: the next of its row or document; -1 at its end, and where the
  /// loss is not of the next.
  std::vector<std::int32_t> targets() const;
};

/// How documents become windows; TRL's words, whose `packing` is off for `none`.
enum class Packing {
  automatic,  // documents where the loss is of some tokens alone, else wrapped
  wrapped,    // one run of tokens, cut wherever a window is full; tokens see other documents
  documents,  // several whole documents to a window, none of which sees another
  none        // one document to a window
};
constexpr auto enum_names(Packing) {
  return std::array<std::string_view, 4>{"auto", "wrapped", "documents", "none"};
}

struct BatchOptions {
  Index batch = 1;
  Index context = 1024;
  bool shuffle = true;          // a new order of the windows in every epoch
  std::uint64_t seed = 0;       // of the orders
  std::int32_t vocab_size = 0;  // of the model; 0: not checked
  /// Put before each window, or each document of one, and counts as its first token.
  std::optional<std::int32_t> window_start = {};
  Packing packing = Packing::automatic;
  /// Documents 2i and 2i + 1 are two answers to one prompt: a window, each up to the context.
  bool pairs = false;
};

/// The position of a stream of batches: enough to continue with the same batches.
struct BatchState {
  std::uint64_t seed = 0;
  Index epoch = 0;
  Index position = 0;  // windows of the epoch already given
  Index windows = 0;   // windows in an epoch: tells other data apart
  bool operator==(const BatchState&) const = default;
};

/// Windows of up to `context` tokens that do not overlap, in endless epochs; a batch that an
/// epoch's end would cut continues in the next epoch. Wrapped, tokens after the last whole window
/// are left out. By documents, these are packed best fit first, the longest before the others;
/// windows go in the order of their first documents. Of a document that is longer than a window all
/// pieces are taken where the loss is of all its tokens; else it is cut at the window's end, or
/// left out where nothing of which the loss is remains, with a notice.
class Batches {
 public:
  /// Throws std::invalid_argument where the text is shorter than one window, where an id is outside
  /// the model's vocabulary, and for `wrapped` where the loss is of some tokens alone.
  Batches(TokenView tokens, const BatchOptions& options);

  /// Windows in an epoch.
  Index num_windows() const { return num_windows_; }
  /// Tokens in an epoch.
  Index num_tokens() const;
  /// Tokens of a whole window.
  Index context() const { return options_.context; }
  /// Whether windows hold documents that do not see each other.
  bool by_document() const { return options_.packing != Packing::wrapped; }
  Batch next();
  /// Windows [first, first + count) in the order of the text, whatever the stream's state.
  Batch windows(Index first, Index count) const;

  BatchState state() const;
  /// Goes on from there. Throws std::invalid_argument where the state is of other data.
  void restore(const BatchState& state);

 private:
  void order_epoch();
  void append_window(Index window, Batch& batch) const;
  void append_document(const TokenRange& piece, Batch& batch) const;
  /// Cuts the documents into pieces that fit into a window.
  std::vector<TokenRange> pieces_of_documents() const;
  /// The same of pairs, both or none, cut at the context.
  std::vector<TokenRange> pieces_of_pairs() const;
  void pack();
  Index tokens_of_window() const { return options_.context - (options_.window_start ? 1 : 0); }

  TokenView tokens_;
  BatchOptions options_;
  Index num_windows_ = 0;
  Index epoch_ = 0;
  Index position_ = 0;
  std::vector<Index> order_;  // of the windows in this epoch; empty: the text's
  // Window i holds pieces [first_piece_[i], first_piece_[i + 1]); empty where they are wrapped.
  std::vector<TokenRange> pieces_;
  std::vector<std::size_t> first_piece_;
};

}  // namespace focus
