#pragma once

#include "autograd/simd/block_kernels.h"

// Products of numbers that are integers with a scale for each 16 (SplitNumbers in block_kernels.h):
// sums of integers are exact, and those of floats are made in one order, without fused
// multiply-adds, so that every machine has the same bits.
namespace focus::simd {

/// Numbers that are multiplied at a time; what fills a row up to a whole number of them is 0.
inline constexpr Index kQ8Step = 64;

/// A row of W: number i is scales[i / 16] q[i] + offsets[i / 16]; offsets may be null: 0.
struct Q8Weights {
  const std::int8_t* q;
  const float *scales, *offsets;
};
/// A row of what is multiplied: number i is scales[i / 16] q[i], q within ±127; sums[i / 16] is the
/// sum of 16 of them.
struct Q8Row {
  const std::int8_t* q;
  const float *scales, *sums;
};

/// The dot product of rows of `steps` times kQ8Step numbers.
using Q8Dot = float (*)(Index steps, const Q8Weights& w, const Q8Row& x);

/// That of a row of `count` blocks as they lie, with the bits of Q8Dot.
using Q8DotBlocks = float (*)(const std::uint8_t* blocks, Index count, const Q8Row& x);

struct Q8Kernels {
  const char* name;  // "avx512_vnni", "avx512", "avx2", "baseline"
  Q8Dot dot;
  ForBlockFormats<Q8DotBlocks> dot_blocks;
};

/// The best for this machine, or those that the environment variable FOCUS_Q8 names; throws as
/// int8_kernels() does.
const Q8Kernels& q8_kernels();
/// All that this machine can run, best first: for tests and benchmarks.
struct Q8KernelList {
  const Q8Kernels* items[4];
  int count;
};
Q8KernelList usable_q8_kernels();

}  // namespace focus::simd
