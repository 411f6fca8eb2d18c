#include "autograd/gemm/matrix_view.h"

#include <algorithm>

#include "autograd/base/aligned_vector.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/block_formats.h"
#include "autograd/gemm/packed_product.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

template <class Stored>
const Stored* numbers(const MatrixView& view, Index first) {
  return static_cast<const Stored*>(view.data) + first;
}

/// to[count] = the numbers that are stored from `first` on.
void widen(const MatrixView& view, Index first, Index count, Real* to) {
  switch (view.format) {
    case NumberFormat::f32:
      std::copy_n(numbers<float>(view, first), count, to);
      break;
    case NumberFormat::f64:
      std::transform(numbers<double>(view, first), numbers<double>(view, first) + count, to,
                     [](double x) { return static_cast<Real>(x); });
      break;
    case NumberFormat::bf16:
      simd::kernels().widen_bf16(numbers<Bf16>(view, first), count, to);
      break;
    case NumberFormat::f16:
      simd::kernels().widen_f16(numbers<std::uint16_t>(view, first), count, to);
      break;
    default:
      widen_blocks(view.format, view.data, first, count, to);
  }
}

/// How many of `count` rows, from `row` on, are stored in their order.
Index rows_together(const MatrixView& view, Index row, Index count) {
  if (view.rotary_pairs > 0) return 1;
  return view.runs() ? std::min(count, view.run - row % view.run) : count;
}

/// A part of what is stored: numbers [first, first + count) of the lines [line, line + lines).
struct StoredPart {
  Index line, lines, first, count;
};

/// Where Real numbers lie as the kernels want them: else null.
const Real* direct(const MatrixView& view, const StoredPart& part) {
  if (view.format != kRealFormat || !view.in_order()) return nullptr;
  return numbers<Real>(view, part.line * view.pitch + part.first);
}

/// The part's lines one after the other.
void read_part(const MatrixView& view, const StoredPart& part, Real* to) {
  for (Index l = part.line; l < part.line + part.lines; ++l, to += part.count) {
    if (!view.transposed) {
      widen(view, view.stored_row(l) * view.pitch + part.first, part.count, to);
      continue;
    }
    for (Index i = 0; i < part.count;) {
      const Index row = part.first + i;
      const Index together = rows_together(view, row, part.count - i);
      widen(view, l * view.pitch + view.stored_row(row), together, to + i);
      i += together;
    }
  }
}

/// Lines of a matrix in blocks that are widened at a time, kMostBlockNumbers of each: as rows of a
/// product they stay in the first-level cache on their way into several panels.
constexpr Index kBlockLines = 16;

/// Puts rows, all of which are lines of blocks, into panels: each of GGML's blocks is widened once,
/// though it goes into several panels.
void pack_rows_of_blocks(const MatrixView& view, const StoredPart& part, Real* panels) {
  const simd::Kernels& kernels = simd::kernels();
  thread_local AlignedVector<Real> strip(kBlockLines * kMostBlockNumbers);
  const Index step = kMostBlockNumbers / kernels.panel * kernels.panel;
  for (Index at = 0; at < part.count; at += step) {
    const Index width = std::min(step, part.count - at);
    for (Index line = 0; line < part.lines; line += kBlockLines) {
      const Index lines = std::min(kBlockLines, part.lines - line);
      read_part(view, {part.line + line, lines, part.first + at, width}, strip.data());
      for (Index c = 0; c < width; c += kernels.panel) {
        const Index columns = std::min(kernels.panel, width - c);
        kernels.pack(strip.data() + c, width, lines, columns, 1,
                     panels + (at + c) * part.lines + line * simd::padded(kernels, columns));
      }
    }
  }
}

/// Puts a block into panels, the part's lines being its rows, or its columns.
void pack_block(const MatrixView& view, const StoredPart& part, bool lines_are_rows, Real* panels) {
  const simd::Kernels& kernels = simd::kernels();
  const auto put = [&](const Real* source, Index ld, Index rows, Index columns, Real* to) {
    if (lines_are_rows)
      kernels.pack(source, ld, rows, columns, 1, to);
    else
      kernels.pack_transposed(source, ld, columns, rows, 1, to);
  };
  const Index rows = lines_are_rows ? part.lines : part.count;
  const Index columns = lines_are_rows ? part.count : part.lines;
  if (const Real* source = direct(view, part))
    return put(source, view.pitch, rows, columns, panels);
  if (lines_are_rows && in_blocks(view.format)) return pack_rows_of_blocks(view, part, panels);
  // A panel at a time, so that what is widened stays in the first-level cache or near it.
  thread_local AlignedVector<Real> strip;
  strip.resize(packed::kBlockDepth * kernels.panel);
  for (Index c = 0; c < columns; c += kernels.panel) {
    const Index width = std::min(kernels.panel, columns - c);
    const StoredPart of_panel = lines_are_rows ? StoredPart{part.line, rows, part.first + c, width}
                                               : StoredPart{part.line + c, width, part.first, rows};
    read_part(view, of_panel, strip.data());
    put(strip.data(), of_panel.count, rows, width, panels + c * rows);
  }
}

/// Packs blocks, rows [p, p + depth), columns [j, j + columns), of a product's right-hand side, W
/// or Wᵀ.
auto packing(const MatrixView& w, bool transposed) {
  return [&w, lines_are_rows = w.transposed == transposed](Index p, Index depth, Index j,
                                                           Index columns, Real* panels) {
    const StoredPart rows{p, depth, j, columns}, turned{j, columns, p, depth};
    pack_block(w, lines_are_rows ? rows : turned, lines_are_rows, panels);
  };
}

/// Rows of a transposed matrix that are put together at a time: two cache lines of floats.
constexpr Index kGatheredRows = 32;

/// to[count, cols] = rows [first, first + count) of a transposed matrix.
void gather_rows(const MatrixView& view, Index first, Index count, Real* to) {
  const simd::Kernels& kernels = simd::kernels();
  thread_local AlignedVector<Real> strip, panel;
  strip.resize(kernels.panel * kGatheredRows);
  panel.resize(strip.size());
  for (Index line = 0; line < view.cols; line += kernels.panel) {
    const StoredPart part{line, std::min(kernels.panel, view.cols - line), first, count};
    const Real* source = direct(view, part);
    if (source == nullptr) read_part(view, part, strip.data());
    kernels.pack_transposed(source != nullptr ? source : strip.data(),
                            source != nullptr ? view.pitch : count, part.lines, count, 1,
                            panel.data());
    for (Index i = 0; i < count; ++i)
      std::copy_n(panel.data() + i * simd::padded(kernels, part.lines), part.lines,
                  to + i * view.cols + line);
  }
}

/// Whether its blocks can be multiplied as they lie.
bool multiplies_blocks(const MatrixView& b) {
  return !b.transposed && dot_of_blocks(b.format, b.cols) != nullptr;
}
void multiply_rows_of_blocks(Index m, const Real* a, Index lda,
                             std::span<const SharedProduct> products) {
  for (const SharedProduct& product : products) packed::tally(m, product.w.rows, product.w.cols);
  focus::multiply_rows_of_blocks(m, products, [&](const SharedProduct& product) {
    return [&w = product.w, dot = dot_of_blocks(product.w.format, product.w.cols), m, a, lda](
               const std::uint8_t* blocks, Index count, Real* sums) {
      if (m <= 2) {  // to widen and read again takes longer
        for (Index i = 0; i < m; ++i) sums[i] = dot(blocks, count, a + i * lda);
        return;
      }
      thread_local AlignedVector<Real> row;
      row.resize(w.cols);
      widen_blocks(w.format, blocks, 0, w.cols, row.data());
      simd::kernels().dot_rows(row.data(), m, a, lda, w.cols, sums);
    };
  });
}

/// C[m, rows] for few rows of A: one pass over B.
void multiply_rows(Index m, const Real* a, Index lda, const MatrixView& b, Real* c, Index ldc,
                   Start start) {
  packed::tally(m, b.rows, b.cols);
  const Index chunk = rows_at_a_time(b);
  parallel_runs(b.rows, chunk, [&](Index begin, Index end) {
    thread_local AlignedVector<Real> widened;
    widened.resize((b.transposed ? chunk : 1) * b.cols);
    if (b.transposed) gather_rows(b, begin, end - begin, widened.data());
    for (Index j = begin; j < end; ++j) {
      const Real* row = widened.data() + (b.transposed ? (j - begin) * b.cols : 0);
      if (!b.transposed) {
        const StoredPart whole{j, 1, 0, b.cols};
        if (const Real* there = direct(b, whole))
          row = there;
        else
          read_part(b, whole, widened.data());
      }
      for (Index i = 0; i < m; ++i) {
        Real& sum = c[i * ldc + j];
        const Real product = simd::kernels().dot_row(a + i * lda, row, b.cols);
        sum = start.add ? sum + product : start.in_column(j) + product;
      }
    }
  });
}

}  // namespace

MatrixView from_number(MatrixView view, Index place) {
  view.data = static_cast<const std::byte*>(view.data) + bytes_of(view.format, place);
  return view;
}

void read_rows(const MatrixView& view, Index first, Index count, Real* to) {
  if (!view.transposed) return read_part(view, {first, count, 0, view.cols}, to);
  for (Index i = 0; i < count; i += kGatheredRows)
    gather_rows(view, first + i, std::min(kGatheredRows, count - i), to + i * view.cols);
}

Index rows_at_a_time(const MatrixView& view) {
  return view.transposed ? kGatheredRows : rows_per_chunk(view.cols);
}

void gemm_nt(Index m, const Real* a, Index lda, const MatrixView& b, Real* c, Index ldc,
             Start start) {
  if (m <= packed::kFewRows && multiplies_blocks(b)) {
    const SharedProduct product{b, c, ldc, start};
    return multiply_rows_of_blocks(m, a, lda, {&product, 1});
  }
  if (m <= packed::kFewRows) return multiply_rows(m, a, lda, b, c, ldc, start);
  // Bᵀ's rows are B's columns.
  packed::multiply_parallel(m, b.rows, b.cols, {a, lda, 1}, packing(b, true), c, ldc, start);
}

void gemm_nt(Index m, const Real* a, Index lda, std::span<const SharedProduct> products) {
  const bool together = std::ranges::all_of(
      products, [](const SharedProduct& product) { return multiplies_blocks(product.w); });
  if (m <= packed::kFewRows && together) return multiply_rows_of_blocks(m, a, lda, products);
  for (const auto& [w, c, ldc, start] : products) gemm_nt(m, a, lda, w, c, ldc, start);
}

void gemm(Index m, const Real* a, Index lda, const MatrixView& b, Real* c, Index ldc, Start start) {
  packed::multiply_parallel(m, b.cols, b.rows, {a, lda, 1}, packing(b, false), c, ldc, start);
}

}  // namespace focus
