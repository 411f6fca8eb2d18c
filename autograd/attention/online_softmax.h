#pragma once

#include <cmath>
#include <vector>

#include "autograd/attention/tiled_steps.h"

namespace focus::tiled {

/// The softmax of one query tile and some heads over keys that come a tile at a time: running row
/// maximum, sum and weighted sum of values (Milakov, Gimelshein 2018; Dao et al. 2022).
class OnlineSoftmax {
 public:
  OnlineSoftmax(const AttentionInputs& in, const Sizes& s, const HeadBlock& block,
                const TileProducts& products = {})
      : products_(products),
        in_(in),
        s_(s),
        block_(block),
        packed_size_(s.head_dim * kQueries),
        acc_size_(head_stride(kQueries * s.padded_dim)),
        buffer_(kQueries + block.count * (packed_size_ + 2 * kQueries + acc_size_)),
        factor_(buffer_.data()),
        packed_(factor_ + kQueries),
        max_(packed_ + block.count * packed_size_),
        sum_(max_ + block.count * kQueries),
        acc_(sum_ + block.count * kQueries) {}

  /// Rows [begin, end) of the plan: no keys yet.
  void begin(const AttentionPlan& plan, Index begin, Index end) {
    plan_ = &plan;
    begin_ = begin;
    rows_ = end - begin;
    padded_rows_ = simd::padded(kernels_, rows_);
    std::fill_n(max_, block_.count * kQueries, kMasked);
    std::fill_n(sum_, block_.count * kQueries, Real(0));
    sums_.clear();
    for (Index g = 0; g < block_.count; ++g) sums_.push_back({acc_ + g * acc_size_});
    for (Index g = 0; g < block_.count; ++g) {
      const Real* q = in_.q.data() + s_.q_offset(0, block_.first + g);
      const Index row_size = s_.heads * s_.head_dim;
      Real* to = packed_ + g * packed_size_;
      if (plan.tokens.empty())
        products_.pack_transposed(q + begin * row_size, row_size, rows_, s_.head_dim,
                                  in_.options.scale, to);
      else
        products_.pack_gathered(q, row_size, plan.tokens.data() + begin, rows_, s_.head_dim,
                                in_.options.scale, to);
    }
  }

  /// scale q of head g, as the right-hand side of a product with keys.
  simd::Panels queries(Index g) const {
    return {packed_ + g * packed_size_, s_.head_dim, padded_rows_};
  }

  /// The log-sum-exp of row r over all keys so far.
  Real log_weight(Index g, Index r) const {
    return max_[g * kQueries + r] + std::log(sum_[g * kQueries + r]);
  }

  /// Lets finished scores [keys, queries] of head g enter; they become e^(score - maximum). The
  /// values are added by add_values(), between which and this they may be changed (dropout).
  void add_scores(Index g, const Visibility& seen, Real* scores, const Real* gate,
                  simd::GateUse use) {
    for (Index r = 0; r < padded_rows_; r += kernels_.vector) {
      const simd::KeySpan span = seen.span(r / kernels_.vector, false);
      if (span.begin == span.end) continue;
      const Index state = g * kQueries + r;
      kernels_.softmax_column({.scores = scores + r,
                               .stride = kQueries,
                               .span = span,
                               .first = seen.first() + r,
                               .last = seen.last() + r,
                               .gate = gate ? gate + r : nullptr,
                               .gate_use = use},
                              max_ + state, sum_ + state, factor_ + r);
    }
  }
  void add_values(Index g, const Visibility& seen, const Real* weights,
                  const simd::Panels& values) {
    weighted_sum(products_, seen, rows_, weights, values, s_.padded_dim, factor_, sums_[g]);
  }

  /// A row without pairs: 0, of weight 0. Else lse = max + log(sum).
  void end(AttentionResult& result) {
    for (Index g = 0; g < block_.count; ++g) {
      Real* log_sum = packed_;  // the packed queries have served
      kernels_.log_row(sum_ + g * kQueries, log_sum, padded_rows_, 0);
      Real* lse = result.lse.data() + lse_offset(g);
      for (Index r = 0; r < rows_; ++r) {
        const Index state = g * kQueries + r;
        lse[plan_->token(begin_ + r)] = sum_[state] == 0 ? kMasked : max_[state] + log_sum[r];
      }
    }
    for_rows(result, [&](Index r, Real* row) {
      kernels_.divide_rows(block_.count, s_.head_dim, acc_ + r * s_.padded_dim, acc_size_, sum_ + r,
                           kQueries, row, s_.head_dim);
    });
  }

  /// end() into a finished result over other keys.
  void merge_into(AttentionResult& result) {
    Real* all = packed_;  // the packed queries have served
    for (Index g = 0; g < block_.count; ++g) {
      Real *max = max_ + g * kQueries, *sum = sum_ + g * kQueries;
      Real* lse = result.lse.data() + lse_offset(g);
      for (Index r = 0; r < rows_; ++r) all[r] = lse[plan_->token(begin_ + r)];
      std::fill(all + rows_, all + padded_rows_, kMasked);
      kernels_.merge_sums(padded_rows_, max, sum, all, max, sum);  // what is kept, what is added
      for (Index r = 0; r < rows_; ++r) lse[plan_->token(begin_ + r)] = all[r];
    }
    for_rows(result, [&](Index r, Real* row) {
      kernels_.blend_rows(block_.count, s_.head_dim, acc_ + r * s_.padded_dim, acc_size_, max_ + r,
                          sum_ + r, kQueries, row, s_.head_dim);
    });
  }

 private:
  /// Calls f(row of the tile, its place in the result for the first of the heads).
  template <class F>
  void for_rows(AttentionResult& result, F&& f) const {
    const auto row = [&](Index r) {
      return result.out.data() + s_.q_offset(plan_->token(begin_ + r), block_.first);
    };
    for (Index r = 0; r < rows_; ++r) {
      if (r + kRowsAhead < rows_) prefetch_row(row(r + kRowsAhead), block_.count * s_.head_dim);
      f(r, row(r));
    }
  }
  /// Where a head's log-sum-exps begin, which are by token.
  Index lse_offset(Index g) const { return s_.lse_offset(plan_->token(begin_), block_.first + g); }

  const simd::Kernels& kernels_ = simd::kernels();
  const TileProducts products_;
  const AttentionInputs& in_;
  const Sizes& s_;
  const HeadBlock block_;
  const Index packed_size_, acc_size_;
  Scratch buffer_;
  Real* factor_;  // [queries]
  Real* packed_;  // [heads, head_dim, queries]
  Real* max_;     // [heads, queries]
  Real* sum_;     // [heads, queries]
  Real* acc_;     // [heads, queries, padded_dim]
  // The query tile in progress:
  const AttentionPlan* plan_ = nullptr;
  Index begin_ = 0, rows_ = 0, padded_rows_ = 0;
  std::vector<QuerySum> sums_;  // of each head
};

}  // namespace focus::tiled
