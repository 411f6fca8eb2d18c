#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "autograd/gemm/gemm.h"
#include "autograd/gemm/matrix_view.h"
#include "autograd/tensor.h"

namespace focus {

/// How matrices are multiplied; sums and everything between products are float32. A further
/// precision is a line here and a case in frozen_matrix.cpp; no op and no layer knows them.
enum class Precision {
  float32,  // as they are stored, widened exactly
  bf16,     // frozen weights and, where the processor is faster by it, both operands of every
            // product are rounded to bf16; trained weights stay float32
            // (Weight::multiply_in_bf16)
  q8,  // frozen weights lie in GGML's blocks: as stored, or rounded to Q8_0; what they multiply
       // is rounded to int8 (q8.h), with AMX many rows to bf16; backward as in float32
};
constexpr auto enum_names(Precision) {
  return std::array<std::string_view, 3>{"float32", "bf16", "q8"};
}
constexpr std::string_view name_of(Precision precision) {
  return enum_names(precision)[static_cast<std::size_t>(precision)];
}

/// The numbers of a matrix [rows, cols] in some form, and all that can be asked of them. The
/// products' bits do not depend on the number of threads.
class MatrixStorage {
 public:
  explicit MatrixStorage(const Shape& shape) : shape_(shape) {}
  virtual ~MatrixStorage() = default;
  MatrixStorage(const MatrixStorage&) = delete;
  MatrixStorage& operator=(const MatrixStorage&) = delete;

  const Shape& shape() const { return shape_; }
  virtual Precision precision() const = 0;
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
  /// Throws std::invalid_argument where `values` is no matrix, and where Precision::q8 has to round
  /// a number that is not finite or beyond 8.3e6; `name` is the weight's, for messages.
  FrozenMatrix(const Tensor& values, Precision precision, const std::string& name = "");
  /// Numbers that lie elsewhere, in a file that is mapped into memory, which `owner` holds: they
  /// stay there. With Precision::bf16 those in another format, or laid otherwise than in rows of an
  /// even length, are rounded into memory of the matrix's own; with Precision::q8 those in no
  /// blocks, but for rows that are no whole number of blocks: these are multiplied in float32.
  /// Throws as above, and where the address does not suit the format.
  FrozenMatrix(const MatrixView& view, std::shared_ptr<const void> owner,
               Precision precision = Precision::float32, const std::string& name = "");
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
