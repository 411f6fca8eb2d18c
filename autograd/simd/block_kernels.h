#pragma once

#include <vector>

#include "autograd/simd/kernels.h"

// Numbers that lie in GGML's blocks (number_format.h), compiled once for each instruction set as
// the kernels of kernels.h are, but without fused multiply-adds: every product and sum is rounded
// to float32. What is widened has the order of GGML's formulas, so that all have the bits of
// gguf-py's numbers; sums of products in integers are exact, and those of floats are made in one
// order, so that every machine has the same bits.
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

/// Numbers of what is multiplied in integers that share a scale.
inline constexpr Index kQ8Rounded = 32;

/// A row of few rows that are multiplied: number i is scales[i / 16] q[i], q within ±127;
/// sums[i / 16] is the sum of 16 of them.
struct Q8Row {
  const std::int8_t* q;
  const float *scales, *sums;
};
/// Numbers that are multiplied at a time; Q8Row is filled up to a whole number of them with 0.
inline constexpr Index kQ8Step = 64;

/// The products of some rows with a row of `count` blocks of W as they lie, which is read once.
/// Products of four neighbours are summed as integers. Each has the bits that it has alone.
using Q8DotBlocks = void (*)(const std::uint8_t* blocks, Index count, const Q8Row* x, float* sums);
inline constexpr Index kQ8DotRows = 4;

/// Rows of W that a product of many rows takes at a time.
inline constexpr Index kQ8Panel = 32;
/// Such rows side by side, in groups of 16 or 32 numbers: q [depth / 4, kQ8Panel, 4] as `pack`
/// leaves them, scales and offsets [depth / group, kQ8Panel], offsets null if there are no offsets.
struct Q8Panel {
  const std::int8_t* q;
  const float *scales, *offsets;
};
/// Many rows that are multiplied, in the same groups: q [m, groups, group] within ±127; of each
/// group [m, groups] its scale, the sum of its numbers, and what sums of products begin with: that
/// of its integers times how much more the panel's are, taken off.
struct Q8Rows {
  const std::int8_t* q;
  const float *scales, *sums;
  const std::int32_t* begins;
  Index groups;
};
/// C[m, columns] = what is kept of it + A Wᵀ, at most kQ8Panel columns. Products of a group are
/// summed as integers.
using Q8Product = void (*)(Index m, const Q8Rows& a, const Q8Panel& w, Real* c, Index ldc,
                           Index columns, Keep keep);

/// The formats of blocks, in NumberFormat's order.
inline constexpr int kBlockFormatCount = 12;

struct BlockKernels {
  struct Format {
    WidenBlocks widen;
    SplitBlocks split;
    DotBlocks dot;
    Q8DotBlocks dot_q8[kQ8DotRows];  // of one row, of two, and so on
    Index group;                     // numbers that share W's scale, and of A at least these
    int more;  // W's integers are packed so much more, so that they have no sign; 0: as they are
    Q8Product product_q8;
  };
  const char* name;  // "avx512_vnni", "avx512", "avx2", "baseline"
  Index dot_numbers;
  /// Rounds kQ8Rounded numbers: q[i] is the integer nearest to row[i] / scale, ties to even, and
  /// `sums` those of both halves of q. Returns the scale, the largest magnitude over 127. Where
  /// that is 0 or, as with infinity or NaN, NaN, q is 0.
  float (*round)(const Real* row, std::int8_t* q, std::int32_t* sums);
  /// kQ8Panel rows, `pitch` apart, of `depth` integers, a multiple of 16, and so much `more`, as a
  /// panel has them.
  void (*pack)(Index depth, const std::int8_t* q, Index pitch, int more, std::int8_t* to);
  Format formats[kBlockFormatCount];
};

/// The best that this process may use (Instructions); throws as instructions() does.
const BlockKernels& block_kernels();
/// All that this process may use, best first.
const std::vector<const BlockKernels*>& usable_block_kernels();

}  // namespace focus::simd
