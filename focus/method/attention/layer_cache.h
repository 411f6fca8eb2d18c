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
  /// What the `rows` tokens that were appended last attend to, each itself and those before it: the
  /// last rows of sparse_attention() over all tokens so far, with the bits that each has alone.
  /// Several together read the cache once.  q and out [rows, heads, head_dim]
  void attend(const Real* q, Real* out, Index rows = 1);
  /// Whether several rows can attend together: every token reads all before it.
  bool takes_rows() const {
    return buckets_.size() == 1 && !gate_.gated && options_.sliding_window == 0;
  }

  /// Takes back all tokens but the first `tokens`, as if they had never come: what follows has the
  /// same bits. append() comes next.
  void truncate(Index tokens);

  Index size() const { return size_; }
  std::size_t bytes() const { return bytes_; }
  /// What files keep of it (CacheFiles); the constructor knows the rest.
  void visit(auto&& f) { FOCUS_MEMBERS(f, buckets_, size_, bytes_); }
  /// Keys that the last row of the last attend() read, of each head.
  Index keys_read() const { return keys_read_; }

 private:
  /// Memory for some members of a bucket, in blocks packed for products with them. A key head's
  /// blocks lie one after the other: the hardware reads ahead in long runs alone.
  struct Store {
    Index begin, capacity;     // its first member, and how many it has room for
    CacheNumbers keys;         // [kv_heads, blocks, head_dim, members], in panels
    Q8Columns q8_keys;         // in their place [kv_heads, members]
    CacheNumbers values;       // [kv_heads, blocks, members, padded head_dim], in panels or q8_0
    CacheNumbers assignments;  // float32 [blocks, groups, members], in panels; none: gate dropped
    void visit(auto&& f) { FOCUS_MEMBERS(f, begin, capacity, keys, q8_keys, values, assignments); }
    std::size_t bytes() const {
      return keys.bytes() + q8_keys.bytes() + values.bytes() + assignments.bytes();
    }
  };
  struct Bucket {
    std::vector<Index> positions;  // rising
    std::vector<Store> stores;
    void visit(auto&& f) { FOCUS_MEMBERS(f, positions, stores); }
  };
  /// Members [begin, end) of the block of a store that begins at `first`; those before `distant`
  /// lie beyond the local window, and of these the gate leaves those before `sinks` alone.
  struct Slice {
    const Store* store;
    Index first, begin, sinks, distant, end;
  };

  void add_store(Bucket& c);
  bool in_blocks() const { return dtype_ == CacheDtype::q8_0; }
  /// Scores of some query rows with a slice's keys, from a column on that begins a panel: returns
  /// it. Rows of kBlock numbers.
  Index multiply_keys(const Slice& slice, Index kv_head, Real* scores) const;
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
  void merge_chunks(Index row, Index head, Real* out) const;

  /// Query heads that share a key head, and those of all rows that attend together.
  Index query_heads() const { return sizes_.heads / sizes_.kv_heads; }
  Index queries() const { return rows_ * query_heads(); }
  Index num_chunks() const { return static_cast<Index>(chunks_.size()) - 1; }
  /// One chunk and key head has: out [queries, padded head_dim], max and sum [queries], scores.
  Index scratch_size() const;

  const Sizes sizes_;
  const AttentionOptions options_;
  const GateOptions gate_;
  const GateFactor factor_;
  const CacheDtype dtype_;
  const Index padded_dim_;
  std::map<std::uint64_t, Bucket> buckets_;
  Index size_ = 0, rows_ = 1, keys_read_ = 0;
  std::size_t bytes_ = 0;
  std::uint64_t last_mask_ = 0;
  std::vector<Real> last_g_;
  // Buffers of attend(), kept so that a token allocates nothing.
  std::vector<Slice> slices_;
  std::vector<Index> chunks_;   // first slice of each chunk, and their end
  std::vector<Real> scaled_q_;  // [kv_heads, rows, query_heads, head_dim]
  std::vector<Real> factors_, scratch_;
  Q8Queries rounded_q_;  // of scaled_q_
};

}  // namespace focus
