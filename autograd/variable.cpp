#include "autograd/variable.h"

#include <algorithm>
#include <atomic>
#include <queue>
#include <unordered_set>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/base/profile.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

std::atomic<std::uint64_t> next_id{1};
thread_local bool recording = true;

using NodePointer = std::shared_ptr<detail::GradNode>;

/// Walks the graph below `root` by descending creation number: no recursion, and every node comes
/// after all that use it.
void walk(const NodePointer& root) {
  const auto older = [](const NodePointer& a, const NodePointer& b) { return a->id < b->id; };
  std::priority_queue<NodePointer, std::vector<NodePointer>, decltype(older)> queue(older);
  std::unordered_set<const detail::GradNode*> seen{root.get()};
  queue.push(root);
  while (!queue.empty()) {
    const NodePointer node = queue.top();
    queue.pop();
    if (!node->backward) continue;  // a leaf keeps its gradient
    // Everything the node holds is moved out first, so that it is freed when this step is over.
    const BackwardFunction function = std::move(node->backward);
    const std::vector<NodePointer> inputs = std::move(node->inputs);
    const Tensor dy = std::move(node->grad);
    node->backward = nullptr;
    node->inputs.clear();
    node->grad = Tensor();
    if (!dy.defined()) continue;
    function(dy, Grads(inputs));
    profile_mark(node->op, " backward");
    for (const NodePointer& input : inputs)
      if (input && seen.insert(input.get()).second) queue.push(input);
  }
}

}  // namespace

detail::GradNode::~GradNode() {
  std::vector<NodePointer> dropped = std::move(inputs);
  while (!dropped.empty()) {
    const NodePointer node = std::move(dropped.back());
    dropped.pop_back();
    if (!node || node.use_count() > 1) continue;
    for (NodePointer& input : node->inputs) dropped.push_back(std::move(input));
    node->inputs.clear();
  }
}

void detail::add_gradient(GradNode& node, Tensor grad) {
  if (!node.grad.defined()) {
    node.grad = std::move(grad);
    return;
  }
  check(node.grad.size() == grad.size(), "backward: gradients {} and {} meet in one slot of {}",
        node.grad.shape(), grad.shape(), node.op);
  // Into a buffer that is the node's alone.
  const Tensor before = std::move(node.grad);
  node.grad = before.unique() ? before : Tensor(before.shape());
  parallel_chunks(grad.size(), kElementChunk, [&, out = node.grad.data()](Index begin, Index end) {
    simd::kernels().elementwise.add(before.data() + begin, grad.data() + begin, out + begin,
                                    end - begin);
  });
}

Variable Variable::from_op(const char* op, Tensor value, std::span<const Variable> inputs,
                           BackwardFunction backward) {
  profile_mark(op);
  Variable result(std::move(value));
  const bool wanted = recording && std::ranges::any_of(inputs, &Variable::requires_grad);
  if (!wanted) return result;
  result.node_ = std::make_shared<detail::GradNode>();
  result.node_->id = next_id.fetch_add(1);
  result.node_->op = op;
  result.node_->backward = std::move(backward);
  for (const Variable& input : inputs) result.node_->inputs.push_back(input.node_);
  return result;
}

void Variable::set_requires_grad(bool wanted) {
  check(defined() || !wanted, "set_requires_grad: the variable is undefined");
  if (!wanted) {
    node_.reset();
  } else if (!node_) {
    node_ = std::make_shared<detail::GradNode>();
    node_->id = next_id.fetch_add(1);
  }
}

const Tensor& Variable::grad() const {
  check(node_ != nullptr, "grad: this variable does not require a gradient");
  return node_->grad;
}

void Variable::zero_grad() {
  if (node_) node_->grad = Tensor();
}

void Variable::set_grad(Tensor grad) {
  check(node_ != nullptr, "set_grad: this variable does not require a gradient");
  node_->grad = std::move(grad);
}

void backward(const Variable& loss) {
  check(loss.requires_grad(), "backward: no input of this variable requires a gradient");
  loss.node_->grad = Tensor::full(loss.shape(), 1);
  walk(loss.node_);
}

bool grad_enabled() { return recording; }

NoGrad::NoGrad() : before_(recording) { recording = false; }
NoGrad::~NoGrad() { recording = before_; }

Variable recompute(std::function<Variable(const Variable&)> f, const Variable& x) {
  if (!recording) return f(x);
  Tensor value;
  {
    const NoGrad guard;
    value = f(x).value();
  }
  // The node must exist even where x is a constant: parameters inside f may want gradients.
  Variable anchor(Tensor::zeros({1}));
  anchor.set_requires_grad(true);
  return Variable::from_op("recompute", value, {x, anchor},
                           [f = std::move(f), x_value = x.value()](const Tensor& dy, Grads grads) {
                             Variable x_again(x_value);
                             x_again.set_requires_grad(grads[0].wanted());
                             const Variable y = f(x_again);
                             if (!y.requires_grad()) return;
                             // sum(y * dy) has dy as the gradient of y.
                             const Variable seeded =
                                 Variable::from_op("seed", Tensor::zeros({1}), {y},
                                                   [dy](const Tensor&, Grads g) { g[0].add(dy); });
                             backward(seeded);
                             if (grads[0].wanted() && x_again.grad().defined())
                               grads[0].add(x_again.grad());
                           });
}

Variable during_backward(const Variable& x, std::function<void()> f) {
  return Variable::from_op("during_backward", x.value(), {x},
                           [f = std::move(f)](const Tensor& dy, Grads grads) {
                             f();
                             grads[0].add(dy);
                           });
}

}  // namespace focus
