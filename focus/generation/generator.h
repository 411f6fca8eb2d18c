#pragma once

#include <optional>
#include <vector>

#include "focus/method/attention/layer_cache.h"
#include "focus/method/focus_model.h"
#include "focus/method/summary/summary_cache.h"

namespace focus {

/// Keys and values of a sequence in every layer of a decoder, for generation: while it lives, the
/// decoder attends through it. A pass from position 0 is the ordinary forward over the prompt and
/// fills the cache again; passes from position size() on attend to what it holds, and append to it.
/// Afterwards the layers have the mechanisms that they had. One sequence, no gradients.
class RoutedCache {
 public:
  /// `mode` is dense (`focus` unused, may be null), hard or summary. Soft attention reads every key
  /// and has no routed form; balance `sequence` needs tokens that are not there yet: both are
  /// refused. The decoder and the model must outlive the cache.
  RoutedCache(Decoder& decoder, FocusModel* focus, const AttentionSpec& mode,
              CacheDtype dtype = CacheDtype::float32);
  RoutedCache(const RoutedCache&) = delete;
  RoutedCache& operator=(const RoutedCache&) = delete;

  /// Tokens held.
  Index size() const { return held(0); }
  std::size_t bytes() const;
  /// The share of the keys before the tokens decoded one at a time that was read (mean
  /// over layers); 1 where there was none.
  double share_read() const;

 private:
  Index held(std::size_t layer) const;
  Variable attend(const MechanismInputs& in);
  Variable attend_summary(const MechanismInputs& in);
  /// What each token of a pass attends to that continues what a layer's cache holds:
  /// append(token) lets it enter, attend(q, out) reads.
  template <class Cache, class Append, class Attend>
  Tensor go_on(const MechanismInputs& in, Cache& cache, Append&& append, Attend&& attend);

  FocusModel* const focus_;
  const AttentionSpec mode_;
  const CacheDtype dtype_;
  std::vector<std::optional<LayerCache>> layers_;            // of dense and hard attention
  std::vector<std::optional<SummaryCache>> summary_layers_;  // of summary attention
  std::int64_t keys_read_ = 0, keys_held_ = 0;
  std::optional<AttachedMechanism> attached_;
};

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
