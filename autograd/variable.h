#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "autograd/tensor.h"

// Reverse-mode differentiation. An op computes its value at once and, where some input wants a
// gradient, leaves a node behind: its backward function and edges to the nodes of its inputs.
// Edges hold gradients, not values: all that backward keeps in memory is what the ops' backward
// functions captured.
namespace focus {

class Grads;
/// Receives the gradient of the op's output and adds to the slots of its inputs.
using BackwardFunction = std::function<void(const Tensor& dy, Grads grads)>;

namespace detail {
struct GradNode {
  GradNode() = default;
  GradNode(const GradNode&) = delete;
  GradNode& operator=(const GradNode&) = delete;
  ~GradNode();  // unlinks a dropped graph without recursion, so that depth is free

  std::uint64_t id = 0;  // creation order: a node's inputs always have smaller numbers
  const char* op = "leaf";
  std::vector<std::shared_ptr<GradNode>> inputs;
  BackwardFunction backward;  // empty for a leaf
  Tensor grad;                // undefined until something has been added
};
void add_gradient(GradNode& node, Tensor grad);
}  // namespace detail

/// The gradient slots of an op's inputs, in the order of its inputs.
class Grads {
 public:
  class Slot {
   public:
    explicit Slot(detail::GradNode* node) : node_(node) {}
    /// False where nobody asked: the op then skips the work.
    bool wanted() const { return node_ != nullptr; }
    /// Adds; the tensor may be shared with other slots (it is copied before it is written).
    void add(Tensor grad) {
      if (node_ != nullptr) detail::add_gradient(*node_, std::move(grad));
    }

    /// The sum so far, to be added to in place, where nobody else holds it; otherwise null. Not for
    /// leaves, whose gradients of several passes must stay apart.
    Tensor* sum() {
      const bool own = node_ != nullptr && node_->backward && node_->grad.unique();
      return own ? &node_->grad : nullptr;
    }

   private:
    detail::GradNode* node_;
  };

  explicit Grads(const std::vector<std::shared_ptr<detail::GradNode>>& inputs) : inputs_(inputs) {}
  Slot operator[](std::size_t i) const { return Slot(inputs_[i].get()); }

 private:
  const std::vector<std::shared_ptr<detail::GradNode>>& inputs_;
};

/// A tensor that may take part in the graph. Copies share value and gradient.
class Variable {
 public:
  Variable() = default;
  Variable(Tensor value) : value_(std::move(value)) {}  // NOLINT: a constant is a Variable

  /// The result of an op. Records nothing when no input wants a gradient or recording is off.
  static Variable from_op(const char* op, Tensor value, std::initializer_list<Variable> inputs,
                          BackwardFunction backward) {
    return from_op(op, std::move(value), std::span(inputs.begin(), inputs.size()),
                   std::move(backward));
  }
  static Variable from_op(const char* op, Tensor value, std::span<const Variable> inputs,
                          BackwardFunction backward);

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  Tensor& mutable_value() { return value_; }
  const Shape& shape() const { return value_.shape(); }
  Index dim(int i) const { return shape()[i]; }

  bool requires_grad() const { return node_ != nullptr; }
  /// Makes this variable a leaf that collects a gradient, or a constant.
  void set_requires_grad(bool wanted);
  /// Undefined until backward has reached this leaf.
  const Tensor& grad() const;
  void zero_grad();
  /// Replaces the gradient (gradient clipping, exchange between processes).
  void set_grad(Tensor grad);

 private:
  friend void backward(const Variable& loss);

  Tensor value_;
  std::shared_ptr<detail::GradNode> node_;
};
using Variables = std::vector<Variable>;

/// Adds d loss / d leaf to every leaf below `loss` (one number, or the sum of its elements), and
/// frees each node's captured tensors as it passes. A graph can be walked once.
void backward(const Variable& loss);

/// Whether ops on this thread record a graph.
bool grad_enabled();

/// While one lives, ops on this thread record nothing.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

/// Activation checkpointing: f(x) now without a graph, and once more with one when backward comes
/// by. Only x and f's captures are kept in between. f must be deterministic; the parameters it
/// uses collect their gradients as usual.
Variable recompute(std::function<Variable(const Variable&)> f, const Variable& x);

/// x; calls f() in the backward pass, before the gradient reaches x's inputs.
Variable during_backward(const Variable& x, std::function<void()> f);

}  // namespace focus
