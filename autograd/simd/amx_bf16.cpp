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

extern const AmxBf16 amx_bf16;
const AmxBf16 amx_bf16 = {tile_product<AmxTiles>, tiles_agree<AmxTiles, ModelTiles<ModelBf16>>};

}  // namespace focus::simd
#endif
