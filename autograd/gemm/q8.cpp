#include "autograd/gemm/q8.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/base/aligned_vector.h"
#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/block_formats.h"
#include "autograd/gemm/block_rows.h"
#include "autograd/gemm/int8.h"
#include "autograd/gemm/packed_product.h"

namespace focus {
namespace {

constexpr Index kRounded = 32;  // numbers of A that share a scale
constexpr Index kScaled = 16;   // numbers that share one of SplitNumbers

Index whole_steps(Index n) { return (n + simd::kQ8Step - 1) / simd::kQ8Step * simd::kQ8Step; }

/// Rows of integers with their scales; what fills them up is 0.
struct SplitRows {
  void resize(Index rows, Index cols) {
    width = whole_steps(cols);
    const auto numbers = static_cast<std::size_t>(rows * width);
    if (q.size() < numbers) {
      q.resize(numbers);
      scales.resize(numbers / kScaled);
      others.resize(numbers / kScaled);
    }
  }
  std::int8_t* q_of(Index i) { return q.data() + i * width; }
  float* scales_of(Index i) { return scales.data() + i * width / kScaled; }
  float* others_of(Index i) { return others.data() + i * width / kScaled; }

  Index width = 0;
  AlignedVector<std::int8_t> q;
  AlignedVector<float> scales, others;  // offsets of W, sums of A
};

/// to[kRounded] = row[count], rounded; its scale, and the sums of its halves.
void round_block(const Real* row, Index count, std::int8_t* to, float* scales, float* sums) {
  const simd::Int8Kernels& kernels = simd::int8_kernels();
  const Real largest = kernels.largest(row, count);
  const Real scale = std::isfinite(largest) ? int8_scale(largest) : std::nan("");
  std::fill_n(to, kRounded, std::int8_t{0});
  if (scale > 0) {
    std::uint8_t above[kRounded];  // by 128
    kernels.round(row, count, scale, above);
    for (Index i = 0; i < count; ++i) to[i] = static_cast<std::int8_t>(above[i] - 128);
  }
  for (Index half = 0; half < kRounded / kScaled; ++half) {
    int sum = 0;
    for (Index i = half * kScaled; i < (half + 1) * kScaled; ++i) sum += to[i];
    scales[half] = static_cast<float>(scale);
    sums[half] = scales[half] * static_cast<float>(sum);
  }
}

/// Rows of A, rounded.
SplitRows rounded(Index m, Index n, const Real* a, Index lda) {
  SplitRows rows;
  rows.resize(m, n);
  simd::int8_kernels();  // not to be called first by a thread of several
  parallel_chunks(m, rows_per_chunk(n), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      for (Index p = 0; p < rows.width; p += kRounded)
        round_block(a + i * lda + std::min(p, n), std::clamp<Index>(n - p, 0, kRounded),
                    rows.q_of(i) + p, rows.scales_of(i) + p / kScaled,
                    rows.others_of(i) + p / kScaled);
  });
  return rows;
}

/// Row j of W.
void split_row(const MatrixView& w, Index j, Index at, SplitRows& to) {
  const simd::SplitNumbers row{to.q_of(at), to.scales_of(at), to.others_of(at)};
  split_blocks(w.format, from_number(w, w.stored_row(j) * w.pitch).data, w.cols, row);
  std::fill(row.q + w.cols, row.q + to.width, std::int8_t{0});
  for (Index g = w.cols / kScaled; g < to.width / kScaled; ++g) row.scales[g] = row.offsets[g] = 0;
}

/// Rows of W that are split at a time where A has many: these go over each of A's while that is in
/// the first-level cache.
constexpr Index kRowsOfW = 16;

}  // namespace

void gemm_nt_q8(Index m, const Real* a, Index lda, const MatrixView& w, Real* c, Index ldc,
                Start start, const simd::Q8Kernels& kernels) {
  check(in_blocks(w.format), "q8: a matrix in {} is not stored in blocks", name_of(w.format));
  packed::tally(m, w.rows, w.cols);
  SplitRows rows = rounded(m, w.cols, a, lda);
  if (m <= packed::kFewRows) {
    const simd::Q8DotBlocks dot = *find_format(kernels.dot_blocks, w.format);
    return multiply_rows_of_blocks(
        m, w, c, ldc, start, [&](const std::uint8_t* blocks, Index count, Index i) {
          return static_cast<Real>(
              dot(blocks, count, {rows.q_of(i), rows.scales_of(i), rows.others_of(i)}));
        });
  }
  const bool offsets = has_offsets(w.format);
  parallel_chunks(w.rows, kRowsOfW, [&](Index begin, Index end) {
    thread_local SplitRows split;
    split.resize(kRowsOfW, w.cols);
    for (Index j = begin; j < end; j += kRowsOfW) {
      const Index count = std::min(kRowsOfW, end - j);
      for (Index l = 0; l < count; ++l) split_row(w, j + l, l, split);
      for (Index i = 0; i < m; ++i)
        for (Index l = 0; l < count; ++l) {
          const Real y = kernels.dot(
              rows.width / simd::kQ8Step,
              {split.q_of(l), split.scales_of(l), offsets ? split.others_of(l) : nullptr},
              {rows.q_of(i), rows.scales_of(i), rows.others_of(i)});
          Real& to = c[i * ldc + j + l];
          to = start.add ? to + y : start.in_column(j + l) + y;
        }
    }
  });
}

}  // namespace focus
