#pragma once

#include <array>
#include <cstddef>

#include "autograd/gemm/number_format.h"
#include "autograd/simd/block_kernels.h"

namespace focus {

/// The kernels of a format. Throws std::invalid_argument for one that is in no blocks.
const simd::BlockKernels::Format& kernels_of(NumberFormat format,
                                             const simd::BlockKernels& kernels);

/// to[count] = numbers [first, first + count) of those that lie in blocks from `blocks` on: with
/// the bits of GGML's formulas in float32, whatever the machine. Throws as kernels_of() does.
void widen_blocks(NumberFormat format, const void* blocks, Index first, Index count, Real* to,
                  const simd::BlockKernels& kernels = simd::block_kernels());

/// The same numbers, a whole number of blocks, as integers with a scale and an offset for each 16.
/// Throws likewise, and for a part of a block.
void split_blocks(NumberFormat format, const void* blocks, Index count,
                  const simd::SplitNumbers& to,
                  const simd::BlockKernels& kernels = simd::block_kernels());
/// What sums x times `count` numbers of blocks with the bits of dot_row() of what they are widened
/// to; null where that has to be done by widening them.
simd::DotBlocks dot_of_blocks(NumberFormat format, Index count,
                              const simd::BlockKernels& kernels = simd::block_kernels());
/// Whether numbers are more than integers times scales: else all offsets are 0.
bool has_offsets(NumberFormat format);

/// The most numbers of a block.
inline constexpr Index kMostBlockNumbers = 256;

/// The formats of blocks that numbers can be rounded to; the others are only read.
inline constexpr std::array kRoundedFormats = {NumberFormat::q8_0, NumberFormat::q4_0,
                                               NumberFormat::q4_1, NumberFormat::q5_0,
                                               NumberFormat::q5_1};

/// to[bytes_of(format, count)] = numbers[count] in blocks, with the bits of gguf-py's quantize(),
/// which are those of ggml's reference. A block with a number that is NaN or infinite, or whose
/// scale is beyond float16's range, has a scale that is no number. Throws std::invalid_argument for
/// a format that is not among kRoundedFormats and for a part of a block.
void round_to_blocks(NumberFormat format, const Real* numbers, Index count, std::byte* to);

}  // namespace focus
