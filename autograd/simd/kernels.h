#pragma once

#include <type_traits>
#include <vector>

#include "autograd/base/types.h"

// The hot loops, compiled once for each instruction set and chosen when the program starts: the
// best that the machine has. All of them take plain pointers and run on the calling thread.
namespace focus::simd {

/// Instruction sets that kernels are compiled for and this process may use.
struct Instructions {
  bool avx2 = false, avx512 = false;
  // On top of AVX-512:
  bool vnni = false, bf16 = false;
  bool amx_bf16 = false;  // with bf16
  /// Operands are rounded to bf16 where asked, also where that makes products no faster.
  bool always_bf16 = false;
};

/// What the environment variable FOCUS_SIMD leaves of `all`. Its value is words with commas between
/// them: at most one of baseline, avx2 and avx512, which is the highest level to use, and any of
/// no-vnni, no-bf16, no-amx and always-bf16. Throws std::runtime_error for other words and for a
/// level that `all` does not have.
Instructions selected(Instructions all, const char* words);
/// Those of this processor, as FOCUS_SIMD selects. Throws as selected() does: programs call it, or
/// kernels(), once before they start threads.
const Instructions& instructions();

// The kernels of element-wise ops and of rows, and of products in double: one pass over memory
// each. They take any n, and an output may be one of the inputs. What they sum is summed in double.

/// What AdamW::step multiplies with; see optim/adamw.h.
struct AdamWFactors {
  Real gradient_scale;
  Real beta1, one_minus_beta1;
  Real beta2, one_minus_beta2;
  Real keep;             // 1 - lr * weight_decay
  Real step_size;        // lr / (1 - beta1^t)
  Real root_correction;  // sqrt(1 - beta2^t)
  Real eps;
};

struct ElementwiseKernels {
  /// y = f(x), and dx = f'(x) dy.
  struct Function {
    void (*value)(const Real* x, Real* y, Index n);
    void (*gradient)(const Real* x, const Real* dy, Real* dx, Index n);
  };
  Function sigmoid, tanh, log, silu, gelu, gelu_tanh;

  /// y = a + b,  y = a * b,  y = factor x + offset
  void (*add)(const Real* a, const Real* b, Real* y, Index n);
  void (*multiply)(const Real* a, const Real* b, Real* y, Index n);
  void (*affine)(const Real* x, Real factor, Real offset, Real* y, Index n);
  /// y = gate sigmoid(gate) up, and its gradients; one that is null is not computed.
  void (*swiglu)(const Real* gate, const Real* up, Real* y, Index n);
  void (*swiglu_gradient)(const Real* gate, const Real* up, const Real* dy, Real* dgate, Real* dup,
                          Index n);

  /// y = e^(x - max), where y is not null; returns its sum. A row of -inf only gives zeros.
  double (*exp_sum)(const Real* x, Real* y, Index n, Real& max);
  /// y = factor e^(x - shift)
  void (*exp_shifted)(const Real* x, Real shift, Real factor, Real* y, Index n);
  /// dx = p (dy - p·dy)
  void (*softmax_gradient)(const Real* p, const Real* dy, Real* dx, Index n);

  /// y = (x - mean) / sqrt(var + eps) * weight + bias; bias may be null. Not centred: the mean is
  /// taken as 0. Leaves mean and 1 / sqrt(var + eps) behind.
  void (*norm)(const Real* x, const Real* weight, const Real* bias, bool centred, Real eps, Real* y,
               Index n, Real& mean, Real& inverse_std);
  /// dx =, dweight +=, dbias +=; one that is null is not computed.
  void (*norm_gradient)(const Real* x, const Real* weight, const Real* dy, bool centred, Real mean,
                        Real inverse_std, Real* dx, Real* dweight, Real* dbias, Index n);

  /// Rotates the pairs (x_i, x_{i + half}) of each head by the angles whose cosines and sines are
  /// given, times direction (1 or -1). x and y do not overlap.
  void (*rope)(const Real* x, const Real* cos, const Real* sin, Real direction, Index heads,
               Index head_dim, Index half, Real* y);

  /// sum[columns] = the sum of x's rows, x [rows, columns], in Real.
  void (*sum_rows)(const Real* x, Index rows, Index columns, Real* sum);
  double (*sum_of_squares)(const Real* x, Index n);
  /// c[m, n] = a[m, k] b[k, n] in double, for small n or k. a's element (i, p) lies at
  /// a[i * a_row + p * a_column].
  void (*product_in_double)(Index m, Index n, Index k, const double* a, Index a_row, Index a_column,
                            const double* b, double* c);
  void (*adamw)(Real* value, Real* m, Real* v, const Real* gradient, Index n,
                const AdamWFactors& factors);
};

// Those of products and of attention.

/// Rows of C that the micro-kernel holds in registers.
inline constexpr Index kMicroRows = 6;

/// An integer as wide as Real: vectors of both have the same lanes.
using Lane = std::conditional_t<sizeof(Real) == 4, std::int32_t, std::int64_t>;

/// Independent chains of multiply_add_peak: enough to cover the latency of two units.
inline constexpr Index kPeakChains = 12;

/// A matrix packed as the right-hand side of a product: panels of `panel` columns, each panel's
/// rows one after the other, so that the micro-kernel reads memory in order. Columns are padded
/// with zeros to a multiple of the vector's width.
template <class T>
struct PanelsOf {
  const T* data = nullptr;
  Index rows = 0;          // depth of the product
  Index columns = 0;       // padded
  Index first_column = 0;  // where a product starts, a multiple of the vector's width
  /// From one row to the next of a matrix that is used as it lies, its columns a multiple of the
  /// vector's width; 0: packed.
  Index stride = 0;
};
using Panels = PanelsOf<Real>;

/// The attention scores of a tile are [keys, queries], so that a vector holds queries: what each of
/// them does along its keys needs no sums across lanes. Of the tile's keys a vector of queries sees
/// those of [begin, end), every one of them those of [all_begin, all_end) within.
struct KeySpan {
  Index begin = 0, all_begin = 0, all_end = 0, end = 0;
};

/// What a gate's numbers, one for each key and query, are multiplied with: the score, or the weight
/// e^score before it is normalised (the same as adding the logarithm to the score, and 0 masks).
enum class GateUse { score, weight };

/// One vector of queries in a tile of scores.
struct ScoreColumn {
  Real* scores = nullptr;  // of the tile's first key
  Index stride = 0;        // from one key to the next, in all matrices of the tile
  KeySpan span;
  const Lane* first = nullptr;  // of each query the first key that it sees
  const Lane* last = nullptr;   // of each query the end of the keys that it sees
  const Real* gate = nullptr;   // none below 0 where it is the weights'; null: no gate
  GateUse gate_use = GateUse::score;
};

/// What becomes of C's rows before a product is added: nothing remains, all (`any`), or factor[i]
/// times row i; or all become `row`, which has as many numbers as C has columns.
struct Keep {
  bool any = false;
  const Real* factor = nullptr;  // null: 1
  const Real* row = nullptr;
};

struct Kernels {
  const char* name;  // "avx512", "avx2", "baseline"
  Index vector;      // numbers in a vector
  Index panel;       // columns of a panel

  /// C[m, columns] = what is kept of it + A[m, depth] B, B's first `columns` (a multiple of
  /// `vector`) alone. A's element (i, p) lies at a[i * a_row + p * a_column], so that A may be a
  /// matrix or its transpose; `first` is the first of B's rows to use, `depth` how many. C has rows
  /// of `ldc` >= columns.
  void (*product)(Index m, Index columns, Index depth, const Real* a, Index a_row, Index a_column,
                  Panels b, Index first, Real* c, Index ldc, Keep keep);
  /// The same with a B that is read once and so comes from memory: its rows to come are fetched
  /// meanwhile. Of Real, or of IEEE's 16-bit floats, widened as they are read.
  void (*product_once)(Index m, Index columns, Index depth, const Real* a, Index a_row,
                       Index a_column, Panels b, Index first, Real* c, Index ldc, Keep keep);
  void (*product_once_f16)(Index m, Index columns, Index depth, const Real* a, Index a_row,
                           Index a_column, PanelsOf<std::uint16_t> b, Index first, Real* c,
                           Index ldc, Keep keep);
  /// source[rows, columns] with rows of `ld` numbers, times factor, into panels.
  void (*pack)(const Real* source, Index ld, Index rows, Index columns, Real factor, Real* panels);
  /// The transpose of source[columns, rows] with rows of `ld` numbers, times factor, into panels of
  /// depth `rows`.
  void (*pack_transposed)(const Real* source, Index ld, Index columns, Index rows, Real factor,
                          Real* panels);
  /// The same, column j of the transpose being row `rows_of[j]` of the source.
  void (*pack_gathered)(const Real* source, Index ld, const Index* rows_of, Index columns,
                        Index rows, Real factor, Real* panels);

  /// to[i] = source[i] for n numbers of bf16 or of IEEE's 16-bit floats.
  void (*widen_bf16)(const Bf16* source, Index n, Real* to);
  void (*widen_f16)(const std::uint16_t* source, Index n, Real* to);
  /// The nearest IEEE 16-bit floats of n numbers; finite ones beyond the largest become that.
  void (*round_f16)(const Real* source, Index n, std::uint16_t* to);

  /// One query's row of an online softmax over n numbers (a multiple of `vector`), in place: the
  /// row becomes e^(s - max); `max` and `sum` are those of the row so far and are brought up to
  /// date. Returns the factor by which what was summed before has to be multiplied.
  Real (*softmax_row)(Real* row, Index n, Real& max, Real& sum);
  /// A vector of queries in an online softmax: its scores become e^(s - max), times the weights'
  /// gate, those it does not see 0; `max` (of the scores, not of the weights) and `sum` are those
  /// of its keys so far and are brought up to date. `factor` becomes what each query's sum over the
  /// keys before has to be multiplied by.
  void (*softmax_column)(const ScoreColumn& column, Real* max, Real* sum, Real* factor);
  /// The way back: scores become p = e^(s - lse), times the weights' gate, and d, where not null,
  /// p (d - delta) through the scores' gate and the soft-cap (0: none); 0 both for what a query
  /// does not see. d_gate, where not null, gathers the gradient of the gate.
  void (*softmax_column_backward)(const ScoreColumn& column, const Real* lse, const Real* delta,
                                  Real cap, Real* d, Real* d_gate);
  /// s = cap tanh(s / cap) over n numbers.
  void (*softcap_row)(Real* s, Index n, Real cap);
  /// gate = 1 / (1 + e^(-lambda a)) over n numbers.
  void (*sigmoid_row)(const Real* a, Real* gate, Index n, Real lambda);
  /// bias = log(a + floor) over n numbers.
  void (*log_row)(const Real* a, Real* bias, Index n, Real floor);
  /// From the gradient of the gate that sigmoid_row made to that of a, in place.
  void (*sigmoid_row_backward)(const Real* gate, Real* d, Index n, Real lambda);
  /// For each of n columns (a multiple of `vector`) of x [rows, n]: the row of its largest number,
  /// the first of equals.
  void (*largest_rows)(Index rows, Index n, const Real* x, Index stride, Lane* place);
  /// Row i of x [rows, n] becomes x + bias[i], that of y, where not null, y + x + bias[i]; n a
  /// multiple of `vector`.
  void (*bias_rows)(Index rows, Index n, const Real* bias, Real* x, Real* y, Index stride);
  /// Copies `count` rows of n numbers.
  void (*copy_rows)(Index count, Index n, const Real* from, Index from_stride, Real* to,
                    Index to_stride);
  /// y = factor x, or y += factor x, over any n; y may be x.
  void (*scale_row)(const Real* x, Real factor, Index n, Real* y, bool add);
  /// `count` rows of any n numbers, each divided by a number of its own; rows of zeros where that
  /// is 0, whatever x holds.
  void (*divide_rows)(Index count, Index n, const Real* x, Index x_stride, const Real* divisor,
                      Index divisor_stride, Real* y, Index y_stride);
  /// Log-sum-exps of n rows (a multiple of `vector`) that gain others, of which each has the sum of
  /// e^(score - max): lse becomes that of both, and the weighted sums of values go together as
  /// keep[i] y + add[i] x. What was -inf, no keys, is not kept, and a sum of 0 adds nothing.
  void (*merge_sums)(Index n, const Real* max, const Real* sum, Real* lse, Real* keep, Real* add);
  /// `count` rows of any n numbers, y = keep y + add x with numbers of their own; where `add` is 0
  /// y stays, whatever x holds.
  void (*blend_rows)(Index count, Index n, const Real* x, Index x_stride, const Real* keep,
                     const Real* add, Index factor_stride, Real* y, Index y_stride);
  /// The sum of a b over any n.
  Real (*dot_row)(const Real* a, const Real* b, Index n);
  /// The same, bit for bit, with each of `count` rows, `stride` apart, that are read once; of Real
  /// or of IEEE's 16-bit floats.
  void (*dot_rows)(const Real* a, Index count, const Real* rows, Index stride, Index n, Real* sums);
  void (*dot_rows_f16)(const Real* a, Index count, const std::uint16_t* rows, Index stride, Index n,
                       Real* sums);

  /// `rounds` times kPeakChains multiply-adds of a vector, all in registers: what no product can
  /// exceed. The result is there so that the work is done.
  Real (*multiply_add_peak)(Index rounds);

  ElementwiseKernels elementwise;
};

/// The best that this process may use (Instructions); throws as instructions() does.
const Kernels& kernels();
/// All that this process may use, best first.
const std::vector<const Kernels*>& usable_kernels();

/// Columns padded to whole vectors; what a packed matrix of that many columns takes per row.
inline Index padded(const Kernels& k, Index columns) {
  return (columns + k.vector - 1) / k.vector * k.vector;
}

}  // namespace focus::simd
