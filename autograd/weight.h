#pragma once

#include <optional>
#include <string>

#include "autograd/gemm/frozen_matrix.h"
#include "autograd/variable.h"

namespace focus {

/// The weight of a linear, an embedding or an output head: a Variable, which may be trained, or a
/// FrozenMatrix.
class Weight {
 public:
  Weight() = default;                                            // undefined
  Weight(Variable variable) : variable_(std::move(variable)) {}  // NOLINT: one of the two
  Weight(Tensor value) : variable_(std::move(value)) {}          // NOLINT: a constant
  Weight(FrozenMatrix matrix) : frozen_(std::move(matrix)) {}    // NOLINT: one of the two

  bool defined() const { return variable_.defined() || is_frozen_matrix(); }
  const Shape& shape() const { return is_frozen_matrix() ? frozen_->shape() : variable_.shape(); }
  Index dim(int i) const { return shape()[i]; }
  /// What its numbers take in memory.
  std::size_t bytes() const {
    return is_frozen_matrix() ? frozen_->bytes()
                              : static_cast<std::size_t>(shape().size()) * sizeof(Real);
  }

  bool is_frozen_matrix() const { return frozen_.defined(); }
  /// Of the frozen matrix; none for a Variable.
  std::optional<MatrixForm> form() const {
    return is_frozen_matrix() ? std::optional(frozen_->form()) : std::nullopt;
  }
  const FrozenMatrix& frozen_matrix() const { return frozen_; }

  /// The Variable. Throws std::invalid_argument, naming the weight, where this is a frozen matrix.
  Variable& variable(const std::string& name = "") {
    refuse_frozen(name);
    return variable_;
  }
  const Variable& variable(const std::string& name = "") const {
    refuse_frozen(name);
    return variable_;
  }
  const Tensor& value() const { return variable().value(); }
  Tensor& mutable_value() { return variable().mutable_value(); }
  const Tensor& grad() const { return variable().grad(); }
  bool requires_grad() const { return variable_.requires_grad(); }
  /// Throws std::invalid_argument where a frozen matrix is to take a gradient.
  void set_requires_grad(bool wanted, const std::string& name = "");

  /// From now on this matrix is a frozen one; its Variable is given up. Throws
  /// std::invalid_argument where it is no matrix, wants a gradient, is frozen in another form or
  /// holds numbers that the form cannot.
  void freeze(MatrixForm form, const std::string& name = "");

  /// What an op lists among its inputs: undefined for a frozen matrix.
  const Variable& input() const { return variable_; }

 private:
  void refuse_frozen(const std::string& name) const {
    if (is_frozen_matrix()) [[unlikely]]
      refuse(name);
  }
  [[noreturn]] void refuse(const std::string& name) const;

  Variable variable_;
  FrozenMatrix frozen_;  // instead of the Variable
};

}  // namespace focus
