#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "autograd/ops.h"
#include "focus/method/attention/gate.h"
#include "focus/method/cache_numbers.h"

namespace focus {

/// The keys and values of one layer's past tokens, held by bucket: tokens with the same mask of
/// groups lie together, in the order they came. A new token reads
///   1. every bucket whose mask meets its own, whole;
///   2. of every other bucket its last members, those within the local window.
/// Both are runs of whole rows: no key is read that the mask of hard attention leaves out, and none
/// is kept twice. One bucket of all tokens is the dense cache. One sequence.
class LayerCache {
 public:
  using Sizes = CacheSizes;
  /// `gate` as in sparse_attention(), its membership unused: masks come with the tokens.
  LayerCache(const Sizes& sizes, const AttentionOptions& options, GateOptions gate,
             CacheDtype dtype = CacheDtype::float32);

  /// Adds the next token.  k and v [kv_heads, head_dim], g [groups]
  void append(const Real* k, const Real* v, const Real* g, std::uint64_t mask);
  /// What the token that was appended last attends to, itself included: the last row of
  /// sparse_attention() over all tokens so far.  q and out [heads, head_dim]
  void attend(const Real* q, Real* out);

  Index size() const { return size_; }
  std::size_t bytes() const { return bytes_; }
  /// Keys that the last attend() read, of each head.
  Index keys_read() const { return keys_read_; }

 private:
  /// Memory for some members of a bucket, in blocks packed for products with them. A key head's
  /// blocks lie one after the other: the hardware reads ahead in long runs alone.
  struct Store {
    Index begin, capacity;     // its first member, and how many it has room for
    CacheNumbers keys;         // [kv_heads, blocks, head_dim, members], in panels
    CacheNumbers values;       // [kv_heads, blocks, members, padded head_dim], in panels
    CacheNumbers assignments;  // float32 [blocks, groups, members], in panels; none: gate dropped
  };
  struct Bucket {
    std::vector<Index> positions;  // rising
    std::vector<Store> stores;
  };
  /// Members [begin, end) of the block of a store that begins at `first`; those before `distant`
  /// lie beyond the local window, and of these the gate leaves those before `sinks` alone.
  struct Slice {
    const Store* store;
    Index first, begin, sinks, distant, end;
  };

  void add_store(Bucket& c);
  /// Where a block's keys and values of a key head begin in its store.
  Index keys_at(const Store& store, Index first, Index kv_head) const {
    return (kv_head * store.capacity + first) * sizes_.head_dim;
  }
  Index values_at(const Store& store, Index first, Index kv_head) const {
    return (kv_head * store.capacity + first) * padded_dim_;
  }
  void collect_slices();
  void compute_factors();
  void attend_chunk(Index kv_head, Index chunk, Real* scratch) const;
  void merge_chunks(Index head, Real* out) const;

  /// Query heads that share a key head.
  Index query_heads() const { return sizes_.heads / sizes_.kv_heads; }
  Index num_chunks() const { return static_cast<Index>(chunks_.size()) - 1; }
  /// One chunk and key head has: out [query_heads, padded head_dim], max and sum
  /// [query_heads], scores.
  Index scratch_size() const;

  const Sizes sizes_;
  const AttentionOptions options_;
  const GateOptions gate_;
  const GateFactor factor_;
  const CacheDtype dtype_;
  const Index padded_dim_;
  std::map<std::uint64_t, Bucket> buckets_;
  Index size_ = 0, keys_read_ = 0;
  std::size_t bytes_ = 0;
  std::uint64_t last_mask_ = 0;
  std::vector<Real> last_g_;
  // Buffers of attend(), kept so that a token allocates nothing.
  std::vector<Slice> slices_;
  std::vector<Index> chunks_;  // first slice of each chunk, and their end
  std::vector<Real> scaled_q_, factors_, scratch_;
};

}  // namespace focus
