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
      : rows_(rows),
        width_(width),
        group_(group),
        memory_(pooled_buffer(static_cast<std::size_t>(rows * (width + 12 * (width / group))))),
        q_(static_cast<std::int8_t*>(memory_.get())),
        scales_(reinterpret_cast<float*>(q_ + rows * width)),
        sums_(scales_ + rows * (width / group)),
        begins_(reinterpret_cast<std::int32_t*>(sums_ + rows * (width / group))) {
    parallel_chunks(rows, rows_per_chunk(cols), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        for (Index p = 0; p < cols; p += simd::kQ8Rounded) round(i, p, a + i * lda + p, kernels);
        std::fill(q_ + i * width + cols, q_ + (i + 1) * width, std::int8_t{0});
        for (Index g = cols / group; g < width / group; ++g) set(i, g, 0, 0);
      }
    });
  }

  /// For integers of W that are so much more than they were.
  void begin_for(int more) {
    if (more == 0 || more == more_) return;
    for (Index g = 0; g < rows_ * (width_ / group_); ++g) begins_[g] = begins_[g] / more_ * more;
    more_ = more;
  }

  simd::Q8Row row(Index i) const {
    const simd::Q8Rows rows = from(i);
    return {rows.q, rows.scales, rows.sums};
  }
  simd::Q8Rows from(Index i) const {
    const Index groups = width_ / group_, g = i * groups;
    return {q_ + i * width_, scales_ + g, sums_ + g, begins_ + g, groups};
  }

 private:
  /// Numbers [p, p + kQ8Rounded) of row i.
  void round(Index i, Index p, const Real* numbers, const simd::BlockKernels& kernels) {
    std::int32_t halves[2];
    const float scale = kernels.round(numbers, q_ + i * width_ + p, halves);
    if (group_ == simd::kQ8Rounded) return set(i, p / group_, scale, halves[0] + halves[1]);
    for (Index half = 0; half < 2; ++half) set(i, p / group_ + half, scale, halves[half]);
  }
  void set(Index i, Index group, float scale, std::int32_t sum) {
    const Index g = i * (width_ / group_) + group;
    scales_[g] = scale;
    sums_[g] = scale * static_cast<float>(sum);
    begins_[g] = -sum;
  }

  const Index rows_, width_, group_;
  int more_ = 1;
  const std::shared_ptr<void> memory_;
  std::int8_t* const q_;
  float *const scales_, *const sums_;
  std::int32_t* const begins_;
};

constexpr Index kPanel = simd::kQ8Panel;

/// Some times kPanel rows of W.
class Panels {
 public:
  /// W's rows [first, first + count); what is missing of a panel is 0.
  void fill(const MatrixView& w, Index first, Index count, const simd::BlockKernels::Format& format,
            const simd::BlockKernels& kernels) {
    depth_ = w.cols;
    groups_ = w.cols / format.group;
    has_offsets_ = has_offsets(w.format);
    const auto panels = static_cast<std::size_t>((count + kPanel - 1) / kPanel);
    const auto numbers = static_cast<std::size_t>(kPanel * w.cols);
    grow(split_q_, numbers);
    grow(q_, panels * numbers);
    for (AlignedVector<float>* of : {&split_scales_, &split_offsets_}) grow(*of, numbers / kSplit);
    for (AlignedVector<float>* of : {&scales_, &offsets_}) grow(*of, panels * numbers / kSplit);
    for (Index j = 0; j < count; j += kPanel)
      fill_panel(w, first + j, std::min(kPanel, count - j), j / kPanel, format, kernels);
  }
  simd::Q8Panel view(Index panel) const {
    const Index g = panel * kPanel * groups_;
    return {q_.data() + panel * kPanel * depth_, scales_.data() + g,
            has_offsets_ ? offsets_.data() + g : nullptr};
  }

 private:
  template <class T>
  static void grow(AlignedVector<T>& to, std::size_t size) {
    if (to.size() < size) to.resize(size);
  }

  void fill_panel(const MatrixView& w, Index first, Index count, Index panel,
                  const simd::BlockKernels::Format& format, const simd::BlockKernels& kernels) {
    const Index halves = w.cols / kSplit, step = format.group / kSplit;
    for (Index j = 0; j < count; ++j)
      split_blocks(w.format, from_number(w, w.stored_row(first + j) * w.pitch).data, w.cols,
                   {split_q_.data() + j * w.cols, split_scales_.data() + j * halves,
                    split_offsets_.data() + j * halves});
    kernels.pack(w.cols, split_q_.data(), w.cols, format.more, q_.data() + panel * kPanel * depth_);
    const auto pack_groups = [&](const AlignedVector<float>& from, AlignedVector<float>& to) {
      float* next = to.data() + panel * kPanel * groups_;
      for (Index g = 0; g < groups_; ++g)
        for (Index j = 0; j < kPanel; ++j)
          *next++ = j < count ? from[static_cast<std::size_t>(j * halves + g * step)] : 0;
    };
    pack_groups(split_scales_, scales_);
    if (has_offsets_) pack_groups(split_offsets_, offsets_);
  }

  AlignedVector<std::int8_t> split_q_, q_;
  AlignedVector<float> split_scales_, split_offsets_, scales_, offsets_;
  Index depth_ = 0, groups_ = 0;
  bool has_offsets_ = false;
};

/// Rows of A go over all panels that are packed at a time: these stay in the second-level cache,
/// and so many rows in the first.
void multiply_many(const RoundedRows& rows, Index m, const SharedProduct& product,
                   const simd::BlockKernels::Format& format, const simd::BlockKernels& kernels) {
  constexpr Index kRowsAtATime = 24, kPacked = 1 << 19, kMostPanels = 8, kEnough = 64;
  const auto [w, c, ldc, start] = product;
  // So many panels that all threads have something to do until the end.
  const Index some = std::min(w.rows / kPanel / kEnough, kPacked / (kPanel * w.cols));
  const Index together = kPanel * std::clamp<Index>(some, 1, kMostPanels);
  parallel_chunks(w.rows, together,
                  [&, w = w, c = c, ldc = ldc, start = start](Index begin, Index end) {
                    thread_local Panels panels;
                    panels.fill(w, begin, end - begin, format, kernels);
                    for (Index i = 0; i < m; i += kRowsAtATime)
                      for (Index j = begin; j < end; j += kPanel)
                        format.product_q8(std::min(kRowsAtATime, m - i), rows.from(i),
                                          panels.view((j - begin) / kPanel), c + i * ldc + j, ldc,
                                          std::min(kPanel, end - j), start.from_column(j).keep());
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
    simd::Q8Row x[packed::kFewRows];
    for (Index i = 0; i < m; ++i) x[i] = rows.row(i);
    return multiply_rows_of_blocks(m, products, [&](const SharedProduct& product) {
      return [&x, m, dot = kernels_of(product.w.format, kernels).dot_q8](const std::uint8_t* blocks,
                                                                         Index count, Real* sums) {
        float few[simd::kQ8DotRows];
        for (Index i = 0; i < m; i += simd::kQ8DotRows) {
          const Index there = std::min(simd::kQ8DotRows, m - i);
          dot[there - 1](blocks, count, x + i, few);
          sums[i] = few[0];  // of one row all there is
          for (Index r = 1; r < there; ++r) sums[i + r] = few[r];
        }
      };
    });
  }
  std::optional<RoundedRows> of_16, of_32;  // numbers of a group
  for (const SharedProduct& product : products) {
    const simd::BlockKernels::Format& format = kernels_of(product.w.format, kernels);
    std::optional<RoundedRows>& rows = format.group == kSplit ? of_16 : of_32;
    if (!rows) rows.emplace(m, a, lda, cols, cols, format.group, kernels);
    rows->begin_for(format.more);
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
