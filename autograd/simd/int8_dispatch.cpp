#include <algorithm>

#include "autograd/base/aligned_vector.h"
#include "autograd/gemm/int8.h"
#include "autograd/simd/choose.h"
#include "autograd/simd/int8_kernels.h"
#include "autograd/simd/kernels.h"
#include "autograd/simd/processor.h"

namespace focus::simd {
namespace {

// Where there is no instruction for it: by the kernels for Real, both sides widened, in steps of
// depth whose sums a float holds exactly.

constexpr Index kExactDepth = 512;
static_assert(kExactDepth * 255 * 127 <= 1 << 24);

void round(const Real* source, Index n, Real scale, std::uint8_t* to) {
  for (Index i = 0; i < n; ++i)
    to[i] = static_cast<std::uint8_t>(nearest_step(source[i], scale) + 128);
  std::fill(to + n, to + (n + 3) / 4 * 4, std::uint8_t{128});
}

/// source[rows, cols] as Real, rows one after the other; valid until the thread's next call.
template <class Number>
Real* widened(const Number* source, Index pitch, Index rows, Index cols) {
  thread_local AlignedVector<Real> block;
  block.resize(std::max(block.size(), static_cast<std::size_t>(rows * cols)));
  for (Index i = 0; i < rows; ++i) std::copy_n(source + i * pitch, cols, block.begin() + i * cols);
  return block.data();
}

void pack_transposed(const std::int8_t* source, Index pitch, Index columns, Index depth,
                     void* packed) {
  kernels().pack_transposed(widened(source, pitch, columns, depth), depth, columns, depth, 1,
                            static_cast<Real*>(packed));
}

void product(Index m, Index columns, Index depth, const std::uint8_t* a, Index a_pitch,
             const void* packed, std::int32_t* c, Index ldc, bool add) {
  thread_local AlignedVector<Real> sums;
  sums.resize(std::max(sums.size(), static_cast<std::size_t>(m * columns)));
  const Panels panels{static_cast<const Real*>(packed), depth, columns};
  for (Index p = 0; p < depth; p += kExactDepth) {
    const Index step = std::min(kExactDepth, depth - p);
    kernels().product(m, columns, step, widened(a + p, a_pitch, m, step), step, 1, panels, p,
                      sums.data(), columns, false);
    for (Index i = 0; i < m; ++i)
      for (Index j = 0; j < columns; ++j) {
        const auto sum = static_cast<std::uint32_t>(
            static_cast<std::int32_t>(sums[static_cast<std::size_t>(i * columns + j)]));
        const auto before = static_cast<std::uint32_t>(c[i * ldc + j]);
        c[i * ldc + j] = static_cast<std::int32_t>(add || p > 0 ? before + sum : sum);
      }
  }
}

void dots(Index columns, Index depth, const std::uint8_t* a, const std::int8_t* b, Index pitch,
          std::int32_t* c) {
  for (Index j = 0; j < columns; ++j) {
    std::uint32_t sum = 0;
    for (Index p = 0; p < depth; ++p) sum += static_cast<std::uint32_t>(a[p] * b[j * pitch + p]);
    c[j] = static_cast<std::int32_t>(sum);
  }
}

}  // namespace

#ifndef FOCUS_REAL_DOUBLE
extern const Int8Kernels avx512_vnni_kernels;
// amx_int8.cpp
bool amx_int8_agrees_with_its_model();
void amx_int8_product(Index m, Index columns, Index depth, const std::uint8_t* a, Index a_pitch,
                      const void* packed, std::int32_t* c, Index ldc, bool add);
#endif

Int8KernelList usable_int8_kernels() {
  static const Int8Kernels widening = {
      .name = "widened",
      .vector = kernels().vector,
      .largest = largest_magnitude,
      .round = round,
      .pack_transposed = pack_transposed,
      .product = product,
      .dots = dots,
  };
  Int8KernelList list{};
  const auto add = [&](const Int8Kernels& one) { list.items[list.count++] = &one; };
#ifndef FOCUS_REAL_DOUBLE
  static const bool amx =
      has_avx512_vnni() && may_use_tiles(TileProducts::int8) && amx_int8_agrees_with_its_model();
  static const Int8Kernels by_tiles = [] {
    Int8Kernels kernels = avx512_vnni_kernels;
    kernels.name = "amx_int8";
    kernels.product = amx_int8_product;
    return kernels;
  }();
  if (amx) add(by_tiles);
  if (has_avx512_vnni()) add(avx512_vnni_kernels);
#endif
  add(widening);
  return list;
}

const Int8Kernels& int8_kernels() {
  static const Int8Kernels& chosen = chosen_kernels(usable_int8_kernels(), "FOCUS_INT8");
  return chosen;
}

}  // namespace focus::simd
