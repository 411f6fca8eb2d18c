#pragma once

#include <cstddef>
#include <string_view>

#include "autograd/tensor.h"

namespace focus {

/// How a file or a matrix stores numbers: each by itself, or in GGML's blocks of 32 or 256, which
/// share scales. `other` is any type that is no weight's: integers, masks, 8-bit floats.
enum class NumberFormat {
  f32,
  f64,
  bf16,
  f16,
  q8_0,  // the first in blocks: kernels are in this order (simd/block_kernels.h)
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  other
};

/// "f32", "q4_k", "other".
const char* name_of(NumberFormat format);
/// The inverse; `other` for every other name.
NumberFormat format_named(std::string_view name);
/// Numbers that are stored together: 1, 32 or 256.
Index block_numbers(NumberFormat format);
/// True where numbers share scales with their neighbours.
inline bool in_blocks(NumberFormat format) { return block_numbers(format) > 1; }
/// Bytes of `count` numbers, a whole number of blocks; 0 for `other`. Throws std::invalid_argument
/// for a part of a block.
std::size_t bytes_of(NumberFormat format, Index count);
/// What an address must be a multiple of. Blocks are read byte by byte: 1.
std::size_t alignment_of(NumberFormat format);

/// The format of Real.
inline constexpr NumberFormat kRealFormat =
    sizeof(Real) == sizeof(float) ? NumberFormat::f32 : NumberFormat::f64;

}  // namespace focus
