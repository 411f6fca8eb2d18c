#pragma once

#include "autograd/simd/block_kernels.h"

// Products of numbers that are integers with a scale for each 16 (SplitNumbers in block_kernels.h):
// sums of integers are exact, and those of floats are made in one order, without fused
// multiply-adds, so that every machine has the same bits.
namespace focus::simd {

/// Numbers of what is multiplied that share a scale.
inline constexpr Index kQ8Rounded = 32;

/// A row of few rows that are multiplied: number i is scales[i / 16] q[i], q within ±127;
/// sums[i / 16] is the sum of 16 of them.
struct Q8Row {
  const std::int8_t* q;
  const float *scales, *sums;
};
/// Numbers that are multiplied at a time; Q8Row is filled up to a whole number of them with 0.
inline constexpr Index kQ8Step = 64;

/// The product with a row of `count` blocks of W as they lie. Products of four neighbours are
/// summed as integers.
using Q8DotBlocks = float (*)(const std::uint8_t* blocks, Index count, const Q8Row& x);

/// Rows of W that a product of many rows takes at a time.
inline constexpr Index kQ8Panel = 32;
/// Such rows side by side, in groups of 16 or 32 numbers: q [depth / 4, kQ8Panel, 4] as `pack`
/// leaves them, scales and offsets [depth / group, kQ8Panel], offsets null where there are none.
struct Q8Panel {
  const std::int8_t* q;
  const float *scales, *offsets;
};
/// Many rows that are multiplied, in the same groups: q [m, groups, group] within ±127; of each
/// group [m, groups] its scale, the sum of its numbers and that of its integers.
struct Q8Rows {
  const std::int8_t* q;
  const float *scales, *sums;
  const std::int32_t* totals;
  Index groups;
};
/// c[m, kQ8Panel] = A Wᵀ. Products of a group are summed as integers.
using Q8Product = void (*)(Index m, const Q8Rows& a, const Q8Panel& w, float* c);

struct Q8Kernels {
  struct Format {
    Q8DotBlocks dot;
    Index group;  // numbers that share W's scale, and of A at least these
    int more;     // W's integers are packed so much more, so that they have no sign; 0: as they are
    Q8Product product;
  };
  const char* name;  // "avx512_vnni", "avx512", "avx2", "baseline"
  /// q[i] = the integer nearest to row[i] / scale, ties to even, within ±127, of kQ8Rounded
  /// numbers; the sums of both halves of q. `scale` is finite and above 0.
  void (*round)(const Real* row, Real scale, std::int8_t* q, std::int32_t* sums);
  /// kQ8Panel rows, `pitch` apart, of `depth` integers, a multiple of 4, and so much `more`, as a
  /// panel has them.
  void (*pack)(Index depth, const std::int8_t* q, Index pitch, int more, std::int8_t* to);
  ForBlockFormats<Format> formats;
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
