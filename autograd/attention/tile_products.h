#pragma once

#include "autograd/attention/attention_plan.h"
#include "autograd/base/aligned_vector.h"
#include "autograd/simd/bf16_kernels.h"
#include "autograd/simd/kernels.h"

namespace focus::tiled {

/// How the matrices of a pair of tiles are multiplied: as Real, or both sides rounded to bf16, with
/// sums in Real. What the softmax does is Real in either case.
class TileProducts {
 public:
  TileProducts() = default;
  /// Null: Real; so it is, too, where the vectors of the two kinds of kernels do not fit each
  /// other.
  explicit TileProducts(const simd::Bf16Kernels* bf16)
      : bf16_(bf16 != nullptr && kernels_->vector % bf16->vector == 0 ? bf16 : nullptr) {}

  /// Null where products are of Real.
  const simd::Bf16Kernels* bf16() const { return bf16_; }

  /// x[rows, columns] with rows of `ld` numbers, times factor, as the right-hand side of products:
  /// `to` has room for rows * padded columns numbers.
  void pack(const Real* x, Index ld, Index rows, Index columns, Real factor, Real* to) const {
    if (bf16_ == nullptr) return kernels_->pack(x, ld, rows, columns, factor, to);
    const Index pitch = rounded_pitch(columns);
    const Bf16* rounded = round_rows(x, ld, rows, columns, factor, pitch);
    bf16_->pack(rounded, pitch, rows, columns, to);
  }
  /// The transpose of x[columns, rows] likewise.
  void pack_transposed(const Real* x, Index ld, Index columns, Index rows, Real factor,
                       Real* to) const {
    if (bf16_ == nullptr) return kernels_->pack_transposed(x, ld, columns, rows, factor, to);
    const Index pitch = rounded_pitch(rows);
    const Bf16* rounded = round_rows(x, ld, columns, rows, factor, pitch);
    bf16_->pack_transposed(rounded, pitch, columns, rows, to);
  }

  /// The same of rows that the plan puts in another order: row j of x is rows_of[j].
  void pack_gathered(const Real* x, Index ld, const Index* rows_of, Index columns, Index rows,
                     Real factor, Real* to) const {
    if (bf16_ == nullptr) return kernels_->pack_gathered(x, ld, rows_of, columns, rows, factor, to);
    thread_local AlignedVector<Real> gathered;
    gathered.resize(static_cast<std::size_t>(columns * rows));
    for (Index j = 0; j < columns; ++j)
      kernels_->copy_rows(1, rows, x + rows_of[j] * ld, 0, gathered.data() + j * rows, 0);
    pack_transposed(gathered.data(), rows, columns, rows, factor, to);
  }

  /// C[n, columns] (+)= weights[n, depth] X from X's row `first` on; weights in rows of kQueries,
  /// as scores lie. Where depth is odd, X ends with its rows.
  void rows_times(Index n, Index depth, const Real* weights, const simd::Panels& x, Index first,
                  Index columns, Real* c, Index ldc, bool add) const {
    constexpr Index kRow = AttentionPlan::kQueries;
    if (bf16_ == nullptr)
      return kernels_->product(n, columns, depth, weights, kRow, 1, x, first, c, ldc, {.any = add});
    Bf16* rounded = scratch(n * kRow);
    for (Index i = 0; i < n; ++i)
      bf16_->round(weights + i * kRow, depth + depth % 2, rounded + i * kRow);
    bf16_->product(n, columns, depth, rounded, kRow, {x.data, x.rows, x.columns, first, 0}, c, ldc,
                   {.any = add});
  }

  /// C[n, columns] = factor[i] C (null: 1; `begun` false: nothing) + weightsᵀ X over the span's
  /// rows of both, weights [keys, n] in rows of kQueries. (In bf16 pairs of rows go together: one
  /// beyond the span has a weight of 0.)
  void columns_times(Index n, simd::KeySpan span, const Real* weights, const simd::Panels& x,
                     Index columns, Real* c, Index ldc, bool begun, const Real* factor) const {
    constexpr Index kRow = AttentionPlan::kQueries, kPitch = AttentionPlan::kKeys;
    const Index depth = span.end - span.begin;
    if (bf16_ == nullptr)
      return kernels_->product(n, columns, depth, weights + span.begin * kRow, 1, kRow, x,
                               span.begin, c, ldc,
                               {.any = begun, .factor = begun ? factor : nullptr});
    const Index first = span.begin - span.begin % 2;
    Bf16* rounded = scratch(n * kPitch);
    bf16_->round_transposed(weights + first * kRow, kRow, span.end - first, n, rounded, kPitch);
    for (Index i = 0; first < span.begin && i < n; ++i) rounded[i * kPitch] = 0;
    for (Index i = 0; begun && factor != nullptr && i < n; ++i)
      kernels_->scale_row(c + i * ldc, factor[i], columns, c + i * ldc, false);
    bf16_->product(n, columns, span.end - first, rounded, kPitch,
                   {x.data, x.rows, x.columns, first, 0}, c, ldc, {.any = begun});
  }

  /// Numbers of a row of so many that is rounded: pairs of them are read as one.
  static Index rounded_pitch(Index n) { return n + n % 2; }

 private:
  /// Valid until the thread's next call.
  static Bf16* scratch(Index size) {
    thread_local AlignedVector<Bf16> memory;
    if (memory.size() < static_cast<std::size_t>(size))
      memory.resize(static_cast<std::size_t>(size));
    return memory.data();
  }
  const Bf16* round_rows(const Real* x, Index ld, Index rows, Index columns, Real factor,
                         Index pitch) const {
    Bf16* rounded = scratch(rows * pitch);
    thread_local AlignedVector<Real> scaled;
    scaled.resize(static_cast<std::size_t>(columns));
    for (Index i = 0; i < rows; ++i) {
      const Real* row = x + i * ld;
      if (factor != 1) {
        kernels_->scale_row(row, factor, columns, scaled.data(), false);
        row = scaled.data();
      }
      bf16_->round(row, columns, rounded + i * pitch);
      if (pitch > columns) rounded[i * pitch + columns] = 0;
    }
    return rounded;
  }

  const simd::Kernels* kernels_ = &simd::kernels();
  const simd::Bf16Kernels* bf16_ = nullptr;
};

}  // namespace focus::tiled
