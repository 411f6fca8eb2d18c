#include "autograd/gemm/frozen_matrix.h"

#include <algorithm>
#include <cstdint>

#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "autograd/gemm/bf16.h"
#include "autograd/gemm/packed_product.h"
#include "autograd/gemm/q8.h"
#include "autograd/simd/bf16_kernels.h"

namespace focus {
namespace {

class ViewStorage : public MatrixStorage {
 public:
  ViewStorage(const MatrixView& view, std::shared_ptr<const void> owner,
              Precision precision = Precision::float32)
      : MatrixStorage({view.rows, view.cols}),
        view_(view),
        owner_(std::move(owner)),
        precision_(precision) {}

  Precision precision() const override { return precision_; }
  NumberFormat format() const override { return view_.format; }
  std::size_t bytes() const override { return bytes_of(view_.format, shape().size()); }
  void row(Index i, Real* to) const override { read_rows(view_, i, 1, to); }
  void gemm_nt(Index m, const Real* x, Real* y, Start start) const override {
    focus::gemm_nt(m, x, view_.cols, view_, y, view_.rows, start);
  }
  void gemm(Index m, const Real* dy, Real* dx, Start start) const override {
    focus::gemm(m, dy, view_.rows, view_, dx, view_.cols, start);
  }
  const MatrixView* blocks() const override {
    return in_blocks(view_.format) && !view_.transposed ? &view_ : nullptr;
  }
  /// With what lies between its lines: the fused matrix whose part it is is wanted in whole.
  void read_ahead() const override {
    const Index last = view_.transposed ? view_.cols - 1 : view_.stored_row(view_.rows - 1);
    const Index length = view_.transposed ? view_.stored_row(view_.rows - 1) + 1 : view_.cols;
    focus::read_ahead(view_.data, bytes_of(view_.format, last * view_.pitch + length), owner_);
  }

 protected:
  const MatrixView& view() const { return view_; }

 private:
  MatrixView view_;
  std::shared_ptr<const void> owner_;
  Precision precision_;
};

/// Products in Precision::q8. Many rows are rounded to bf16 where there are AMX's tiles: these take
/// half the time of products of integers with scales, but blocks have to be widened for them.
void multiply_q8(Index m, const Real* x, std::span<const SharedProduct> products) {
  constexpr Index kFewestByTiles = 32;
  const Index cols = products.front().w.cols;
  if (m < kFewestByTiles || !simd::bf16_kernels().by_tiles) return gemm_nt_q8(m, x, cols, products);
  const Bf16Matrix rounded(m, cols, x, cols);
  for (const auto& [w, y, ldy, start] : products) gemm_nt(rounded, w, y, ldy, start);
}

/// Back it is ViewStorage: a gradient of the product as if what came in had not been rounded.
class Q8Storage final : public ViewStorage {
 public:
  using ViewStorage::ViewStorage;

  void gemm_nt(Index m, const Real* x, Real* y, Start start) const override {
    const SharedProduct product{view(), y, view().rows, start};
    multiply_q8(m, x, {&product, 1});
  }
};

class Bf16Storage final : public ViewStorage {
 public:
  Bf16Storage(const MatrixView& view, std::shared_ptr<const Bf16Matrix> matrix)
      : ViewStorage(view, matrix, Precision::bf16), matrix_(std::move(matrix)) {}

  void gemm_nt(Index m, const Real* x, Real* y, Start start) const override {
    focus::gemm_nt(m, x, matrix_->cols(), *matrix_, y, matrix_->rows(), start);
  }
  void gemm(Index m, const Real* dy, Real* dx, Start start) const override {
    focus::gemm(m, dy, matrix_->rows(), *matrix_, dx, matrix_->cols(), start);
  }

 private:
  std::shared_ptr<const Bf16Matrix> matrix_;
};

/// Where products of bf16 take no less time the numbers are widened, and what they multiply is not
/// rounded.
std::shared_ptr<const MatrixStorage> store_bf16(Bf16Matrix matrix) {
  const auto owner = std::make_shared<const Bf16Matrix>(std::move(matrix));
  const MatrixView rows{.data = owner->row(0),
                        .format = NumberFormat::bf16,
                        .rows = owner->rows(),
                        .cols = owner->cols(),
                        .pitch = owner->pitch()};
  if (simd::fast_bf16_kernels() != nullptr) return std::make_shared<const Bf16Storage>(rows, owner);
  return std::make_shared<const ViewStorage>(rows, owner, Precision::bf16);
}

std::shared_ptr<const MatrixStorage> store_q8(const MatrixView& view,
                                              std::shared_ptr<const void> owner,
                                              const std::string& name) {
  if (in_blocks(view.format) && !view.transposed)
    return std::make_shared<const Q8Storage>(view, std::move(owner), Precision::q8);
  if (view.cols % block_numbers(NumberFormat::q8_0) != 0)
    return std::make_shared<const ViewStorage>(view, std::move(owner), Precision::q8);
  const OwnedView rounded = rounded_to_q8_0(view, name);
  return std::make_shared<const Q8Storage>(rounded.view, rounded.owner, Precision::q8);
}

std::shared_ptr<const MatrixStorage> store_view(const MatrixView& view,
                                                std::shared_ptr<const void> owner,
                                                Precision precision, const std::string& name) {
  check(reinterpret_cast<std::uintptr_t>(view.data) % alignment_of(view.format) == 0,
        "a frozen matrix in {}: its address is not a multiple of {} bytes", name_of(view.format),
        alignment_of(view.format));
  switch (precision) {
    case Precision::float32:
      return std::make_shared<const ViewStorage>(view, std::move(owner));
    case Precision::bf16:
      return store_bf16(Bf16Matrix(view, std::move(owner)));
    case Precision::q8:
      return store_q8(view, std::move(owner), name);
  }
  fail("unknown precision of a frozen matrix");
}

std::shared_ptr<const MatrixStorage> store_matrix(const Tensor& values, Precision precision,
                                                  const std::string& name) {
  check(values.rank() == 2, "a frozen matrix in {}: {} is not a matrix", name_of(precision),
        values.shape());
  const auto owner = std::make_shared<const Tensor>(values);
  return store_view(
      {.data = owner->data(), .rows = values.dim(0), .cols = values.dim(1), .pitch = values.dim(1)},
      owner, precision, name);
}

}  // namespace

bool faster_together(Index m, std::span<const MatrixStorage* const> matrices) {
  if (matrices.size() < 2) return false;
  const Precision precision = matrices.front()->precision();
  return (precision == Precision::q8 || m <= packed::kFewRows) &&
         std::ranges::all_of(matrices, [&](const MatrixStorage* matrix) {
           return matrix->blocks() != nullptr && matrix->precision() == precision;
         });
}

void gemm_nt_together(Index m, const Real* x, std::span<const FrozenProduct> products) {
  std::vector<SharedProduct> shared;
  for (const auto& [w, y, start] : products)
    shared.push_back({*w->blocks(), y, w->blocks()->rows, start});
  if (products.front().w->precision() == Precision::q8)
    multiply_q8(m, x, shared);
  else
    gemm_nt(m, x, shared.front().w.cols, shared);
}

FrozenMatrix::FrozenMatrix(const Tensor& values, Precision precision, const std::string& name)
    : storage_(store_matrix(values, precision, name)) {}

FrozenMatrix::FrozenMatrix(const MatrixView& view, std::shared_ptr<const void> owner,
                           Precision precision, const std::string& name)
    : storage_(store_view(view, std::move(owner), precision, name)) {}

}  // namespace focus
