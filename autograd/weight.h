#pragma once

#include <string>

#include "autograd/gemm/frozen_matrix.h"
#include "autograd/variable.h"

namespace focus {

/// The weight of a linear, an embedding or an output head: a Variable, which may be trained, or a
/// FrozenMatrix; or a shape alone, until it becomes one of the two.
class Weight {
 public:
  Weight() = default;                                            // undefined
  Weight(Variable variable) : variable_(std::move(variable)) {}  // NOLINT: one of the two
  Weight(Tensor value) : variable_(std::move(value)) {}          // NOLINT: a constant
  Weight(FrozenMatrix matrix) : frozen_(std::move(matrix)) {}    // NOLINT: one of the two
  /// Takes no memory. Becomes a Variable of undefined numbers when that is asked for to be changed:
  /// what a file that is mapped gives never is.
  explicit Weight(const Shape& shape) : shape_(shape) {}

  bool defined() const { return variable_.defined() || is_frozen_matrix() || is_shape_alone(); }
  const Shape& shape() const {
    if (is_frozen_matrix()) return frozen_->shape();
    return is_shape_alone() ? shape_ : variable_.shape();
  }
  Index dim(int i) const { return shape()[i]; }
  bool is_shape_alone() const {
    return shape_.rank() > 0 && !variable_.defined() && !is_frozen_matrix();
  }
  /// What its numbers take in memory.
  std::size_t bytes() const {
    if (is_frozen_matrix()) return frozen_->bytes();
    return is_shape_alone() ? 0 : static_cast<std::size_t>(shape().size()) * sizeof(Real);
  }

  bool is_frozen_matrix() const { return frozen_.defined(); }
  /// Which its products have.
  Precision precision() const {
    if (is_frozen_matrix()) return frozen_->precision();
    return bf16_ ? Precision::bf16 : Precision::float32;
  }
  const FrozenMatrix& frozen_matrix() const { return frozen_; }

  /// The Variable. Throws std::invalid_argument, naming the weight, where this is a frozen matrix,
  /// and where it is a shape alone and was not to be changed.
  Variable& variable(const std::string& name = "") {
    if (is_frozen_matrix()) [[unlikely]]
      refuse(name);
    if (is_shape_alone()) [[unlikely]]
      variable_ = Variable(Tensor(shape_));
    return variable_;
  }
  const Variable& variable(const std::string& name = "") const {
    if (is_frozen_matrix() || is_shape_alone()) [[unlikely]]
      refuse(name);
    return variable_;
  }
  const Tensor& value() const { return variable().value(); }
  Tensor& mutable_value() { return variable().mutable_value(); }
  const Tensor& grad() const { return variable().grad(); }
  bool requires_grad() const { return variable_.requires_grad(); }
  /// Throws std::invalid_argument where a frozen matrix is to take a gradient.
  void set_requires_grad(bool wanted, const std::string& name = "");

  /// From now on this matrix is a frozen one; its Variable is given up. Throws
  /// std::invalid_argument where it is no matrix, wants a gradient, is frozen in another precision
  /// or holds numbers that the precision cannot.
  void freeze(Precision precision, const std::string& name = "");

  /// From now on every product with this Variable, forward and both ways back, rounds both of its
  /// operands to bf16, with sums in Real; the Variable's own numbers, which an optimiser changes,
  /// stay Real. Throws std::invalid_argument where it is a frozen matrix.
  void multiply_in_bf16(const std::string& name = "");
  bool multiplies_in_bf16() const { return bf16_; }

  /// What an op lists among its inputs: undefined for a frozen matrix.
  const Variable& input() const { return variable_; }

 private:
  [[noreturn]] void refuse(const std::string& name) const;

  Variable variable_;
  FrozenMatrix frozen_;  // instead of the Variable
  Shape shape_;          // of what is neither yet
  bool bf16_ = false;    // the Variable's products
};

}  // namespace focus
