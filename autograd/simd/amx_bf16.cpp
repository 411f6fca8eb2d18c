// Products by the tiles of machines with AMX: 27 times the peak of vdpbf16ps where both are
// (Emerald Rapids).
#include "autograd/simd/bf16_kernels.h"

#ifndef FOCUS_REAL_DOUBLE
#include <immintrin.h>

namespace focus::simd {
namespace {

#include "autograd/simd/amx_tiles.inc"
#include "autograd/simd/tile_model.inc"
#include "autograd/simd/tile_product.inc"

struct AmxBf16 {
  using Sum = float;
  template <int c>
  static void add() {
    if constexpr (c == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (c == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (c == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (c == 3) _tile_dpbf16ps(3, 5, 7);
  }
};

}  // namespace

extern const Bf16Kernels avx512_bf16_kernels;

// Odd sizes, so that every kind of edge is in it.
bool amx_agrees_with_its_model() {
  constexpr Index kRows = 53, kDepth = 90, kColumns = 80;
  alignas(64) static Bf16 a[kRows * kDepth], b[kDepth * kColumns];
  alignas(64) static float packed[kDepth * kColumns];
  static float by_tiles[kRows * kColumns], by_model[kRows * kColumns];
  std::uint32_t state = 1;
  const auto draw = [&](Bf16* to, Index n) {
    for (Index i = 0; i < n; ++i) {
      state = state * 1664525u + 1013904223u;
      to[i] = static_cast<Bf16>((state >> 16 & 0x80ffu) | 0x3f00u);  // 0.5 to 2, either sign
    }
  };
  draw(a, kRows * kDepth);
  draw(b, kDepth * kColumns);
  avx512_bf16_kernels.pack(b, kColumns, kDepth, kColumns, packed);
  for (int time = 0; time < 2; ++time) {
    const bool add = time > 0;
    const Bf16Panels panels{packed, kDepth, kColumns};
    bf16_tile_product<AmxTiles<AmxBf16>>(kRows, kColumns, kDepth, a, kDepth, panels, by_tiles,
                                         kColumns, add);
    bf16_tile_product<ModelTiles<ModelBf16>>(kRows, kColumns, kDepth, a, kDepth, panels, by_model,
                                             kColumns, add);
  }
  return __builtin_memcmp(by_tiles, by_model, sizeof(by_tiles)) == 0;
}

namespace {

void round(const float* source, Index n, Bf16* to) { avx512_bf16_kernels.round(source, n, to); }
void pack(const Bf16* source, Index pitch, Index depth, Index columns, void* packed) {
  avx512_bf16_kernels.pack(source, pitch, depth, columns, packed);
}
void pack_transposed(const Bf16* source, Index pitch, Index columns, Index depth, void* packed) {
  avx512_bf16_kernels.pack_transposed(source, pitch, columns, depth, packed);
}
void transpose(const Bf16* source, Index pitch, Index rows, Index cols, Bf16* to, Index to_pitch) {
  avx512_bf16_kernels.transpose(source, pitch, rows, cols, to, to_pitch);
}
void round_transposed(const float* source, Index ld, Index rows, Index cols, Bf16* to,
                      Index to_pitch) {
  avx512_bf16_kernels.round_transposed(source, ld, rows, cols, to, to_pitch);
}

}  // namespace

extern const Bf16Kernels amx_bf16_kernels;
const Bf16Kernels amx_bf16_kernels = {
    .name = "amx_bf16",
    .vector = 16,
    .pays = true,
    .three_pay = true,
    .round = round,
    .pack = pack,
    .pack_transposed = pack_transposed,
    .transpose = transpose,
    .round_transposed = round_transposed,
    .product = bf16_tile_product<AmxTiles<AmxBf16>>,
    .product_from = bf16_tile_product_from<AmxTiles<AmxBf16>>,
};

}  // namespace focus::simd
#endif
