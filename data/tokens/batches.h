#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "autograd/tensor.h"
#include "data/tokens/token_view.h"

namespace focus {

/// ids [batch, context], row-major. The loss is the mean over the shifted tokens inside a row:
/// token t predicts token t + 1.
struct Batch {
  std::vector<std::int32_t> ids;
  Index batch = 0;
  Index context = 0;
};

struct BatchOptions {
  Index batch = 1;
  Index context = 1024;
  bool shuffle = true;          // a new order of the windows in every epoch
  std::uint64_t seed = 0;       // of the orders
  std::int32_t vocab_size = 0;  // of the model; 0: not checked
  /// Put before each window, and counts as its first token.
  std::optional<std::int32_t> window_start = {};
};

/// Where a stream of batches stands: enough to go on with the very same batches.
struct BatchState {
  std::uint64_t seed = 0;
  Index epoch = 0;
  Index position = 0;  // windows of the epoch already given
  Index windows = 0;   // windows in an epoch: tells other data apart
  bool operator==(const BatchState&) const = default;
};

/// Windows of `context` tokens that do not overlap, in endless epochs. The tokens after the last
/// whole window are left out; a batch that an epoch's end would cut goes on in the next epoch.
class Batches {
 public:
  /// Throws std::invalid_argument where the text is shorter than one window, and where an id is
  /// outside the model's vocabulary.
  Batches(TokenView tokens, const BatchOptions& options);

  /// Windows in an epoch.
  Index num_windows() const { return num_windows_; }
  Batch next();
  /// Windows [first, first + count) in the order of the text, whatever the stream's state.
  Batch windows(Index first, Index count) const;

  BatchState state() const;
  /// Goes on from there. Throws std::invalid_argument where the state is of other data.
  void restore(const BatchState& state);

 private:
  void order_epoch();
  void append_window(Index window, Batch& batch) const;
  Index tokens_of_window() const { return options_.context - (options_.window_start ? 1 : 0); }

  TokenView tokens_;
  BatchOptions options_;
  Index num_windows_ = 0;
  Index epoch_ = 0;
  Index position_ = 0;
  std::vector<Index> order_;  // of the windows in this epoch; empty: the text's
};

}  // namespace focus
