#include "autograd/gemm/q8.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "autograd/base/aligned_vector.h"
#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/block_formats.h"
#include "autograd/gemm/block_rows.h"
#include "autograd/gemm/int8.h"
#include "autograd/gemm/packed_product.h"

namespace focus {
namespace {

constexpr Index kSplit = 16;  // numbers that share one of SplitNumbers

/// Rows of A as integers, in groups with what is known of each (simd::Q8Rows); what fills a row up
/// is 0.
class RoundedRows {
 public:
  RoundedRows(Index rows, const Real* a, Index lda, Index cols, Index width, Index group,
              const simd::Q8Kernels& kernels)
      : cols_(cols),
        width_(width),
        group_(group),
        q_(static_cast<std::size_t>(rows * width)),
        scales_(q_.size() / static_cast<std::size_t>(group)),
        sums_(scales_.size()),
        totals_(scales_.size()) {
    simd::int8_kernels();  // not to be called first by a thread of several
    parallel_chunks(rows, rows_per_chunk(cols), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) round(i, a + i * lda, kernels);
    });
  }

  simd::Q8Row row(Index i) const {
    const simd::Q8Rows rows = from(i);
    return {rows.q, rows.scales, rows.sums};
  }
  simd::Q8Rows from(Index i) const {
    const Index g = i * width_ / group_;
    return {q_.data() + i * width_, scales_.data() + g, sums_.data() + g, totals_.data() + g,
            width_ / group_};
  }

 private:
  void round(Index i, const Real* row, const simd::Q8Kernels& kernels) {
    for (Index p = 0; p < cols_; p += simd::kQ8Rounded) {
      const Real largest = simd::int8_kernels().largest(row + p, simd::kQ8Rounded);
      const Real step = std::isfinite(largest) ? int8_scale(largest) : std::nan("");
      const auto scale = static_cast<float>(step);
      const Index first = i * width_ + p;
      std::int32_t halves[2] = {0, 0};
      if (step > 0) kernels.round(row + p, step, q_.data() + first, halves);
      if (group_ == simd::kQ8Rounded)
        add_group(first, scale, halves[0] + halves[1]);
      else
        for (Index half = 0; half < 2; ++half)
          add_group(first + half * kSplit, scale, halves[half]);
    }
  }
  void add_group(Index first, float scale, std::int32_t sum) {
    const auto g = static_cast<std::size_t>(first / group_);
    scales_[g] = scale;
    sums_[g] = scale * static_cast<float>(sum);
    totals_[g] = sum;
  }

  const Index cols_, width_, group_;
  AlignedVector<std::int8_t> q_;
  AlignedVector<float> scales_, sums_;
  AlignedVector<std::int32_t> totals_;
};

/// kQ8Panel rows of W.
class Panel {
 public:
  /// W's rows [first, first + count); what is missing of a panel is 0.
  void fill(const MatrixView& w, Index first, Index count, const simd::Q8Kernels::Format& format,
            const simd::Q8Kernels& kernels) {
    const Index group = format.group, halves = w.cols / kSplit, groups = w.cols / group;
    resize(w.cols);
    for (Index j = 0; j < count; ++j)
      split_blocks(w.format, from_number(w, w.stored_row(first + j) * w.pitch).data, w.cols,
                   {split_q_.data() + j * w.cols, split_scales_.data() + j * halves,
                    split_offsets_.data() + j * halves});
    kernels.pack(w.cols, split_q_.data(), w.cols, format.more, q_.data());
    for (Index g = 0; g < groups; ++g)
      for (Index j = 0; j < simd::kQ8Panel; ++j) {
        const auto to = static_cast<std::size_t>(g * simd::kQ8Panel + j);
        const auto from = static_cast<std::size_t>(j * halves + g * group / kSplit);
        scales_[to] = j < count ? split_scales_[from] : 0;
        offsets_[to] = j < count ? split_offsets_[from] : 0;
      }
    has_offsets_ = has_offsets(w.format);
  }
  simd::Q8Panel view() const {
    return {q_.data(), scales_.data(), has_offsets_ ? offsets_.data() : nullptr};
  }

 private:
  void resize(Index cols) {
    const auto numbers = static_cast<std::size_t>(simd::kQ8Panel * cols);
    if (q_.size() >= numbers) return;
    for (AlignedVector<std::int8_t>* q : {&split_q_, &q_}) q->resize(numbers);
    for (AlignedVector<float>* of : {&split_scales_, &split_offsets_, &scales_, &offsets_})
      of->resize(numbers / kSplit);
  }

  AlignedVector<std::int8_t> split_q_, q_;
  AlignedVector<float> split_scales_, split_offsets_, scales_, offsets_;
  bool has_offsets_ = false;
};

void multiply_few(const RoundedRows& rows, Index m, std::span<const SharedProduct> products,
                  const simd::Q8Kernels& kernels) {
  multiply_rows_of_blocks(m, products, [&](const SharedProduct& product) {
    return [&rows, dot = find_format(kernels.formats, product.w.format)->dot](
               const std::uint8_t* blocks, Index count, Index i) {
      return static_cast<Real>(dot(blocks, count, rows.row(i)));
    };
  });
}

void multiply_many(const RoundedRows& rows, Index m, const SharedProduct& product,
                   const simd::Q8Kernels::Format& format, const simd::Q8Kernels& kernels) {
  const auto& [w, c, ldc, start] = product;
  constexpr Index kRowsAtATime = 96;  // of A at a time
  parallel_chunks(w.rows, simd::kQ8Panel,
                  [&, &w = w, c = c, ldc = ldc, &start = start](Index begin, Index end) {
                    thread_local Panel panel;
                    alignas(64) float sums[kRowsAtATime * simd::kQ8Panel];
                    for (Index first = begin; first < end; first += simd::kQ8Panel) {
                      const Index count = std::min(simd::kQ8Panel, end - first);
                      panel.fill(w, first, count, format, kernels);
                      for (Index i = 0; i < m; i += kRowsAtATime) {
                        const Index some = std::min(kRowsAtATime, m - i);
                        format.product(some, rows.from(i), panel.view(), sums);
                        for (Index r = 0; r < some; ++r) {
                          Real* to = c + (i + r) * ldc + first;
                          const float* sum = sums + r * simd::kQ8Panel;
                          for (Index j = 0; j < count; ++j)
                            to[j] = (start.add ? to[j] : start.in_column(first + j)) +
                                    static_cast<Real>(sum[j]);
                        }
                      }
                    }
                  });
}

}  // namespace

void gemm_nt_q8(Index m, const Real* a, Index lda, std::span<const SharedProduct> products,
                const simd::Q8Kernels& kernels) {
  for (const SharedProduct& product : products) {
    check(in_blocks(product.w.format), "q8: a matrix in {} is not stored in blocks",
          name_of(product.w.format));
    packed::tally(m, product.w.rows, product.w.cols);
  }
  const Index cols = products.front().w.cols;
  if (m <= packed::kFewRows) {
    const Index steps = (cols + simd::kQ8Step - 1) / simd::kQ8Step;
    const RoundedRows rows(m, a, lda, cols, steps * simd::kQ8Step, kSplit, kernels);
    return multiply_few(rows, m, products, kernels);
  }
  std::optional<RoundedRows> of_16, of_32;  // numbers of a group
  for (const SharedProduct& product : products) {
    const simd::Q8Kernels::Format& format = *find_format(kernels.formats, product.w.format);
    std::optional<RoundedRows>& rows = format.group == kSplit ? of_16 : of_32;
    if (!rows) rows.emplace(m, a, lda, cols, cols, format.group, kernels);
    multiply_many(*rows, m, product, format, kernels);
  }
}

void gemm_nt_q8(Index m, const Real* a, Index lda, const MatrixView& w, Real* c, Index ldc,
                Start start, const simd::Q8Kernels& kernels) {
  const SharedProduct product{w, c, ldc, start};
  gemm_nt_q8(m, a, lda, {&product, 1}, kernels);
}

}  // namespace focus
