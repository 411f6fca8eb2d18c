#pragma once

#include <memory>
#include <span>
#include <string>

#include "autograd/gemm/gemm.h"
#include "autograd/gemm/matrix_view.h"
#include "autograd/tensor.h"

namespace focus {

/// How a frozen matrix is multiplied. A further form is a line here, a MatrixStorage in
/// frozen_matrix.cpp and a line in store_view() there; no op and no layer knows them.
enum class MatrixForm {
  real,    // as Real, whatever it is stored in: the bits of the widened matrix
  bf16,    // both operands of a product are rounded to bf16
  bf16x3,  // both are split into two bf16, where that is faster than Real: else as real
  int8,    // it is rounded to int8, a scale for each row (int8.h); products are of Real
  w8a8,    // so is what it multiplies on the way forward; products are of integers
  q8,      // what a matrix in blocks multiplies is rounded to int8 (q8.h); others are as real
};
const char* name_of(MatrixForm form);

/// The numbers of a matrix [rows, cols] in some form, and all that can be asked of them. The
/// products' bits do not depend on the number of threads.
class MatrixStorage {
 public:
  explicit MatrixStorage(const Shape& shape) : shape_(shape) {}
  virtual ~MatrixStorage() = default;
  MatrixStorage(const MatrixStorage&) = delete;
  MatrixStorage& operator=(const MatrixStorage&) = delete;

  const Shape& shape() const { return shape_; }
  virtual MatrixForm form() const = 0;
  virtual NumberFormat format() const = 0;
  virtual std::size_t bytes() const = 0;
  /// to[cols] = row i
  virtual void row(Index i, Real* to) const = 0;
  /// y[m, rows] = start + x[m, cols] Wᵀ
  virtual void gemm_nt(Index m, const Real* x, Real* y, Start start) const = 0;
  /// dx[m, cols] = start + dy[m, rows] W
  virtual void gemm(Index m, const Real* dy, Real* dx, Start start) const = 0;
  /// The matrix as it lies in blocks, where it is multiplied so; else null.
  virtual const MatrixView* blocks() const { return nullptr; }
  /// Numbers that lie in a mapped file will be wanted soon: the system begins to read them.
  virtual void read_ahead() const {}

 private:
  Shape shape_;
};

/// A matrix that never changes and takes no gradient; copies share it.
class FrozenMatrix {
 public:
  FrozenMatrix() = default;  // undefined
  /// Throws std::invalid_argument where `values` is no matrix, and with MatrixForm::int8 and w8a8
  /// where a number is not finite; `name` is the weight's, for messages.
  FrozenMatrix(const Tensor& values, MatrixForm form, const std::string& name = "");
  /// Numbers that lie elsewhere, in a file that is mapped into memory, which `owner` holds: they
  /// stay there. With MatrixForm::bf16 those in another format, or laid otherwise than in rows of
  /// an even length, are rounded into memory of the matrix's own; with MatrixForm::int8 and w8a8
  /// all are. Throws as above, and where the address does not suit the format.
  FrozenMatrix(const MatrixView& view, std::shared_ptr<const void> owner,
               MatrixForm form = MatrixForm::real, const std::string& name = "");
  explicit FrozenMatrix(std::shared_ptr<const MatrixStorage> storage)
      : storage_(std::move(storage)) {}

  bool defined() const { return storage_ != nullptr; }
  const MatrixStorage* operator->() const { return storage_.get(); }

 private:
  std::shared_ptr<const MatrixStorage> storage_;
};

/// y[m, rows] = start + x[m, cols] Wᵀ, of some that have the same x.
struct FrozenProduct {
  const MatrixStorage* w;
  Real* y;
  Start start;
};
/// Whether products of m rows with these matrices, all of as many columns, are faster together.
bool faster_together(Index m, std::span<const MatrixStorage* const> matrices);
/// The products of such, with the bits of MatrixStorage::gemm_nt().
void gemm_nt_together(Index m, const Real* x, std::span<const FrozenProduct> products);

}  // namespace focus
