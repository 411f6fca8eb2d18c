#include "autograd/gemm/frozen_matrix.h"

#include <algorithm>

#include "autograd/check.h"
#include "autograd/gemm/bf16.h"

namespace focus {
namespace {

class Bf16Storage final : public MatrixStorage {
 public:
  explicit Bf16Storage(const Tensor& values)
      : MatrixStorage(values.shape()),
        matrix_(values.dim(0), values.dim(1), values.data(), values.dim(1)) {}

  MatrixForm form() const override { return MatrixForm::bf16; }
  std::size_t bytes() const override {
    return static_cast<std::size_t>(shape().size()) * sizeof(Bf16);
  }
  void row(Index i, Real* to) const override {
    std::transform(matrix_.row(i), matrix_.row(i) + matrix_.cols(), to, from_bf16);
  }
  void gemm_nt(Index m, const Real* x, Real* y) const override {
    focus::gemm_nt(m, x, matrix_.cols(), matrix_, y, matrix_.rows());
  }
  void gemm(Index m, const Real* dy, Real* dx) const override {
    focus::gemm(m, dy, matrix_.rows(), matrix_, dx, matrix_.cols());
  }

 private:
  Bf16Matrix matrix_;
};

std::shared_ptr<const MatrixStorage> store_matrix(const Tensor& values, MatrixForm form) {
  check(values.rank() == 2, "a frozen matrix in {}: {} is not a matrix", name_of(form),
        values.shape());
  switch (form) {
    case MatrixForm::bf16:
      return std::make_shared<const Bf16Storage>(values);
  }
  fail("no such form of a frozen matrix");
}

}  // namespace

const char* name_of(MatrixForm form) {
  switch (form) {
    case MatrixForm::bf16:
      return "bf16";
  }
  return "?";
}

FrozenMatrix::FrozenMatrix(const Tensor& values, MatrixForm form)
    : storage_(store_matrix(values, form)) {}

}  // namespace focus
