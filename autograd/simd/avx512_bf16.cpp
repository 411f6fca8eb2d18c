// The kernels of machines with AVX512_BF16: vdpbf16ps adds the products of two bf16 pairs to a
// float. Subnormal numbers count as zero in it.
#include "autograd/simd/bf16_kernels.h"

#ifndef FOCUS_REAL_DOUBLE
#include <immintrin.h>

namespace focus::simd {
namespace {

constexpr Index kVector = 16;
constexpr Index kPanelVectors = 4;
constexpr Index kPanel = kVector * kPanelVectors;
constexpr int kRowsAtOnce = 6;
/// Pairs of depth at a time: a panel of that many stays in the first-level cache.
constexpr Index kPairs = 96;

#define FOCUS_INLINE inline __attribute__((always_inline))

FOCUS_INLINE int load_pair(const Bf16* p) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return pair;
}

template <int kRows, int kColumns>
FOCUS_INLINE void micro(Index pairs, const Bf16* a, Index a_pitch, const Pair* b, Index b_row,
                        float* c, Index ldc, Keep start) {
  __m512 sum[kRows][kColumns];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kColumns; ++j)
      sum[i][j] = start.any              ? _mm512_loadu_ps(c + i * ldc + j * kVector)
                  : start.row != nullptr ? _mm512_loadu_ps(start.row + j * kVector)
                                         : _mm512_setzero_ps();
  for (Index p = 0; p < pairs; ++p) {
    __m512bh row[kColumns];
    for (int j = 0; j < kColumns; ++j)
      row[j] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + j * kVector));
    b += b_row;
    for (int i = 0; i < kRows; ++i) {
      const auto x =
          reinterpret_cast<__m512bh>(_mm512_set1_epi32(load_pair(a + i * a_pitch + 2 * p)));
      for (int j = 0; j < kColumns; ++j) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], x, row[j]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kColumns; ++j) _mm512_storeu_ps(c + i * ldc + j * kVector, sum[i][j]);
}

template <int kColumns>
void panel_product(Index m, Index pairs, const Bf16* a, Index a_pitch, const Pair* b, Index b_row,
                   float* c, Index ldc, Keep start) {
  Index i = 0;
  for (; i + kRowsAtOnce <= m; i += kRowsAtOnce)
    micro<kRowsAtOnce, kColumns>(pairs, a + i * a_pitch, a_pitch, b, b_row, c + i * ldc, ldc,
                                 start);
  for (; i + 2 <= m; i += 2)
    micro<2, kColumns>(pairs, a + i * a_pitch, a_pitch, b, b_row, c + i * ldc, ldc, start);
  if (i < m) micro<1, kColumns>(pairs, a + i * a_pitch, a_pitch, b, b_row, c + i * ldc, ldc, start);
}

void product(Index m, Index columns, Index depth, const Bf16* a, Index a_pitch, const Bf16Panels& b,
             float* c, Index ldc, Keep start) {
  const Index pairs = (depth + 1) / 2;
  for (Index column = 0; column < columns;) {
    const Index at = b.first_column + column, begin = at / kPanel * kPanel;
    const Index width = b.columns - begin < kPanel ? b.columns - begin : kPanel;
    const Index left = begin + width - at;
    const Index vectors = (columns - column < left ? columns - column : left) / kVector;
    const Pair* panel = static_cast<const Pair*>(b.data) + begin * ((b.rows + 1) / 2) +
                        b.first_row / 2 * width + at - begin;
    for (Index p = 0; p < pairs; p += kPairs) {
      const Index n = pairs - p < kPairs ? pairs - p : kPairs;
      const auto run = [&](auto panel_kernel) {
        panel_kernel(m, n, a + 2 * p, a_pitch, panel + p * width, width, c + column, ldc,
                     p > 0                  ? Keep{.any = true}
                     : start.row != nullptr ? Keep{.row = start.row + column}
                                            : start);
      };
      switch (vectors) {
        case 4:
          run(panel_product<4>);
          break;
        case 3:
          run(panel_product<3>);
          break;
        case 2:
          run(panel_product<2>);
          break;
        default:
          run(panel_product<1>);
      }
    }
    column += vectors * kVector;
  }
}

/// Calls f(panel's first column, its width in columns, its place) for each panel.
template <class F>
FOCUS_INLINE void for_panels(Index pairs, Index columns, F&& f) {
  const Index whole = (columns + kVector - 1) / kVector * kVector;
  for (Index column = 0; column < whole; column += kPanel)
    f(column, whole - column < kPanel ? whole - column : kPanel, column * pairs);
}

FOCUS_INLINE __mmask16 first_lanes(Index n) {
  return static_cast<__mmask16>(n >= kVector ? 0xffff : (1 << (n > 0 ? n : 0)) - 1);
}

/// Exchanges rows and columns of 16 vectors, in rounds: round s swaps the blocks of s x s off the
/// diagonal (Eklundh 1972).
template <int s>
FOCUS_INLINE void swap_blocks(__m512i* v) {
  alignas(64) int low[kVector], high[kVector];
  for (int lane = 0; lane < kVector; ++lane) {
    const bool second = (lane & s) != 0;
    low[lane] = second ? 16 + lane - s : lane;
    high[lane] = second ? 16 + lane : lane + s;
  }
  const __m512i take_low = _mm512_load_si512(low), take_high = _mm512_load_si512(high);
  for (int i = 0; i < kVector; ++i) {
    if ((i & s) != 0) continue;
    const __m512i a = v[i], b = v[i + s];
    v[i] = _mm512_permutex2var_epi32(a, take_low, b);
    v[i + s] = _mm512_permutex2var_epi32(a, take_high, b);
  }
  if constexpr (2 * s < kVector) swap_blocks<2 * s>(v);
}

/// A row of pairs of two rows; where there is no second one, with zero.
FOCUS_INLINE __m512i pairs_of_rows(const Bf16* even, const Bf16* odd, __mmask16 there,
                                   bool odd_there) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, even));
  const __m512i high =
      _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(odd_there ? there : __mmask16{0}, odd));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

void pack(const Bf16* source, Index pitch, Index depth, Index columns, void* packed) {
  for_panels((depth + 1) / 2, columns, [&](Index column, Index width, Index place) {
    Pair* to = static_cast<Pair*>(packed) + place;
    for (Index p = 0; p < depth; p += 2, to += width) {
      const Bf16* even = source + p * pitch + column;
      for (Index j = 0; j < width; j += kVector) {
        const __mmask16 there = first_lanes(columns - column - j);
        _mm512_storeu_si512(to + j,
                            pairs_of_rows(even + j, even + pitch + j, there, p + 1 < depth));
      }
    }
  });
}

void pack_transposed(const Bf16* source, Index pitch, Index columns, Index depth, void* packed) {
  const Index pairs = (depth + 1) / 2;
  for_panels(pairs, columns, [&](Index column, Index width, Index place) {
    Pair* panel = static_cast<Pair*>(packed) + place;
    for (Index j = 0; j < width; j += kVector)
      for (Index p = 0; p < pairs; p += kVector) {
        const __mmask16 there = first_lanes(pairs - p);
        __m512i v[kVector];
        for (Index i = 0; i < kVector; ++i)
          v[i] = column + j + i < columns
                     ? _mm512_maskz_loadu_epi32(there, source + (column + j + i) * pitch + 2 * p)
                     : _mm512_setzero_si512();
        swap_blocks<1>(v);
        for (Index i = 0; i < kVector && p + i < pairs; ++i)
          _mm512_storeu_si512(panel + (p + i) * width + j, v[i]);
      }
  });
}

// Two rows of the source are a row of pairs, and 16 of those and 16 columns a block whose exchange
// is 32 numbers of 16 rows of the result: a cache line each.
void transpose(const Bf16* source, Index pitch, Index rows, Index cols, Bf16* to, Index to_pitch) {
  for (Index i = 0; i < rows; i += 2 * kVector)
    for (Index j = 0; j < cols; j += kVector) {
      const __mmask16 there = first_lanes(cols - j);
      __m512i v[kVector];
      for (Index p = 0; p < kVector; ++p) {
        const Index row = i + 2 * p;
        const Bf16* even = source + row * pitch + j;
        v[p] = row < rows ? pairs_of_rows(even, even + pitch, there, row + 1 < rows)
                          : _mm512_setzero_si512();
      }
      swap_blocks<1>(v);
      const Index left = rows - i;
      const __mmask32 wanted = left >= 2 * kVector ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
      for (Index c = 0; c < kVector && j + c < cols; ++c)
        _mm512_mask_storeu_epi16(to + (j + c) * to_pitch + i, wanted, v[c]);
    }
}

/// By integers, for any number; in the lower half of each lane.
FOCUS_INLINE __m512i nearest_by_integers(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
  return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), high,
                              _mm512_set1_epi32(0x40));
}

/// The nearest bf16 of 16 numbers. The instruction for it takes subnormal numbers for zero, and
/// stored weights should not depend on the machine.
FOCUS_INLINE bool any_subnormal(__m512 x) { return _mm512_fpclass_ps_mask(x, 0x20) != 0; }
FOCUS_INLINE __m256i nearest(__m512 x) {
  if (any_subnormal(x)) [[unlikely]]
    return _mm512_cvtepi32_epi16(nearest_by_integers(x));
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
}
/// Interleaves two rows to a row of pairs.
FOCUS_INLINE __m512i nearest_pairs(__m512 even, __m512 odd) {
  if (any_subnormal(even) || any_subnormal(odd)) [[unlikely]]
    return _mm512_or_si512(nearest_by_integers(even),
                           _mm512_slli_epi32(nearest_by_integers(odd), 16));
  alignas(64) static constexpr std::uint16_t kInterleaved[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kInterleaved),
                                  reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even)));
}

void round(const float* source, Index n, Bf16* to) {
  Index i = 0;
  for (; i + kVector <= n; i += kVector)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), nearest(_mm512_loadu_ps(source + i)));
  if (i < n) {
    const __mmask16 there = first_lanes(n - i);
    _mm256_mask_storeu_epi16(to + i, there, nearest(_mm512_maskz_loadu_ps(there, source + i)));
  }
}

// transpose()'s blocks, their pairs rounded on the way.
void round_transposed(const float* source, Index ld, Index rows, Index cols, Bf16* to,
                      Index to_pitch) {
  for (Index i = 0; i < rows; i += 2 * kVector)
    for (Index j = 0; j < cols; j += kVector) {
      const __mmask16 there = first_lanes(cols - j);
      const auto row = [&](Index r) {
        return _mm512_maskz_loadu_ps(r < rows ? there : __mmask16{0}, source + r * ld + j);
      };
      __m512i v[kVector];
      for (Index p = 0; p < kVector; ++p) v[p] = nearest_pairs(row(i + 2 * p), row(i + 2 * p + 1));
      swap_blocks<1>(v);
      const __mmask16 wanted = first_lanes((rows - i + 1) / 2);
      for (Index c = 0; c < kVector && j + c < cols; ++c)
        _mm512_mask_storeu_epi32(to + (j + c) * to_pitch + i, wanted, v[c]);
    }
}

}  // namespace

extern const Bf16Kernels avx512_bf16_kernels;
const Bf16Kernels avx512_bf16_kernels = {
    .name = "avx512_bf16",
    .vector = kVector,
    .is_faster = true,
    .round = round,
    .pack = pack,
    .pack_transposed = pack_transposed,
    .transpose = transpose,
    .round_transposed = round_transposed,
    .product = product,
};

}  // namespace focus::simd
#endif
