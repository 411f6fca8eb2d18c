#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "focus/adapters/mechanism.h"

// Attention of which each query reads some of the keys, selected at inference.
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
};
HeadView head_view(const Tensor& q, const Tensor& k, const Tensor& v, Index sequence,
                   Index kv_head);

/// Keys [begin, end).
struct KeyRange {
  Index begin, end;
  Index size() const { return end - begin; }
};
/// The keys that a token sees, itself included.
inline KeyRange seen_keys(Index token, Index sliding_window) {
  return {sliding_window > 0 ? std::max<Index>(0, token - sliding_window + 1) : 0, token + 1};
}

/// Queries [begin, end) of one sequence and of the heads that share a key head.
struct QueryRun {
  HeadView head;
  Index sequence, kv_head;
  Index begin, end;
  const AttentionOptions& options;
  const Real* scores;  // [query_heads, end - begin, stride], soft-capped; those of keys that a
  Index stride;        // query does not see are not masked

  Index rows() const { return end - begin; }
  const Real* scores_of(Index token, Index query_head) const {
    return scores + (query_head * rows() + token - begin) * stride;
  }
};

/// The score of a key that is not read.
constexpr Real kNotRead = -std::numeric_limits<Real>::infinity();

/// Says which keys queries read: one thread's, from run to run.
class KeyReader {
 public:
  virtual ~KeyReader() = default;
  /// Begins a run. Of the same queries all key heads come, one after the other from the first.
  virtual void enter(const QueryRun& run) = 0;
  /// Makes kNotRead of a query's scores [stride] where it does not read; keys that it does not see
  /// have it already. May change the others.
  virtual void read(Index token, Index query_head, Real* scores) = 0;
  /// May change the weights e^(score - max) of the keys, whose sum is given and stays.
  virtual void reweigh(Index, Index, Real* /*weights*/, Real /*sum*/) const {}
};

/// softmax over the keys that each query reads, times their values. The scores of all pairs are
/// computed and those not read masked: a selection saves no time here. `pairs`, where given,
/// receives what a head reads on average, added up over the sequences. A run has `run_queries`
/// queries. The bits do not depend on the number of threads. Throws where a gradient is wanted.
Variable attend_selected(std::string_view op, const MechanismInputs& in,
                         const std::function<std::unique_ptr<KeyReader>()>& make_reader,
                         PairCounts* pairs, Index run_queries = 32);

/// What every query reads: the first tokens, and the last ones from local_begin() on.
struct LocalZone {
  Index sinks = 0;
  Index local_window = 0;  // pairs with i - j <= local_window at the least; -1: none
  Index block = 1;         // the last ones begin at a multiple of this, so that no block is torn

  Index local_begin(Index token) const {
    const Index first = std::max<Index>(0, token - local_window);
    return first - first % block;
  }
  /// The keys between, as far as the layer's sliding window lets the token see them.
  KeyRange distant(Index token, Index sliding_window) const {
    const Index first = seen_keys(token, sliding_window).begin;
    const Index end = std::max(first, local_begin(token));
    return {std::clamp(sinks, first, end), end};
  }
  /// Whole blocks among the distant keys of all queries of a sequence, added up: what a selection
  /// among blocks looks at.
  std::int64_t distant_blocks(Index seq_len, Index sliding_window) const;
};

/// Reads the local zone and, of the blocks (of its size) of distant keys, those with the largest
/// scores, the first of equals.
class LargestBlocks : public KeyReader {
 public:
  /// Scores of a run's blocks [heads, rows, stride].
  struct Scores {
    std::vector<Real> numbers = {};
    Index heads = 1;  // 1: the query heads select together
    Index stride = 0;
    std::span<Real> resize(Index h, Index rows, Index blocks) {
      heads = h;
      stride = blocks;
      numbers.assign(h * rows * blocks, 0);
      return numbers;
    }
  };
  using Score = std::function<void(const QueryRun& run, Scores& scores)>;
  /// Reads `count` blocks. `score` fills the scores when a run begins.
  LargestBlocks(const LocalZone& local, Index count, Score score)
      : local_(local), count_(count), score_(std::move(score)) {}

  void enter(const QueryRun& run) override;
  void read(Index token, Index query_head, Real* scores) override;

 protected:
  const QueryRun* run_ = nullptr;
  std::vector<Index> order_;  // of largest_of()

 private:
  const LocalZone local_;
  const Index count_;
  const Score score_;
  Scores scores_;
  std::vector<std::uint8_t> marks_;  // of the query's keys that are read
};
/// attend_selected() by LargestBlocks.
Variable attend_largest(std::string_view op, const MechanismInputs& in, const LocalZone& local,
                        Index count, const LargestBlocks::Score& score, PairCounts* pairs);

/// Numbers of the whole blocks of keys of each sequence and key head: [batch * kv_heads, blocks,
/// width], each block's made by make(its first key, numbers from a key to the next, to).
struct KeyBlocks {
  KeyBlocks(const Tensor& k, Index size, Index numbers_of_block,
            const std::function<void(const Real* keys, Index stride, Real* to)>& make);
  const Real* of(const QueryRun& run) const {
    return numbers.data() + (run.sequence * kv_heads + run.kv_head) * blocks * width;
  }

  Index blocks, width, kv_heads;
  std::vector<Real> numbers;
};

/// The places of the `count` largest of values[begin, end), the first of equals, in no order; in
/// `order`, which it overwrites.
std::span<const Index> largest_of(const Real* values, KeyRange places, Index count,
                                  std::vector<Index>& order);

/// scale q.k, soft-capped, of the queries [begin, end) of a key head and the keys before `end`:
/// [query_heads, end - begin, stride], `stride` a multiple of the vector's width. Those of keys
/// that a query does not see are not masked.
void scores_of_run(const HeadView& head, const AttentionOptions& options, Index begin, Index end,
                   Real* scores, Index stride);
/// softmax over `seen` of a row of scores, 0 beside it. `stride` as above.
void weights_of_seen(const Real* scores, KeyRange seen, Real* weights, Index stride);

}  // namespace focus
