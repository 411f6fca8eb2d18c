// Products of integers with scales by the tiles of machines with AMX; what goes around them is
// AVX512_VNNI's.
#include <immintrin.h>

#include <type_traits>

#include "autograd/simd/block_kernels.h"

namespace focus::simd {
namespace {

#include "autograd/simd/amx_tiles.inc"
#include "autograd/simd/q8_tiles.inc"
#include "autograd/simd/tile_model.inc"

struct AmxInt8 {
  using Sum = std::int32_t;
  template <int c>
  static void add() {
    if constexpr (c == 0) _tile_dpbssd(0, 4, 6);
    if constexpr (c == 3) _tile_dpbssd(3, 5, 7);
  }
};

}  // namespace

bool amx_int8_agrees_with_its_model();
bool amx_int8_agrees_with_its_model() {
  return q8_tiles_agree<AmxTiles<AmxInt8>, ModelTiles<ModelInt8>>();
}

BlockKernels with_amx_int8(BlockKernels kernels);
BlockKernels with_amx_int8(BlockKernels kernels) {
  return with_tiles<AmxTiles<AmxInt8>>("amx_int8", kernels);
}

}  // namespace focus::simd
