#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "autograd/gemm/bf16.h"
#include "autograd/gemm/frozen_matrix.h"
#include "autograd/gemm/gemm.h"
#include "tests/support/compare.h"

// Matrices as files hold them.
namespace focus {

/// A matrix stored somehow, and the same numbers as Real.
struct Stored {
  std::vector<std::byte> bytes;
  MatrixView view;
  Tensor widened;
};

/// A matrix as it lies.
inline MatrixView view_of(const Tensor& w) {
  return {.data = w.data(), .rows = w.dim(0), .cols = w.dim(1), .pitch = w.dim(1)};
}

/// What a stored number is as Real, the slow way.
inline Real number_at(const MatrixView& view, Index place) {
  const void* at = from_number(view, place).data;
  const auto read = [&]<class T>(T value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (view.format) {
    case NumberFormat::f32:
      return static_cast<Real>(read(0.0f));
    case NumberFormat::f64:
      return static_cast<Real>(read(0.0));
    case NumberFormat::bf16:
      return static_cast<Real>(from_bf16(read(Bf16{})));
    case NumberFormat::f16: {
      const auto bits = read(std::uint16_t{});
      const int exponent = bits >> 10 & 31;
      const double fraction = (bits & 1023) / 1024.0;
      const double size =
          exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
      return static_cast<Real>(bits >> 15 ? -size : size);
    }
    default:
      return 0;
  }
}

struct StoredLayout {
  bool transposed = false;
  Index extra = 0;          // numbers between lines
  Index run = 0, runs = 1;  // rows of a run, of so many fused matrices
};

inline Stored stored(Index rows, Index cols, NumberFormat format, const StoredLayout& layout,
                     std::uint64_t seed) {
  Stored s;
  const Index all_rows = rows * layout.runs;
  const Index lines = layout.transposed ? cols : all_rows;
  const Index pitch = (layout.transposed ? all_rows : cols) + layout.extra;
  s.bytes.resize(bytes_of(format, lines * pitch));
  const Tensor values = randn({lines * pitch}, seed);
  for (Index i = 0; i < lines * pitch; ++i) {
    std::byte* to = s.bytes.data() + bytes_of(format, i);
    const auto put = [&](auto number) { std::memcpy(to, &number, sizeof(number)); };
    const auto x = static_cast<float>(values[i]);
    if (format == NumberFormat::f32) put(x);
    if (format == NumberFormat::f64) put(static_cast<double>(values[i]));
    if (format == NumberFormat::bf16) put(to_bf16(x));
    // Any bits but those of infinities and NaN.
    if (format == NumberFormat::f16)
      put(static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(x) >> 3 & 0x83ff) | (12 + i % 6)
                                                                                           << 10));
  }
  s.view = {.data = s.bytes.data(),
            .format = format,
            .rows = rows,
            .cols = cols,
            .pitch = pitch,
            .transposed = layout.transposed,
            .run = layout.run,
            .run_pitch = layout.run * layout.runs};
  s.widened = Tensor({rows, cols});
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) {
      const Index row = s.view.stored_row(i);
      s.widened.data()[i * cols + j] =
          number_at(s.view, layout.transposed ? j * pitch + row : row * pitch + j);
    }
  return s;
}

inline const std::vector<NumberFormat> kStoredFormats = {NumberFormat::f32, NumberFormat::f64,
                                                         NumberFormat::bf16, NumberFormat::f16};
inline const std::vector<StoredLayout> kStoredLayouts = {{},
                                                         {.extra = 5},
                                                         {.transposed = true},
                                                         {.transposed = true, .extra = 7},
                                                         {.run = 4, .runs = 3},
                                                         {.transposed = true, .run = 4, .runs = 3}};

inline std::string described(NumberFormat format, const StoredLayout& layout) {
  return fmt::format("{}{}{}, {} between lines", name_of(format),
                     layout.transposed ? ", transposed" : "", layout.run > 0 ? ", in runs" : "",
                     layout.extra);
}

inline Tensor all_rows(const FrozenMatrix& matrix) {
  Tensor all(matrix->shape());
  for (Index i = 0; i < all.dim(0); ++i) matrix->row(i, all.data() + i * all.dim(1));
  return all;
}

/// Products with it must have the bits of those with the widened matrix.
inline void expect_products_of_the_widened(const Stored& w, Index m, const std::string& what) {
  const Index rows = w.view.rows, cols = w.view.cols;
  const Tensor x = randn({m, cols}, 1), dy = randn({m, rows}, 2);
  Tensor y({m, rows}), wanted({m, rows}), dx({m, cols}), wanted_dx({m, cols});
  gemm_nt(m, x.data(), cols, w.view, y.data(), rows);
  gemm_nt(m, rows, cols, x.data(), cols, w.widened.data(), cols, wanted.data(), rows);
  EXPECT_TRUE(same_bits(y, wanted)) << what;
  gemm(m, dy.data(), rows, w.view, dx.data(), cols);
  gemm(m, cols, rows, dy.data(), rows, w.widened.data(), cols, wanted_dx.data(), cols);
  EXPECT_TRUE(same_bits(dx, wanted_dx)) << what;
}

}  // namespace focus
