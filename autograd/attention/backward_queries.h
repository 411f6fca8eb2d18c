#pragma once

#include <vector>

#include "autograd/attention/tiled_steps.h"

namespace focus::tiled {

/// What the backward pass through the softmax needs for one query tile and some heads: queries and
/// their output's gradient, packed for products, and the queries' own gradient as it grows.
class BackwardQueries {
 public:
  BackwardQueries(const AttentionInputs& in, const Sizes& s, const HeadBlock& block,
                  const TileProducts& products = {})
      : products_(products),
        in_(in),
        s_(s),
        block_(block),
        packed_size_(head_stride(kQueries * s.padded_dim)),
        transposed_size_(head_stride(s.head_dim * kQueries)),
        buffer_(block.count * (3 * packed_size_ + 2 * transposed_size_ + 2 * kQueries)),
        q_columns_(buffer_.data()),
        dout_columns_(q_columns_ + block.count * transposed_size_),
        q_panels_(dout_columns_ + block.count * transposed_size_),
        dout_panels_(q_panels_ + block.count * packed_size_),
        dq_data_(dout_panels_ + block.count * packed_size_),
        delta_(dq_data_ + block.count * packed_size_),
        lse_(delta_ + block.count * kQueries) {
    std::fill_n(delta_, 2 * block.count * kQueries, Real(0));
  }

  /// Rows [begin, end) of the plan; `result` is over all keys that there are.
  void begin(const AttentionPlan& plan, Index begin, Index end, const AttentionResult& result,
             const Tensor& d_out, const WantedGradients& wanted) {
    plan_ = &plan;
    begin_ = begin;
    rows_ = end - begin;
    padded_rows_ = simd::padded(kernels_, rows_);
    dq_.clear();
    const HeadRows q(plan, in_.q, begin, end, block_.first, block_.count);
    const HeadRows o(plan, result.out, begin, end, block_.first, block_.count);
    const HeadRows d_o(plan, d_out, begin, end, block_.first, block_.count);
    const Real scale = in_.options.scale;
    for (Index g = 0; g < block_.count; ++g) {
      dq_.push_back({dq_data_ + g * packed_size_});
      products_.pack_transposed(q[g].data, q[g].stride, rows_, s_.head_dim, scale,
                                q_columns_ + g * transposed_size_);
      products_.pack_transposed(d_o[g].data, d_o[g].stride, rows_, s_.head_dim, 1,
                                dout_columns_ + g * transposed_size_);
      if (wanted.k)
        products_.pack(q[g].data, q[g].stride, rows_, s_.head_dim, scale,
                       q_panels_ + g * packed_size_);
      if (wanted.v)
        products_.pack(d_o[g].data, d_o[g].stride, rows_, s_.head_dim, 1,
                       dout_panels_ + g * packed_size_);
      const Real* of_head = result.lse.data() + s_.lse_offset(plan.token(begin), block_.first + g);
      for (Index r = 0; r < rows_; ++r) {
        delta_[g * kQueries + r] = kernels_.dot_row(o[g].data + r * o[g].stride,
                                                    d_o[g].data + r * d_o[g].stride, s_.head_dim);
        lse_[g * kQueries + r] = of_head[plan.token(begin + r)];
      }
    }
  }

  /// scale q and dO of head g as the right-hand side of products with keys and values, ...
  simd::Panels queries(Index g) const {
    return {q_columns_ + g * transposed_size_, s_.head_dim, padded_rows_};
  }
  simd::Panels d_outs(Index g) const {
    return {dout_columns_ + g * transposed_size_, s_.head_dim, padded_rows_};
  }
  /// ... and of products with weights.
  simd::Panels query_rows(Index g) const {
    return {q_panels_ + g * packed_size_, rows_, s_.padded_dim};
  }
  simd::Panels d_out_rows(Index g) const {
    return {dout_panels_ + g * packed_size_, rows_, s_.padded_dim};
  }

  /// P = e^(s - lse);  dS' = P (dO Vᵀ - delta);  through the gate and the soft-cap to dS.
  /// p: finished scores -> P;  d: dO Vᵀ -> dS, or null; both [keys, queries]
  void through_softmax(Index g, const Visibility& seen, Real softcap, const Real* gate,
                       simd::GateUse use, Real* p, Real* d, Real* d_gate) const {
    for (Index r = 0; r < padded_rows_; r += kernels_.vector)
      kernels_.softmax_column_backward({.scores = p + r,
                                        .stride = kQueries,
                                        .span = seen.span(r / kernels_.vector, true),
                                        .first = seen.first() + r,
                                        .last = seen.last() + r,
                                        .gate = gate ? gate + r : nullptr,
                                        .gate_use = use},
                                       lse_ + g * kQueries + r, delta_ + g * kQueries + r, softcap,
                                       d ? d + r : nullptr, d_gate ? d_gate + r : nullptr);
  }

  /// dQ += dS K
  void add_gradient(Index g, const Visibility& seen, const Real* d, const simd::Panels& keys) {
    weighted_sum(products_, seen, rows_, d, keys, s_.padded_dim, nullptr, dq_[g]);
  }
  /// dQ += 2 q o (D X), of scores sum_d (scale q_d)^2 x_d; after add_gradient() for the same keys.
  /// `room`: [queries, padded_dim], written over.
  void add_gradient_of_squares(Index g, const Visibility& seen, const Real* d,
                               const simd::Panels& x, Real* room) {
    QuerySum sum{room};
    weighted_sum(products_, seen, rows_, d, x, s_.padded_dim, nullptr, sum);
    for (Index r = 0; r < rows_; ++r) {
      if (!sum.has(r / kernels_.vector)) continue;
      const Real* q = in_.q.data() + s_.q_offset(plan_->token(begin_ + r), block_.first + g);
      const Real* of_row = sum.data + r * s_.padded_dim;
      Real* to = dq_[g].data + r * s_.padded_dim;
      for (Index i = 0; i < s_.head_dim; ++i) to[i] += 2 * in_.options.scale * q[i] * of_row[i];
    }
  }
  /// The tile's part of the queries' gradient, written or added.
  void end(Tensor& dq, bool adds) const {
    for (Index r = 0; r < rows_; ++r)
      for (Index g = 0; g < block_.count; ++g) {
        const QuerySum& sum = dq_[g];
        if (!sum.has(r / kernels_.vector)) continue;
        const Index token = plan_->token(begin_ + r);
        kernels_.scale_row(sum.data + r * s_.padded_dim, in_.options.scale, s_.head_dim,
                           dq.data() + s_.q_offset(token, block_.first + g), adds);
      }
  }

 private:
  const simd::Kernels& kernels_ = simd::kernels();
  const TileProducts products_;
  const AttentionInputs& in_;
  const Sizes& s_;
  const HeadBlock block_;
  const Index packed_size_, transposed_size_;
  Scratch buffer_;
  Real* q_columns_;     // [heads, head_dim, queries]
  Real* dout_columns_;  // likewise
  Real* q_panels_;      // [heads, queries, padded_dim]
  Real* dout_panels_;   // likewise
  Real* dq_data_;       // likewise
  Real* delta_;         // [heads, queries]: what a query's output owes to each weight
  Real* lse_;           // [heads, queries]
  // The query tile in progress:
  const AttentionPlan* plan_ = nullptr;
  Index begin_ = 0, rows_ = 0, padded_rows_ = 0;
  std::vector<QuerySum> dq_;  // of each head
};

}  // namespace focus::tiled
