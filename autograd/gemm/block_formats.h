#pragma once

#include <cstddef>

#include "autograd/gemm/number_format.h"
#include "autograd/simd/block_kernels.h"

namespace focus {

/// to[count] = numbers [first, first + count) of those that lie in blocks from `blocks` on: with
/// the bits of GGML's formulas in float32, whatever the machine. Throws std::invalid_argument for a
/// format that is in no blocks.
void widen_blocks(NumberFormat format, const void* blocks, Index first, Index count, Real* to,
                  const simd::BlockKernels& kernels = simd::block_kernels());

/// The most numbers of a block.
inline constexpr Index kMostBlockNumbers = 256;

}  // namespace focus
