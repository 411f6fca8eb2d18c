#pragma once

#include <optional>
#include <vector>

#include "focus/generation/routed_cache.h"

namespace focus {

/// Next-token logits of one growing sequence.
class Generator {
 public:
  /// With a cache of these numbers each token is computed once, through a RoutedCache (`focus` and
  /// `mode` as there); without one, the whole sequence again with every token: the reference. The
  /// decoder and the model must outlive the generator, which sets the model's mode.
  Generator(Decoder& decoder, FocusModel* focus, const AttentionSpec& mode,
            std::optional<CacheDtype> cache = CacheDtype::float32);

  /// Appends `ids` (at least one) and returns the logits of the token after them [vocab_size].
  Tensor next_logits(std::span<const std::int32_t> ids);

  /// Tokens so far.
  Index size() const { return static_cast<Index>(ids_.size()); }
  /// Null without a cache.
  const RoutedCache* cache() const { return cache_ ? &*cache_ : nullptr; }

 private:
  Decoder& decoder_;
  std::vector<std::int32_t> ids_;
  std::optional<RoutedCache> cache_;
};

}  // namespace focus
