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

bool amx_bf16_agrees_with_its_model();
bool amx_bf16_agrees_with_its_model() {
  return tiles_agree<AmxTiles<AmxBf16>, ModelTiles<ModelBf16>>(
      [](std::uint32_t random) { return (random & 0x80ff80ff) | 0x3f003f00; });  // ±0.5 to 2
}

namespace {

void product(Index m, Index columns, Index depth, const Bf16* a, Index a_pitch, const Bf16Panels& b,
             float* c, Index ldc, bool add) {
  bf16_tile_product<AmxTiles<AmxBf16>>(m, columns, depth, a, a_pitch, b, c, ldc, add);
}
void product_from(Index m, Index columns, Index depth, const Bf16* a, Index a_pitch,
                  const Bf16Panels& b, float* c, Index ldc, const float* row) {
  bf16_tile_product_from<AmxTiles<AmxBf16>>(m, columns, depth, a, a_pitch, b, c, ldc, row);
}

}  // namespace

Bf16Kernels with_amx_bf16(Bf16Kernels kernels);
Bf16Kernels with_amx_bf16(Bf16Kernels kernels) {
  kernels.name = "amx_bf16";
  kernels.product = product;
  kernels.product_from = product_from;
  return kernels;
}

}  // namespace focus::simd
#endif
