#pragma once

#include <array>
#include <cstddef>

#include "autograd/gemm/number_format.h"

namespace focus {

/// The formats of blocks that numbers can be rounded to; the others are only read.
inline constexpr std::array kRoundedFormats = {NumberFormat::q8_0, NumberFormat::q4_0,
                                               NumberFormat::q4_1, NumberFormat::q5_0,
                                               NumberFormat::q5_1};
bool can_round_to(NumberFormat format);

/// to[bytes_of(format, count)] = numbers[count] in blocks, with the bits of gguf-py's quantize(),
/// which are those of ggml's reference. A block with a number that is NaN or infinite, or whose
/// scale is beyond float16's range, has a scale that is no number. Throws std::invalid_argument for
/// a format that is not among kRoundedFormats and for a part of a block.
void round_to_blocks(NumberFormat format, const Real* numbers, Index count, std::byte* to);

}  // namespace focus
