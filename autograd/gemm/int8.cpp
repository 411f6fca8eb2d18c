#include "autograd/gemm/int8.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "autograd/check.h"
#include "autograd/parallel.h"

namespace focus {
namespace {

constexpr Real kMostInt8 = 127;

/// The largest magnitude of a row; NaN or infinity where a number is. Of bits, which the compiler
/// turns into vectors, and which keep a NaN the largest.
Real largest_magnitude(const Real* row, Index n) {
  using Bits = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits kAllButSign = std::numeric_limits<Bits>::max() >> 1;
  Bits largest = 0;
  for (Index i = 0; i < n; ++i)
    largest = std::max(largest, std::bit_cast<Bits>(row[i]) & kAllButSign);
  return std::bit_cast<Real>(largest);
}

/// Returns the scale.
Real round_row(const Real* row, Index n, Real largest, std::int8_t* to) {
  Real scale = largest / kMostInt8;
  if (std::isinf(scale * kMostInt8)) scale = std::nextafter(scale, Real(0));  // it was rounded up
  if (scale == 0) {
    std::fill_n(to, n, std::int8_t{0});
    return 0;
  }
  for (Index i = 0; i < n; ++i)  // an inexact scale may put one beyond
    to[i] =
        static_cast<std::int8_t>(std::clamp(std::nearbyint(row[i] / scale), -kMostInt8, kMostInt8));
  return scale;
}

/// Apart: the pool rounds sizes up, and weights are often powers of two.
struct Int8Memory {
  explicit Int8Memory(const MatrixView& view)
      : scales(pooled_buffer(static_cast<std::size_t>(view.rows) * sizeof(Real))),
        numbers(pooled_buffer(static_cast<std::size_t>(view.rows * view.cols))) {}
  std::shared_ptr<void> scales, numbers;
};

}  // namespace

Int8Matrix rounded_to_int8(const MatrixView& from, const std::string& name) {
  const auto memory = std::make_shared<const Int8Memory>(from);
  auto* const scales = static_cast<Real*>(memory->scales.get());
  auto* const numbers = static_cast<std::int8_t*>(memory->numbers.get());
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
      scales[i] = round_row(row, from.cols, largest, numbers + i * from.cols);
    }
  });
  check(refused == from.rows,
        "int8: row {} of the {} holds NaN or infinity, which no scale can hold: use float32",
        refused.load(), name.empty() ? "matrix" : "weight " + name);
  return {.view = {.data = numbers,
                   .format = NumberFormat::int8,
                   .rows = from.rows,
                   .cols = from.cols,
                   .pitch = from.cols,
                   .scales = scales},
          .owner = memory};
}

}  // namespace focus
