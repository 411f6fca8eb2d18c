#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "autograd/ops.h"
#include "focus/method/grouping/pair_counts.h"

// What attention over selected keys has in common, one query at a time.
namespace focus {

/// Queries and keys of one key head in one sequence.
struct HeadView {
  const Real* q;  // the first of the heads that share the keys
  const Real *k, *v;
  Index q_stride, kv_stride;    // from a token to the next
  Index query_heads, head_dim;  // query_heads: those that share the keys

  const Real* query(Index token, Index head) const {
    return q + token * q_stride + head * head_dim;
  }
  const Real* key(Index token) const { return k + token * kv_stride; }
  const Real* value(Index token) const { return v + token * kv_stride; }
};
HeadView head_view(const Tensor& q, const Tensor& k, const Tensor& v, Index sequence,
                   Index kv_head);

/// The first key that token i sees.
inline Index first_visible(Index i, Index sliding_window) {
  return sliding_window > 0 && i >= sliding_window ? i - sliding_window + 1 : 0;
}

/// scale q.k, soft-capped.
Real score(const Real* q, const Real* k, Index head_dim, const AttentionOptions& options);
/// A soft-cap's c tanh(s / c); s itself without one.
Real capped(Real s, const AttentionOptions& options);

/// scores -> softmax, in place. Returns nothing that is left undefined: at least one is finite.
void softmax_in_place(std::vector<Real>& scores);

/// Throws where a gradient of q, k or v is wanted.
void refuse_gradients(const char* op, const Variable& q, const Variable& k, const Variable& v);

/// Pairs of `batch` sequences where heads attended `attended` pairs together.
PairCounts pairs_of_heads(Index batch, Index seq_len, Index heads, Index sliding_window,
                          std::int64_t attended);

// ---- attention of which each query says what distant keys it reads ------------------------------

/// Keys [begin, end).
struct KeyRange {
  Index begin, end;
  Index size() const { return end - begin; }
};

/// What every query reads: the first tokens, and the last ones from local_begin() on.
struct LocalZone {
  Index sinks = 0;
  Index local_window = 0;  // pairs with i - j <= local_window at the least
  Index block = 1;         // the last ones begin at a multiple of this, so that no block is torn

  Index local_begin(Index token) const {
    const Index first = std::max<Index>(0, token - local_window);
    return first - first % block;
  }
  /// The keys between, as far as the layer's sliding window lets the token see them.
  KeyRange distant(Index token, Index sliding_window) const {
    const Index first = first_visible(token, sliding_window);
    const Index end = std::max(first, local_begin(token));
    return {std::clamp(sinks, first, end), end};
  }
};

/// Whole blocks of `size` keys among the distant keys of all queries of a sequence, added up: what
/// a selection among blocks looks at.
std::int64_t distant_blocks(const LocalZone& local, Index size, Index seq_len,
                            Index sliding_window);

/// Queries [begin, end) of one sequence and of the heads that share a key head.
struct QueryRun {
  const HeadView& head;
  Index sequence, kv_head;
  Index begin, end;
  Index sliding_window;
  const Real* scores;  // [query_heads, end - begin, stride], soft-capped; those of keys that a
  Index stride;        // query does not see are not masked

  const Real* scores_of(Index token, Index query_head) const {
    return scores + (query_head * (end - begin) + token - begin) * stride;
  }
};

/// Where a query's selection goes.
class KeysRead {
 public:
  /// `marks` [query_heads, stride].
  KeysRead(std::span<std::uint8_t> marks, Index stride) : marks_(marks), stride_(stride) {}
  /// Begins a query: it reads `local` and `sinks` and may read `distant`.
  void begin(KeyRange sinks, KeyRange distant, KeyRange local);
  /// Lets a head read keys; those that are not distant are left out.
  void add(Index query_head, KeyRange keys);
  void add_for_all_heads(KeyRange keys);
  const std::uint8_t* marks(Index query_head) const { return marks_.data() + query_head * stride_; }

 private:
  std::span<std::uint8_t> marks_;
  Index stride_;
  KeyRange distant_{0, 0};
};

/// Says which of the distant keys `token` reads: those beyond the sinks and before the local zone,
/// within the layer's sliding window.
using KeySelection = std::function<void(Index token, KeyRange distant, KeysRead& read)>;
/// Makes the selection of a run's queries; is called by several threads, so what runs need of their
/// own belongs to what it returns.
using SelectionOfRun = std::function<KeySelection(const QueryRun&)>;

/// softmax over the keys that a query reads, times their values. The scores of all pairs are
/// computed and those not read masked: a selection saves no time here. `pairs`, where given,
/// receives what a head reads on average, added up over the sequences. The bits do not depend on
/// the number of threads. Throws where a gradient is wanted. Shapes as attention().
Variable attend_selected(const char* op, const Variable& q, const Variable& k, const Variable& v,
                         const AttentionOptions& options, const LocalZone& local,
                         const SelectionOfRun& selection, PairCounts* pairs);

/// scale q.k, soft-capped, of the queries [begin, end) of a key head and the keys before `end`:
/// [query_heads, end - begin, stride], `stride` a multiple of the vector's width. Those of keys
/// that a query does not see are not masked.
void scores_of_run(const HeadView& head, const AttentionOptions& options, Index begin, Index end,
                   Real* scores, Index stride);
/// softmax over `seen` of a row of scores, 0 beside it. `stride` as above.
void weights_of_seen(const Real* scores, KeyRange seen, Real* weights, Index stride);

/// Finds the largest of some numbers, the first of equals; keeps its buffer.
class LargestOf {
 public:
  /// The `count` places of [begin, end) where values[place] is largest, in no order; valid until
  /// the next call.
  std::span<const Index> operator()(const Real* values, KeyRange places, Index count);

 private:
  std::vector<Index> order_;
};

}  // namespace focus
