#include "autograd/gemm/int8.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <type_traits>

#include "autograd/base/aligned_vector.h"
#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/blocked_product.h"
#include "autograd/gemm/packed_product.h"

namespace focus {
namespace {

constexpr Real kMostInt8 = 127;

/// Returns the scale.
Real round_row(const Real* row, Index n, Real largest, std::int8_t* to) {
  const Real scale = int8_scale(largest);
  if (scale == 0) {
    std::fill_n(to, n, std::int8_t{0});
    return 0;
  }
  for (Index i = 0; i < n; ++i) to[i] = static_cast<std::int8_t>(nearest_step(row[i], scale));
  return scale;
}

/// Bytes are multiplied four at a time.
Index whole_fours(Index n) { return (n + 3) / 4 * 4; }

/// Apart: the pool rounds sizes up, and weights are often powers of two.
struct Int8Memory {
  explicit Int8Memory(const MatrixView& view)
      : scales(pooled_buffer(static_cast<std::size_t>(view.rows) * sizeof(Real))),
        numbers(pooled_buffer(static_cast<std::size_t>(view.rows * whole_fours(view.cols)))) {}
  std::shared_ptr<void> scales, numbers;
};

/// Rows of A as the kernels multiply them.
class RoundedRows {
 public:
  RoundedRows(Index m, Index n, const Real* a, Index lda, const simd::Int8Kernels& kernels)
      : pitch_(whole_fours(n)),
        scales_(pooled_buffer(static_cast<std::size_t>(m) * sizeof(Real))),
        numbers_(pooled_buffer(static_cast<std::size_t>(m * pitch_))) {
    auto* const scales = static_cast<Real*>(scales_.get());
    auto* const numbers = static_cast<std::uint8_t*>(numbers_.get());
    parallel_chunks(m, rows_per_chunk(n), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Real largest = kernels.largest(a + i * lda, n);
        // What is no number makes its row NaN, whatever the integers are.
        scales[i] = std::isfinite(largest) ? int8_scale(largest) : std::nan("");
        if (scales[i] > 0)
          kernels.round(a + i * lda, n, scales[i], numbers + i * pitch_);
        else
          std::fill_n(numbers + i * pitch_, pitch_, std::uint8_t{128});
      }
    });
  }

  Index pitch() const { return pitch_; }
  const std::uint8_t* row(Index i) const {
    return static_cast<const std::uint8_t*>(numbers_.get()) + i * pitch_;
  }
  Real scale(Index i) const { return static_cast<const Real*>(scales_.get())[i]; }

 private:
  Index pitch_;
  std::shared_ptr<void> scales_, numbers_;
};

/// Depth whose panels stay in the second-level cache while all rows go over them, columns of a
/// panel, and rows whose sums stay in the first.
constexpr Index kBlockDepth = 1024, kColumns = 64, kRowsOfSums = 96;
/// C[m, n] = start + A Wᵀ.
class W8A8Product {
 public:
  W8A8Product(const RoundedRows& rows, const MatrixView& w, const std::int32_t* sums, Start start,
              Real* c, Index ldc, const simd::Int8Kernels& kernels)
      : rows_(rows),
        w_(w),
        numbers_(static_cast<const std::int8_t*>(w.data)),
        sums_(sums),
        start_(start),
        c_(c),
        ldc_(ldc),
        kernels_(kernels) {}

  /// Row i's columns [begin, end).
  void row(Index i, Index begin, Index end) const {
    thread_local AlignedVector<std::int32_t> products;
    products.resize(std::max(products.size(), static_cast<std::size_t>(end - begin)));
    kernels_.dots(end - begin, w_.cols, rows_.row(i), numbers_ + begin * w_.pitch, w_.pitch,
                  products.data());
    finish(i, begin, end - begin, products.data());
  }

  /// Columns [j, j + columns), at most kColumns, of rows [first, first + count).
  void panel(Index first, Index count, Index j, Index columns) const {
    thread_local AlignedVector<Real> packed(static_cast<std::size_t>(kBlockDepth * kColumns));
    thread_local AlignedVector<std::int32_t> products;
    products.resize(std::max(products.size(), static_cast<std::size_t>(count * kColumns)));
    const Index whole = (columns + kernels_.vector - 1) / kernels_.vector * kernels_.vector;
    for (Index p = 0; p < w_.cols; p += kBlockDepth) {
      const Index depth = std::min(kBlockDepth, w_.cols - p);
      kernels_.pack_transposed(numbers_ + j * w_.pitch + p, w_.pitch, columns, depth,
                               packed.data());
      for (Index i = 0; i < count; i += kRowsOfSums) {
        const Index end = std::min(count, i + kRowsOfSums);
        kernels_.product(end - i, whole, depth, rows_.row(first + i) + p, rows_.pitch(),
                         packed.data(), products.data() + i * kColumns, kColumns, p > 0);
        for (Index r = i; r < end && p + depth == w_.cols; ++r)
          finish(first + r, j, columns, products.data() + r * kColumns);
      }
    }
  }

 private:
  /// Of the integers, with A's 128 too much, to C.
  void finish(Index i, Index j, Index columns, const std::int32_t* products) const {
    const Start start = start_.from_column(j);
    Real* const c = c_ + i * ldc_ + j;
    for (Index l = 0; l < columns; ++l) {
      const auto sum = static_cast<std::int32_t>(static_cast<std::uint32_t>(products[l]) -
                                                 128 * static_cast<std::uint32_t>(sums_[j + l]));
      const Real y = static_cast<Real>(sum) * w_.scales[j + l] * rows_.scale(i);
      c[l] = start.add ? c[l] + y : start.in_column(l) + y;
    }
  }

  const RoundedRows& rows_;
  const MatrixView& w_;
  const std::int8_t* numbers_;
  const std::int32_t* sums_;
  Start start_;
  Real* c_;
  Index ldc_;
  const simd::Int8Kernels& kernels_;
};

}  // namespace

Real int8_scale(Real largest) {
  const Real scale = largest / kMostInt8;
  return std::isinf(scale * kMostInt8) ? std::nextafter(scale, Real(0)) : scale;  // was rounded up
}

// Of bits, which the compiler turns into vectors, and which keep a NaN the largest.
Real largest_magnitude(const Real* row, Index n) {
  using Bits = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits kAllButSign = std::numeric_limits<Bits>::max() >> 1;
  Bits largest = 0;
  for (Index i = 0; i < n; ++i)
    largest = std::max(largest, std::bit_cast<Bits>(row[i]) & kAllButSign);
  return std::bit_cast<Real>(largest);
}

Int8Matrix rounded_to_int8(const MatrixView& from, const std::string& name) {
  const auto memory = std::make_shared<const Int8Memory>(from);
  auto* const scales = static_cast<Real*>(memory->scales.get());
  auto* const numbers = static_cast<std::int8_t*>(memory->numbers.get());
  const Index pitch = whole_fours(from.cols);
  std::atomic<Index> refused{from.rows};  // the first row that cannot be rounded
  parallel_chunks(from.rows, rows_at_a_time(from), [&](Index begin, Index end) {
    std::vector<Real> rows(static_cast<std::size_t>((end - begin) * from.cols));
    read_rows(from, begin, end - begin, rows.data());
    for (Index i = begin; i < end; ++i) {
      const Real* row = rows.data() + (i - begin) * from.cols;
      const Real largest = largest_magnitude(row, from.cols);
      if (!std::isfinite(largest)) {
        Index before = refused.load();
        while (i < before && !refused.compare_exchange_weak(before, i)) {
        }
        break;
      }
      scales[i] = round_row(row, from.cols, largest, numbers + i * pitch);
      std::fill(numbers + i * pitch + from.cols, numbers + (i + 1) * pitch, std::int8_t{0});
    }
  });
  check(refused == from.rows,
        "int8: row {} of the {} holds NaN or infinity, which no scale can represent: use float32",
        refused.load(), name.empty() ? "matrix" : "weight " + name);
  return {.view = {.data = numbers,
                   .format = NumberFormat::int8,
                   .rows = from.rows,
                   .cols = from.cols,
                   .pitch = pitch,
                   .scales = scales},
          .owner = memory};
}

std::vector<std::int32_t> row_sums(const MatrixView& view) {
  std::vector<std::int32_t> sums(static_cast<std::size_t>(view.rows));
  parallel_chunks(view.rows, rows_per_chunk(view.cols), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const auto* row = static_cast<const std::int8_t*>(view.data) + i * view.pitch;
      sums[static_cast<std::size_t>(i)] = std::accumulate(row, row + view.cols, 0);
    }
  });
  return sums;
}

void gemm_nt_w8a8(Index m, const Real* a, Index lda, const MatrixView& w, const std::int32_t* sums,
                  Real* c, Index ldc, Start start, const simd::Int8Kernels& kernels) {
  const Index n = w.rows, k = w.cols;
  check(k <= kMostInt8Columns, "w8a8: a matrix has {} columns; 32-bit products allow at most {}", k,
        kMostInt8Columns);
  count_multiply_adds(static_cast<std::uint64_t>(m * n * k));
  if (k == 0) return fill(m, n, c, ldc, start);
  const RoundedRows rows(m, k, a, lda, kernels);
  const W8A8Product product(rows, w, sums, start, c, ldc, kernels);
  if (m <= packed::kFewRows) {
    parallel_runs(n, std::max(kColumns, rows_per_chunk(k)), [&](Index begin, Index end) {
      for (Index i = 0; i < m; ++i) product.row(i, begin, end);
    });
    return;
  }
  for_blocks(m, n, [&](Index first, Index count, Index begin, Index end) {
    for (Index j = begin; j < end; j += kColumns)
      product.panel(first, count, j, std::min(kColumns, end - j));
  });
}

}  // namespace focus
