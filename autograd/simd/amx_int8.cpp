// Products of bytes by the tiles of machines with AMX; all else is AVX512_VNNI's.
#include "autograd/simd/int8_kernels.h"

#ifndef FOCUS_REAL_DOUBLE
#include <immintrin.h>

#include "autograd/simd/bf16_kernels.h"

namespace focus::simd {
namespace {

#include "autograd/simd/amx_tiles.inc"
#include "autograd/simd/tile_model.inc"
#include "autograd/simd/tile_product.inc"

struct AmxInt8 {
  using Sum = std::int32_t;
  template <int c>
  static void add() {
    if constexpr (c == 0) _tile_dpbusd(0, 4, 6);
    if constexpr (c == 1) _tile_dpbusd(1, 4, 7);
    if constexpr (c == 2) _tile_dpbusd(2, 5, 6);
    if constexpr (c == 3) _tile_dpbusd(3, 5, 7);
  }
};

}  // namespace

extern const Int8Kernels avx512_vnni_kernels;

// Odd sizes, so that every kind of edge is in it.
bool amx_int8_agrees_with_its_model() {
  constexpr Index kRows = 53, kDepth = 180, kColumns = 80;
  alignas(64) static std::uint8_t a[kRows * kDepth];
  alignas(64) static std::int8_t packed[kDepth * kColumns];
  static std::int32_t by_tiles[kRows * kColumns], by_model[kRows * kColumns];
  std::uint32_t state = 1;
  const auto draw = [&](void* to, Index n) {
    for (Index i = 0; i < n; ++i) {
      state = state * 1664525u + 1013904223u;
      static_cast<std::uint8_t*>(to)[i] = static_cast<std::uint8_t>(state >> 24);
    }
  };
  draw(a, kRows * kDepth);
  draw(packed, kDepth * kColumns);
  const LanePanels panels{packed, kDepth / 4, kColumns};
  for (int time = 0; time < 2; ++time) {
    const LaneStart<std::int32_t> start{.c = time > 0};
    tile_product<AmxTiles<AmxInt8>>(kRows, kColumns, kDepth / 4, a, kDepth, panels, by_tiles,
                                    kColumns, start);
    tile_product<ModelTiles<ModelInt8>>(kRows, kColumns, kDepth / 4, a, kDepth, panels, by_model,
                                        kColumns, start);
  }
  return __builtin_memcmp(by_tiles, by_model, sizeof(by_tiles)) == 0;
}

namespace {

float largest(const float* source, Index n) { return avx512_vnni_kernels.largest(source, n); }
void round(const float* source, Index n, float scale, std::uint8_t* to) {
  avx512_vnni_kernels.round(source, n, scale, to);
}
void pack_transposed(const std::int8_t* source, Index pitch, Index columns, Index depth,
                     void* packed) {
  avx512_vnni_kernels.pack_transposed(source, pitch, columns, depth, packed);
}
void dots(Index columns, Index depth, const std::uint8_t* a, const std::int8_t* b, Index pitch,
          std::int32_t* c) {
  avx512_vnni_kernels.dots(columns, depth, a, b, pitch, c);
}

}  // namespace

extern const Int8Kernels amx_int8_kernels;
const Int8Kernels amx_int8_kernels = {
    .name = "amx_int8",
    .vector = 16,
    .largest = largest,
    .round = round,
    .pack_transposed = pack_transposed,
    .product = int8_tile_product<AmxTiles<AmxInt8>>,
    .dots = dots,
};

}  // namespace focus::simd
#endif
