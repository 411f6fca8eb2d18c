#include "autograd/gemm/block_formats.h"

#include <algorithm>

#include "autograd/base/check.h"

namespace focus {
const simd::BlockKernels::Format& kernels_of(NumberFormat format,
                                             const simd::BlockKernels& kernels) {
  check(in_blocks(format), "{} values are not stored in blocks", name_of(format));
  return kernels.formats[static_cast<int>(format) - static_cast<int>(NumberFormat::q8_0)];
}

void widen_blocks(NumberFormat format, const void* blocks, Index first, Index count, Real* to,
                  const simd::BlockKernels& kernels) {
  const simd::WidenBlocks widen = kernels_of(format, kernels).widen;
  const Index numbers = block_numbers(format);
  const auto bytes = static_cast<Index>(bytes_of(format, numbers));
  const auto* at = static_cast<const std::uint8_t*>(blocks) + first / numbers * bytes;
  if (const Index before = first % numbers; before > 0 && count > 0) {
    Real block[kMostBlockNumbers];
    widen(at, 1, block);
    const Index there = std::min(count, numbers - before);
    std::copy_n(block + before, there, to);
    at += bytes;
    to += there;
    count -= there;
  }
  widen(at, count / numbers, to);
  if (const Index left = count % numbers; left > 0) {
    Real block[kMostBlockNumbers];
    widen(at + count / numbers * bytes, 1, block);
    std::copy_n(block, left, to + count - left);
  }
}

void split_blocks(NumberFormat format, const void* blocks, Index count,
                  const simd::SplitNumbers& to, const simd::BlockKernels& kernels) {
  const Index numbers = block_numbers(format);
  check(count % numbers == 0, "{} values do not fill whole {} blocks of {}", count, name_of(format),
        numbers);
  kernels_of(format, kernels).split(static_cast<const std::uint8_t*>(blocks), count / numbers, to);
}

simd::DotBlocks dot_of_blocks(NumberFormat format, Index count, const simd::BlockKernels& kernels) {
  if (!in_blocks(format) || count % kernels.dot_numbers != 0) return nullptr;
  return kernels_of(format, kernels).dot;
}

bool has_offsets(NumberFormat format) {
  using enum NumberFormat;
  return format == q4_1 || format == q5_1 || format == q2_k || format == q4_k || format == q5_k;
}

}  // namespace focus
