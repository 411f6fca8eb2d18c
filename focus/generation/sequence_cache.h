#pragma once

#include <optional>
#include <vector>

#include "focus/method/attention/layer_cache.h"
#include "focus/method/focus_model.h"
#include "focus/method/summary/summary_cache.h"

namespace focus {

/// The keys and values of one sequence in every layer of a decoder, as one kind of attention reads
/// them, and the sequence's ids. CachedDecoder makes it and fills it.
class SequenceCache {
 public:
  /// Tokens held, and which.
  Index size() const { return static_cast<Index>(ids_.size()); }
  const std::vector<std::int32_t>& ids() const { return ids_; }
  std::size_t bytes() const;
  /// None: it keeps ids alone, and every pass computes the whole sequence again.
  std::optional<CacheDtype> dtype() const { return dtype_; }
  /// The share of the keys before the tokens decoded one at a time that was read (mean
  /// over layers); 1 where there was none.
  double share_read() const;
  /// share_read() is of the tokens from here on.
  void count_anew() { keys_read_ = keys_held_ = 0; }
  /// Forgets all tokens.
  void clear();
  /// Takes back all tokens but the first `tokens`, as if they had never come. Throws where a cache
  /// cannot: where that are fewer than least_size().
  void truncate(Index tokens);
  Index least_size() const;
  /// What files keep of it (CacheFiles), of layers that have keys.
  void visit(auto&& f) { FOCUS_MEMBERS(f, layers_, summary_layers_, waiting_, ids_); }

 private:
  friend class CachedDecoder;
  SequenceCache(const AttentionSpec& mode, std::optional<CacheDtype> dtype, Index undo,
                std::size_t layers)
      : mode_(mode),
        dtype_(dtype),
        undo_(undo),
        layers_(layers),
        summary_layers_(layers),
        waiting_(layers) {}
  Index held(std::size_t layer) const;

  /// The newest tokens of a layer that nobody has read since: its summary cache takes them
  /// together.
  struct Waiting {
    Index tokens = 0;
    std::vector<Real> h, k, v;  // as MechanismInputs has them
    void visit(auto&& f) { FOCUS_MEMBERS(f, tokens, h, k, v); }
  };

  AttentionSpec mode_;
  std::optional<CacheDtype> dtype_;
  Index undo_;
  std::vector<std::optional<LayerCache>> layers_;            // of dense and hard attention
  std::vector<std::optional<SummaryCache>> summary_layers_;  // of summary attention
  std::vector<Waiting> waiting_;                             // likewise
  std::vector<std::int32_t> ids_;
  std::int64_t keys_read_ = 0, keys_held_ = 0;
};

/// A decoder that continues sequences: each token is computed once and attends to what its
/// sequence's cache holds. Between its passes the decoder is as it was. No gradients.
class CachedDecoder {
 public:
  /// The decoder and the model, which may be null for dense attention, must outlive it.
  CachedDecoder(Decoder& decoder, FocusModel* focus) : decoder_(decoder), focus_(focus) {}

  /// An empty cache for attention of this kind: dense, hard, local or summary. Soft attention reads
  /// every key and has no routed form; balance `sequence` needs tokens that are not there yet: both
  /// are refused. Without a dtype the sequence attends as the decoder does, whatever that is.
  /// `undo`: tokens that truncate() can take back where it keeps summary tokens.
  SequenceCache cache(const AttentionSpec& mode,
                      std::optional<CacheDtype> dtype = CacheDtype::float32, Index undo = 0) const;

  /// The next tokens of a sequence, at least one. `also` takes their keys and values too, and is
  /// not read: it must hold the same tokens, for other attention.
  struct Part {
    SequenceCache* cache;
    std::span<const std::int32_t> ids;
    SequenceCache* also = nullptr;
  };
  /// The last norm's output of all parts' tokens, one part behind the other [tokens, hidden_size].
  /// They go through the decoder as rows of one pass, so weights are read once. Into an empty cache
  /// a part is the ordinary pass over a prompt. Where longrope rotates a text that has outgrown its
  /// original length by other factors, the sequence is computed again. When a pass throws, the
  /// caches of its parts are empty.
  Tensor hidden_states(std::span<const Part> parts);

  const Decoder& decoder() const { return decoder_; }

 private:
  Tensor run(std::span<const Part> parts) const;
  Variable attend(const MechanismInputs& in, SequenceCache& cache, bool reads) const;
  Variable attend_summary(const MechanismInputs& in, SequenceCache& cache, bool reads) const;
  void take_waiting(const MechanismInputs& in, SequenceCache& cache) const;

  Decoder& decoder_;
  FocusModel* focus_;
};

}  // namespace focus
