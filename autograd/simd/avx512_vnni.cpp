// The kernels of machines with AVX512_VNNI: vpdpbusd adds the products of four bytes without a sign
// and four with one to an integer.
#include "autograd/simd/int8_kernels.h"

#ifndef FOCUS_REAL_DOUBLE
#include <immintrin.h>

#include "autograd/simd/lanes.h"

namespace focus::simd {
namespace {

#include "autograd/simd/lane_product.inc"

struct Int8Dot {
  using Sum = std::int32_t;
  using Sums = __m512i;
  static FOCUS_INLINE Sums zero() { return _mm512_setzero_si512(); }
  static FOCUS_INLINE Sums load(const Sum* p) { return _mm512_loadu_si512(p); }
  static FOCUS_INLINE void store(Sum* p, Sums x) { _mm512_storeu_si512(p, x); }
  static FOCUS_INLINE Sums add(Sums sum, __m512i a, __m512i b) {
    return _mm512_dpbusd_epi32(sum, a, b);
  }
};

/// Of bits, of which a NaN's are the largest.
float largest(const float* source, Index n) {
  const __m512i all_but_sign = _mm512_set1_epi32(0x7fffffff);
  __m512i most = _mm512_setzero_si512();
  for (Index i = 0; i < n; i += kVector)
    most = _mm512_max_epi32(
        most,
        _mm512_and_si512(_mm512_maskz_loadu_epi32(first_lanes(n - i), source + i), all_but_sign));
  return __builtin_bit_cast(float, _mm512_reduce_max_epi32(most));
}

void round(const float* source, Index n, float scale, std::uint8_t* to) {
  const __m512 step = _mm512_set1_ps(scale);
  const __m512i most = _mm512_set1_epi32(127), least = _mm512_set1_epi32(-127);
  const Index filled = (n + 3) / 4 * 4;
  for (Index i = 0; i < filled; i += kVector) {
    const __m512 x = _mm512_div_ps(_mm512_maskz_loadu_ps(first_lanes(n - i), source + i), step);
    const __m512i q = _mm512_max_epi32(_mm512_min_epi32(_mm512_cvtps_epi32(x), most), least);
    _mm512_mask_cvtepi32_storeu_epi8(to + i, first_lanes(filled - i),
                                     _mm512_add_epi32(q, _mm512_set1_epi32(128)));
  }
}

void pack_transposed(const std::int8_t* source, Index pitch, Index columns, Index depth,
                     void* packed) {
  pack_lanes_transposed(source, pitch, columns, (depth + 3) / 4, packed);
}

void product(Index m, Index columns, Index depth, const std::uint8_t* a, Index a_pitch,
             const void* packed, std::int32_t* c, Index ldc, bool add) {
  const Index lanes = (depth + 3) / 4;
  lane_product<Int8Dot>(m, columns, lanes, a, a_pitch, {packed, lanes, columns}, c, ldc,
                        {.c = add});
}

void dots(Index columns, Index depth, const std::uint8_t* a, const std::int8_t* b, Index pitch,
          std::int32_t* c) {
  for (Index j = 0; j < columns; ++j) {
    const std::int8_t* const row = b + j * pitch;
    __m512i sum = _mm512_setzero_si512();
    for (Index p = 0; p < depth; p += 64) {
      const Index left = depth - p;
      const __mmask64 there = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
      sum = _mm512_dpbusd_epi32(sum, _mm512_maskz_loadu_epi8(there, a + p),
                                _mm512_maskz_loadu_epi8(there, row + p));
    }
    c[j] = _mm512_reduce_add_epi32(sum);
  }
}

}  // namespace

extern const Int8Kernels avx512_vnni_kernels;
const Int8Kernels avx512_vnni_kernels = {
    .name = "avx512_vnni",
    .vector = kVector,
    .largest = largest,
    .round = round,
    .pack_transposed = pack_transposed,
    .product = product,
    .dots = dots,
};

}  // namespace focus::simd
#endif
