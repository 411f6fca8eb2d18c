#include "autograd/gemm/q8.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "autograd/base/aligned_vector.h"
#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/block_formats.h"
#include "autograd/gemm/packed_product.h"

namespace focus {
namespace {

constexpr Index kSplit = 16;  // numbers that share one of SplitNumbers

/// Rows of A as integers, in groups with what is known of each; what fills up a row is 0.
class RoundedRows {
 public:
  RoundedRows(Index rows, const Real* a, Index lda, Index cols, Index width, Index group,
              const simd::BlockKernels& kernels)
      : width_(width),
        group_(group),
        q_(rows * width),
        scales_(q_.size() / group),
        sums_(scales_.size()),
        totals_(scales_.size()) {
    parallel_chunks(rows, rows_per_chunk(cols), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        for (Index p = 0; p < cols; p += simd::kQ8Rounded) round(i, p, a + i * lda + p, kernels);
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
  /// Numbers [p, p + kQ8Rounded) of row i.
  void round(Index i, Index p, const Real* numbers, const simd::BlockKernels& kernels) {
    std::int32_t halves[2];
    const float scale = kernels.round(numbers, q_.data() + i * width_ + p, halves);
    const auto set = [&](Index group, std::int32_t sum) {
      const auto g = static_cast<std::size_t>(i * (width_ / group_) + group);
      scales_[g] = scale;
      sums_[g] = scale * static_cast<float>(sum);
      totals_[g] = sum;
    };
    if (group_ == simd::kQ8Rounded) return set(p / group_, halves[0] + halves[1]);
    for (Index half = 0; half < 2; ++half) set(p / group_ + half, halves[half]);
  }

  const Index width_, group_;
  AlignedVector<std::int8_t> q_;
  AlignedVector<float> scales_, sums_;
  AlignedVector<std::int32_t> totals_;
};

/// kQ8Panel rows of W.
class Panel {
 public:
  /// W's rows [first, first + count); what is missing of a panel is 0.
  void fill(const MatrixView& w, Index first, Index count, const simd::BlockKernels::Format& format,
            const simd::BlockKernels& kernels) {
    const Index group = format.group, halves = w.cols / kSplit, groups = w.cols / group;
    const auto numbers = static_cast<std::size_t>(simd::kQ8Panel * w.cols);
    if (q_.size() < numbers) {
      for (AlignedVector<std::int8_t>* q : {&split_q_, &q_}) q->resize(numbers);
      for (AlignedVector<float>* of : {&split_scales_, &split_offsets_, &scales_, &offsets_})
        of->resize(numbers / kSplit);
    }
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
  AlignedVector<std::int8_t> split_q_, q_;
  AlignedVector<float> split_scales_, split_offsets_, scales_, offsets_;
  bool has_offsets_ = false;
};

void multiply_many(const RoundedRows& rows, Index m, const SharedProduct& product,
                   const simd::BlockKernels::Format& format, const simd::BlockKernels& kernels) {
  constexpr Index kRowsAtATime = 192, kPanel = simd::kQ8Panel;
  const auto multiply_panel = [&](Index first, Index count) {
    const auto [w, c, ldc, start] = product;
    thread_local Panel panel;
    thread_local AlignedVector<float> sums(kRowsAtATime * kPanel);
    panel.fill(w, first, count, format, kernels);
    for (Index i = 0; i < m; i += kRowsAtATime) {
      const Index some = std::min(kRowsAtATime, m - i);
      format.product_q8(some, rows.from(i), panel.view(), sums.data());
      for (Index r = 0; r < some; ++r) {
        Real* const to = c + (i + r) * ldc + first;
        const float* const sum = sums.data() + r * kPanel;
        if (start.add)
          for (Index j = 0; j < count; ++j) to[j] += static_cast<Real>(sum[j]);
        else if (start.row != nullptr)
          for (Index j = 0; j < count; ++j)
            to[j] = start.row[first + j] + static_cast<Real>(sum[j]);
        else
          for (Index j = 0; j < count; ++j) to[j] = 0 + static_cast<Real>(sum[j]);
      }
    }
  };
  parallel_chunks(product.w.rows, kPanel, [&](Index begin, Index end) {
    for (Index first = begin; first < end; first += kPanel)
      multiply_panel(first, std::min(kPanel, end - first));
  });
}

}  // namespace

void gemm_nt_q8(Index m, const Real* a, Index lda, std::span<const SharedProduct> products,
                const simd::BlockKernels& kernels) {
  for (const SharedProduct& product : products) {
    check(in_blocks(product.w.format), "q8: a matrix in {} is not stored in blocks",
          name_of(product.w.format));
    packed::tally(m, product.w.rows, product.w.cols);
  }
  const Index cols = products.front().w.cols;
  if (m <= packed::kFewRows) {
    const Index steps = (cols + simd::kQ8Step - 1) / simd::kQ8Step;
    const RoundedRows rows(m, a, lda, cols, steps * simd::kQ8Step, kSplit, kernels);
    return multiply_rows_of_blocks(m, products, [&](const SharedProduct& product) {
      return [&rows, dot = kernels_of(product.w.format, kernels).dot_q8](const std::uint8_t* blocks,
                                                                         Index count, Index i) {
        return static_cast<Real>(dot(blocks, count, rows.row(i)));
      };
    });
  }
  std::optional<RoundedRows> of_16, of_32;  // numbers of a group
  for (const SharedProduct& product : products) {
    const simd::BlockKernels::Format& format = kernels_of(product.w.format, kernels);
    std::optional<RoundedRows>& rows = format.group == kSplit ? of_16 : of_32;
    if (!rows) rows.emplace(m, a, lda, cols, cols, format.group, kernels);
    multiply_many(*rows, m, product, format, kernels);
  }
}

void gemm_nt_q8(Index m, const Real* a, Index lda, const MatrixView& w, Real* c, Index ldc,
                Start start, const simd::BlockKernels& kernels) {
  const SharedProduct product{w, c, ldc, start};
  gemm_nt_q8(m, a, lda, {&product, 1}, kernels);
}

OwnedView rounded_to_q8_0(const MatrixView& from, const std::string& name) {
  constexpr NumberFormat kFormat = NumberFormat::q8_0;
  const std::size_t row_bytes = bytes_of(kFormat, from.cols), block = bytes_of(kFormat, 32);
  const std::shared_ptr<void> memory =
      pooled_buffer(static_cast<std::size_t>(from.rows) * row_bytes);
  auto* const blocks = static_cast<std::byte*>(memory.get());
  std::atomic<Index> refused{from.rows};  // the first row that cannot be rounded
  parallel_chunks(from.rows, rows_at_a_time(from), [&](Index begin, Index end) {
    std::vector<Real> rows((end - begin) * from.cols);
    read_rows(from, begin, end - begin, rows.data());
    for (Index i = begin; i < end; ++i) {
      std::byte* const row = blocks + static_cast<std::size_t>(i) * row_bytes;
      round_to_blocks(kFormat, rows.data() + (i - begin) * from.cols, from.cols, row);
      constexpr std::byte kNotFinite{0x7c};  // float16's exponent, all ones
      for (std::size_t at = 0; at < row_bytes; at += block)
        if ((row[at + 1] & kNotFinite) == kNotFinite)
          for (Index before = refused; i < before && !refused.compare_exchange_weak(before, i);) {
          }
    }
  });
  check(refused == from.rows,
        "q8: row {} of the {} holds NaN, infinity or a number too large for a block's scale: use "
        "float32",
        refused.load(), name.empty() ? "matrix" : "weight " + name);
  return {
      {.data = blocks, .format = kFormat, .rows = from.rows, .cols = from.cols, .pitch = from.cols},
      memory};
}

}  // namespace focus
