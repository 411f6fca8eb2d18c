#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "autograd/weight.h"

// Every differentiable op. Shapes read left to right as in the literature; "..." is any number of
// leading dimensions, flattened to rows. Wrong shapes throw std::invalid_argument. The weight of
// linear, embedding and linear_cross_entropy may be a frozen matrix (autograd/weight.h).
namespace focus {
namespace simd {
struct Bf16Kernels;
}
struct ProductRows;  // ops/weight_products.h

// ---- elementwise -------------------------------------------------------------------------------

/// a + b, equal shapes.
Variable add(const Variable& a, const Variable& b);
/// a * b elementwise, equal shapes.
Variable multiply(const Variable& a, const Variable& b);
/// x * factor
Variable scale(const Variable& x, Real factor);
/// x + offset
Variable shift(const Variable& x, Real offset);
/// natural logarithm
Variable log(const Variable& x);
/// 1 / (1 + e^-x)
Variable sigmoid(const Variable& x);
/// tanh(x)
Variable tanh(const Variable& x);
/// x Phi(x), Phi by erf: GELU as PyTorch's default ("gelu" in a config.json)
Variable gelu(const Variable& x);
/// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): "gelu_new", "gelu_pytorch_tanh"
Variable gelu_tanh(const Variable& x);
/// x sigmoid(x)
Variable silu(const Variable& x);
/// silu(gate) * up, one pass over memory (Shazeer 2020, eq. 6)
Variable swiglu(const Variable& gate, const Variable& up);
/// Each number is 0 with this probability (in [0, 1)), else divided by 1 - probability. Which ones
/// depends on the key and the number's place alone, so that the same key gives the same bits.
Variable dropout(const Variable& x, double probability, std::uint64_t key);

/// The soft-cap c tanh(s / c) of attention's scores and of the output head's logits (Gemma 2); c =
/// 0 caps nothing. Tiles of attention use the kernel softcap_row (autograd/simd), which computes
/// tanh by e^2x only: the error near 0 does not matter to a softmax.
inline Real soft_cap(Real s, Real cap) { return cap > 0 ? cap * std::tanh(s / cap) : s; }
/// A row in place; `slope`, where not null, receives the derivative at each number.
void soft_cap(Real* row, Index n, Real cap, Real* slope = nullptr);
Variable soft_cap(const Variable& x, Real cap);

// ---- products and shapes -----------------------------------------------------------------------

/// What linear multiplies: a Variable. Where several have the same, as q, k and v do, what products
/// make of its numbers first (rounding) is made once, and kept once.
class LinearInput {
 public:
  /// A weight that it will be multiplied by, and the bias, which may be undefined.
  struct Part {
    const Weight& weight;
    const Variable& bias;
  };
  LinearInput(Variable x);                                        // NOLINT: any Variable is one
  LinearInput(Tensor x) : LinearInput(Variable(std::move(x))) {}  // NOLINT: a constant
  /// Products with frozen matrices are made here, where that is faster together. The weights must
  /// outlive the input.
  LinearInput(Variable x, std::span<const Part> parts);
  const Variable& x() const { return x_; }
  /// The product with that weight, bias added, if it is made and was not yet taken; else undefined.
  Tensor take_product(const Weight& weight) const;
  /// As products with that weight read them.
  const ProductRows& rows(const Weight& by) const;

 private:
  Variable x_;
  mutable std::array<std::shared_ptr<const ProductRows>, 2> rows_;  // as they are, and rounded
  struct Made {
    const MatrixStorage* by;
    Tensor product;
  };
  mutable std::vector<Made> made_;
};
/// y = x Wᵀ + b.  x [..., in], weight [out, in], bias [out] or undefined -> [..., out]
Variable linear(const LinearInput& x, const Weight& weight, const Variable& bias);
/// a [batch, m, k] times b [batch, k, n] -> [batch, m, n]
Variable matmul(const Variable& a, const Variable& b);
/// Exchanges dimensions i and j (a copy).
Variable transpose(const Variable& x, int i, int j);
/// The same numbers under another shape.
Variable reshape(const Variable& x, const Shape& shape);
/// Tokens [begin, end) of a row x [1, seq_len, ...] -> [1, end - begin, ...]
Variable slice(const Variable& x, Index begin, Index end);
/// One row behind the other: [1, n, ...] each, alike beyond n -> [1, sum of n, ...]. Throws for
/// none.
Variable concatenate(std::span<const Variable> parts);
/// Row ids[t] of weight [rows, width] -> ids_shape + [width].  ids outside [0, rows) throw.
Variable embedding(const Weight& weight, std::span<const std::int32_t> ids, const Shape& ids_shape);

// ---- normalisation, softmax --------------------------------------------------------------------

/// (x - mean) / sqrt(var + eps) * weight + bias over the last dimension; bias may be undefined.
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, Real eps);
/// x / sqrt(mean(x^2) + eps) * weight over the last dimension (Zhang, Sennrich 2019)
Variable rms_norm(const Variable& x, const Variable& weight, Real eps);
/// e^x / sum e^x over the last dimension. A row of -inf only gives zeros.
Variable softmax(const Variable& x);
/// log sum e^x over the last dimension: [..., n] -> [...]
Variable log_sum_exp(const Variable& x);

// ---- transformer pieces ------------------------------------------------------------------------

/// Cosines and sines of rotary position embeddings for positions 0..seq_len-1.
struct RotaryTable {
  Tensor cos;  // [seq_len, rotary_dim / 2]
  Tensor sin;  // [seq_len, rotary_dim / 2]
};
/// Rotates the first rotary_dim numbers of each head by their position, half-split pairs
/// (x_i, x_{i + rotary_dim/2}) as in transformers; each sequence starts at `first_position`.
/// x [batch, seq_len, heads, head_dim]
Variable rope(const Variable& x, const RotaryTable& table, Index first_position = 0);

struct AttentionOptions {
  Real scale = 1;            // on q·k
  Real softcap = 0;          // c: scores become c tanh(s / c); 0: none
  Index sliding_window = 0;  // keys a token sees, itself included; 0: all before it
  /// In training: the weights [batch * heads, seq_len, seq_len] after the softmax are dropped as
  /// dropout(weights, dropout, dropout_key) drops them (GPT-2's attn_pdrop).
  double dropout = 0;
  std::uint64_t dropout_key = 0;
  /// With what the operands of all products are rounded to bf16 and multiplied, sums and the
  /// softmax staying Real; null: nothing is rounded. Only where a far zone is read as columns
  /// (summary_attention) it is not looked at.
  const simd::Bf16Kernels* bf16 = nullptr;
  /// Where one row [1, seq_len, ...] holds several documents one after the other: their first
  /// tokens, from 0 on, and seq_len. No token sees another document. Null: each row is one.
  std::shared_ptr<const std::vector<Index>> documents = {};
};
/// Causal softmax(scale q kᵀ) v, grouped-query where q has more heads than k and v.
/// q [batch, seq_len, heads, head_dim], k and v [batch, seq_len, kv_heads, head_dim] -> like q.
Variable attention(const Variable& q, const Variable& k, const Variable& v,
                   const AttentionOptions& options);

/// sum (x - reference)^2 / sum reference^2, the reference a constant shaped like x -> [1]
Variable relative_squared_error(const Variable& x, const Tensor& reference);

/// Mean of -log softmax(x Wᵀ)[target] over the rows whose target is >= 0: output head and loss in
/// one, computed in chunks of rows so that the [rows, vocab] matrix never exists in full, in
/// forward or in backward. With a softcap c the logits are c tanh(x Wᵀ / c); 0: none.
/// x [..., hidden], weight [vocab, hidden], one target per row -> [1]
Variable linear_cross_entropy(const Variable& x, const Weight& weight,
                              std::span<const std::int32_t> targets, Real softcap = 0);
/// The sum of such losses, each times its row's weight, a constant that may be negative -> [1]
Variable weighted_cross_entropy(const Variable& x, const Weight& weight,
                                std::span<const std::int32_t> targets,
                                std::span<const Real> weights, Real softcap = 0);
/// The same per row without a graph: -log softmax(x Wᵀ)[target], 0 where the target is negative.
std::vector<double> linear_cross_entropy_rows(const Tensor& x, const Weight& weight,
                                              std::span<const std::int32_t> targets,
                                              Real softcap = 0);

/// Mean over rows of KL(softmax(reference Vᵀ) || softmax(x Wᵀ)), soft-capped as above; likewise in
/// chunks of rows. reference, shaped like x, and V, shaped like W, are constants. Where V is null
/// it is W, a constant too. -> [1]
Variable linear_kl_divergence(const Variable& x, const Tensor& reference, const Weight& weight,
                              Real softcap = 0, const Weight* reference_weight = nullptr);
/// The same per row without a graph, V = W.
std::vector<double> linear_kl_divergence_rows(const Tensor& x, const Tensor& reference,
                                              const Weight& weight, Real softcap = 0);

}  // namespace focus
