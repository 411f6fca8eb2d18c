#pragma once

#include <cstddef>

#include "autograd/gemm/number_format.h"
#include "autograd/simd/block_kernels.h"

namespace focus {

/// That of a format; null for one that is in no blocks.
template <class T>
const T* find_format(const simd::ForBlockFormats<T>& formats, NumberFormat format) {
  using enum NumberFormat;
  switch (format) {
    case q8_0:
      return &formats.q8_0;
    case q4_0:
      return &formats.q4_0;
    case q4_1:
      return &formats.q4_1;
    case q5_0:
      return &formats.q5_0;
    case q5_1:
      return &formats.q5_1;
    case q2_k:
      return &formats.q2_k;
    case q3_k:
      return &formats.q3_k;
    case q4_k:
      return &formats.q4_k;
    case q5_k:
      return &formats.q5_k;
    case q6_k:
      return &formats.q6_k;
    case iq4_nl:
      return &formats.iq4_nl;
    case iq4_xs:
      return &formats.iq4_xs;
    default:
      return nullptr;
  }
}

/// to[count] = numbers [first, first + count) of those that lie in blocks from `blocks` on: with
/// the bits of GGML's formulas in float32, whatever the machine. Throws std::invalid_argument for a
/// format that is in no blocks.
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

}  // namespace focus
