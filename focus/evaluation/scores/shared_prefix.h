#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "layers/decoder.h"

namespace focus {

/// The tokens that sequences have in common, held as what every layer's attention read of them, so
/// that what continues them is computed without projecting them or passing them through an MLP
/// again. Attention itself runs over all tokens once more, by whatever mechanism the decoder has:
/// the numbers are those of whole sequences, for any mechanism that is causal.
///
/// While it lives the decoder's layers attend through it.
class SharedPrefix {
 public:
  explicit SharedPrefix(Decoder& decoder);

  /// Holds exactly `ids`: those at their beginning that it holds already stay. Returns how many
  /// were computed.
  Index hold(std::span<const std::int32_t> ids);
  /// The last norm's output of `batch` sequences of equal length that continue what is held
  /// [batch, seq_len, hidden_size].
  Tensor hidden_states(std::span<const std::int32_t> ids, Index batch);

  Index size() const { return static_cast<Index>(ids_.size()); }

 private:
  /// What attention reads of the held tokens: h, q, k and v, [tokens, ...] of each.
  using Layer = std::array<std::vector<Real>, 4>;
  Variable attend(const MechanismInputs& in);

  Decoder& decoder_;
  std::vector<AttentionMechanism> own_;  // the decoder's, of each layer
  std::vector<Layer> layers_;
  std::vector<std::int32_t> ids_;
  bool holding_ = false;  // the pass in progress is of tokens to be held
  std::optional<AttachedMechanism> attached_;
};

}  // namespace focus
