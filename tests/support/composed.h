#pragma once

#include <limits>

#include "autograd/ops.h"
#include "focus/method/attention/gate.h"

// Attention put together from elementary ops, every [seq_len, seq_len] matrix in full: what the
// fused kernels are compared with.
namespace focus {

/// The sum of all elements: [1].
inline Variable sum_all(const Variable& x) {
  const Shape row{1, x.value().size()};
  return reshape(linear(reshape(x, row), Variable(Tensor::full(row, 1)), {}), {1});
}

/// Entry n of the result is entry order[n] of the first dimension of x; an entry may come often.
inline Variable gather(const Variable& x, const std::vector<std::int32_t>& order) {
  const Index entries = x.dim(0);
  const Variable rows = embedding(reshape(x, {entries, x.value().size() / entries}), order,
                                  {static_cast<Index>(order.size())});
  return reshape(rows, x.shape().with(0, static_cast<Index>(order.size())));
}

/// [batch, seq_len, kv_heads, head_dim] -> [batch * heads, seq_len, head_dim], heads repeated.
inline Variable heads_first(const Variable& x, Index heads) {
  const Index batch = x.dim(0), seq_len = x.dim(1), kv_heads = x.dim(2), head_dim = x.dim(3);
  std::vector<std::int32_t> order;
  for (Index n = 0; n < batch * heads; ++n)
    order.push_back(
        static_cast<std::int32_t>(n / heads * kv_heads + n % heads / (heads / kv_heads)));
  return gather(reshape(transpose(x, 1, 2), {batch * kv_heads, seq_len, head_dim}), order);
}

/// A constant [batch * heads, seq_len, seq_len] from a function of (sequence, query, key).
template <class F>
Variable pair_constant(Index batch, Index heads, Index seq_len, F&& f) {
  Tensor x({batch * heads, seq_len, seq_len});
  Real* out = x.data();
  for (Index n = 0; n < batch * heads; ++n)
    for (Index i = 0; i < seq_len; ++i)
      for (Index j = 0; j < seq_len; ++j) *out++ = f(n / heads, i, j);
  return x;
}

/// As gated_attention where `gate` is given, as attention (g unused) where it is null.
inline Variable composed_attention(const Variable& q, const Variable& k, const Variable& v,
                                   const Variable& g, const AttentionOptions& options,
                                   const GateOptions* gate, Tensor* lse = nullptr) {
  const Index batch = q.dim(0), seq_len = q.dim(1), heads = q.dim(2), head_dim = q.dim(3);
  const auto constant = [&](auto&& f) { return pair_constant(batch, heads, seq_len, f); };
  Variable s =
      scale(matmul(heads_first(q, heads), transpose(heads_first(k, heads), 1, 2)), options.scale);
  if (options.softcap > 0) s = scale(tanh(scale(s, 1 / options.softcap)), options.softcap);

  const auto distant = [&](Index i, Index j) {
    return gate && i - j > gate->local_window && j >= gate->sinks;
  };
  if (gate && gate->gated) {
    std::vector<std::int32_t> order;
    for (Index n = 0; n < batch * heads; ++n) order.push_back(static_cast<std::int32_t>(n / heads));
    const Variable affinity = gather(matmul(g, transpose(g, 1, 2)), order);
    const Variable far = constant([&](Index, Index i, Index j) { return Real(distant(i, j)); });
    const Variable near = constant([&](Index, Index i, Index j) { return Real(!distant(i, j)); });
    if (gate->gate == Gate::logit)
      s = multiply(
          s,
          add(near, multiply(far, sigmoid(scale(affinity, static_cast<Real>(gate->steepness))))));
    else
      s = add(s, multiply(far, log(shift(affinity, static_cast<Real>(gate->affinity_floor)))));
  }
  s = add(s, constant([&](Index b, Index i, Index j) {
            const auto set = [&](Index t) { return gate->membership[b * seq_len + t]; };
            const bool hidden =
                j > i || (options.sliding_window > 0 && i - j >= options.sliding_window) ||
                (distant(i, j) && !gate->membership.empty() && (set(i) & set(j)) == 0);
            return hidden ? -std::numeric_limits<Real>::infinity() : Real(0);
          }));
  if (lse != nullptr)
    *lse = log_sum_exp(Variable(s.value())).value().reshape({batch, heads, seq_len});
  const Variable weights = dropout(softmax(s), options.dropout, options.dropout_key);
  const Variable out = matmul(weights, heads_first(v, heads));
  return transpose(reshape(out, {batch, heads, seq_len, head_dim}), 1, 2);
}

}  // namespace focus
