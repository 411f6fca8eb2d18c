#pragma once

#include "focus/generation/sequence_cache.h"

namespace focus {

/// Next-token logits of one growing sequence.
class Generator {
 public:
  /// With a cache of these numbers each token is computed once (`focus` and `mode` as in
  /// CachedDecoder); without one, the whole sequence again with every token: the reference. The
  /// decoder and the model must outlive the generator, which sets the model's mode.
  Generator(Decoder& decoder, FocusModel* focus, const AttentionSpec& mode,
            std::optional<CacheDtype> cache = CacheDtype::float32);

  /// Appends `ids` (at least one) and returns the logits of the token after them [vocab_size].
  Tensor next_logits(std::span<const std::int32_t> ids);

  const SequenceCache& cache() const { return cache_; }

 private:
  CachedDecoder decoder_;
  SequenceCache cache_;
};

}  // namespace focus
