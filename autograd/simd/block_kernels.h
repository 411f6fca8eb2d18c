#pragma once

#include "autograd/base/types.h"

// Numbers that lie in GGML's blocks (number_format.h), compiled once for each instruction set as
// the kernels of kernels.h are, but without fused multiply-adds: every product and sum is rounded
// to float32, in the order of GGML's formulas, so that all have the bits of gguf-py's numbers.
namespace focus::simd {

/// to[all of their numbers] = `count` blocks, one after the other, at any address.
using WidenBlocks = void (*)(const std::uint8_t* blocks, Index count, Real* to);

/// Numbers as integers and what these are times: number i is
///   scales[i / 16] q[i] + offsets[i / 16].
struct SplitNumbers {
  std::int8_t* q;
  float *scales, *offsets;
};
/// Blocks likewise; offsets are 0 where the format has none.
using SplitBlocks = void (*)(const std::uint8_t* blocks, Index count, const SplitNumbers& to);

/// The sum of x times the numbers of `count` blocks: that of Kernels::dot_row() with what they are
/// widened to, bit for bit. Only where Real is float (else null), and the numbers a multiple of
/// dot_numbers.
using DotBlocks = Real (*)(const std::uint8_t* blocks, Index count, const Real* x);

/// One of each format of blocks (number_format.h).
template <class T>
struct ForBlockFormats {
  T q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs;
};

struct BlockKernels {
  struct Format {
    WidenBlocks widen;
    SplitBlocks split;
    DotBlocks dot;
  };
  const char* name;  // "avx512", "avx2", "baseline"
  Index dot_numbers;
  ForBlockFormats<Format> formats;
};

/// The best for this machine, or those that the environment variable FOCUS_SIMD names; throws as
/// kernels() does.
const BlockKernels& block_kernels();
/// All that this machine can run, best first: for tests and benchmarks.
struct BlockKernelList {
  const BlockKernels* items[3];
  int count;
};
BlockKernelList usable_block_kernels();

}  // namespace focus::simd
