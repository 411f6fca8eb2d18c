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

}  // namespace

bool amx_bf16_agrees_with_its_model();
bool amx_bf16_agrees_with_its_model() { return tiles_agree<AmxTiles, ModelTiles<ModelBf16>>(); }

Bf16Kernels with_amx_bf16(Bf16Kernels kernels);
Bf16Kernels with_amx_bf16(Bf16Kernels kernels) {
  kernels.name = "amx_bf16";
  kernels.by_tiles = true;
  kernels.product = tile_product<AmxTiles>;
  return kernels;
}

}  // namespace focus::simd
#endif
