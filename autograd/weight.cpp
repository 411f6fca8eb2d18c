#include "autograd/weight.h"

#include "autograd/base/check.h"

namespace focus {
namespace {

/// "weight layers.0.mlp.up_proj.weight [40, 24]"
std::string described(const std::string& name, const Shape& shape) {
  return name.empty() ? fmt::format("weight {}", shape) : fmt::format("weight {} {}", name, shape);
}

}  // namespace

void Weight::set_requires_grad(bool wanted, const std::string& name) {
  if (is_shape_alone() && !wanted) return;
  if (!is_frozen_matrix()) return variable(name).set_requires_grad(wanted);
  check(!wanted, "set_requires_grad: the {} is stored in {} and therefore frozen",
        described(name, shape()), name_of(frozen_->format()));
}

void Weight::freeze(Precision precision, const std::string& name) {
  if (is_frozen_matrix()) {
    check(frozen_->precision() == precision,
          "freeze: the weight {} is frozen for products in {} already", shape(),
          name_of(frozen_->precision()));
    return;
  }
  check(!is_shape_alone(), "freeze: the {} has no values yet", described(name, shape()));
  check(!requires_grad(),
        "freeze: the weight {} is trained; only frozen weights can be converted to {}", shape(),
        name_of(precision));
  frozen_ = FrozenMatrix(variable_.value(), precision, name);
  variable_ = Variable();
}

void Weight::multiply_in_bf16(const std::string& name) {
  check(!is_frozen_matrix(), "multiply_in_bf16: the {} is frozen; freeze it in that precision",
        described(name, shape()));
  bf16_ = true;
}

void Weight::refuse(const std::string& name) const {
  check(!is_shape_alone(), "value: the {} has no values yet", described(name, shape()));
  throw std::invalid_argument(
      fmt::format("value: the {} is frozen, as it is stored in {}; load the model with its weights "
                  "trainable",
                  described(name, shape()), name_of(frozen_->format())));
}

}  // namespace focus
