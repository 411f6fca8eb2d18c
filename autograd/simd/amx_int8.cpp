// Products of bytes by the tiles of machines with AMX; what goes around them is AVX512_VNNI's.
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

bool amx_int8_agrees_with_its_model() {
  return tiles_agree<AmxTiles<AmxInt8>, ModelTiles<ModelInt8>>(
      [](std::uint32_t random) { return random; });
}

void amx_int8_product(Index m, Index columns, Index depth, const std::uint8_t* a, Index a_pitch,
                      const void* packed, std::int32_t* c, Index ldc, bool add) {
  int8_tile_product<AmxTiles<AmxInt8>>(m, columns, depth, a, a_pitch, packed, c, ldc, add);
}

}  // namespace focus::simd
#endif
