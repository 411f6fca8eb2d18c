#include <algorithm>

#include "autograd/base/check.h"
#include "autograd/ops.h"

namespace focus {
namespace {

/// Numbers of one token of a row [1, seq_len, ...].
Index width_of(const Shape& shape) {
  Index width = 1;
  for (int i = 2; i < shape.rank(); ++i) width *= shape[i];
  return width;
}

}  // namespace

Variable slice(const Variable& x, Index begin, Index end) {
  check(x.shape().rank() >= 2 && x.dim(0) == 1 && begin >= 0 && begin <= end && end <= x.dim(1),
        "slice: tokens {} to {} do not fit {}, expected one row [1, seq_len, ...]", begin, end,
        x.shape());
  const Index width = width_of(x.shape());
  Tensor part(x.shape().with(1, end - begin));
  std::copy_n(x.value().data() + begin * width, part.size(), part.data());
  return Variable::from_op("slice", part, {x},
                           [begin, width, shape = x.shape()](const Tensor& dy, Grads grads) {
                             // Onto what other slices have left: each touches its own tokens alone.
                             if (Tensor* const sum = grads[0].sum()) {
                               Real* const to = sum->data() + begin * width;
                               for (Index i = 0; i < dy.size(); ++i) to[i] += dy[i];
                               return;
                             }
                             Tensor dx = Tensor::zeros(shape);
                             std::ranges::copy(dy.span(), dx.data() + begin * width);
                             grads[0].add(std::move(dx));
                           });
}

Variable concatenate(std::span<const Variable> parts) {
  check(!parts.empty(), "concatenate: no tensors given");
  Index tokens = 0;
  for (const Variable& part : parts) {
    check(
        part.shape().rank() >= 2 && part.dim(0) == 1 &&
            part.shape().with(1, 1) == parts[0].shape().with(1, 1),
        "concatenate: {} does not fit {}, expected rows [1, n, ...] with equal dimensions after n",
        part.shape(), parts[0].shape());
    tokens += part.dim(1);
  }
  Tensor all(parts[0].shape().with(1, tokens));
  Real* to = all.data();
  for (const Variable& part : parts) to = std::ranges::copy(part.value().span(), to).out;
  std::vector<Shape> shapes;
  for (const Variable& part : parts) shapes.push_back(part.shape());
  return Variable::from_op("concatenate", all, parts,
                           [shapes = std::move(shapes)](const Tensor& dy, Grads grads) {
                             const Real* from = dy.data();
                             for (std::size_t i = 0; i < shapes.size(); ++i) {
                               const Index size = shapes[i].size();
                               if (grads[i].wanted()) {
                                 Tensor part(shapes[i]);
                                 std::copy_n(from, size, part.data());
                                 grads[i].add(std::move(part));
                               }
                               from += size;
                             }
                           });
}

}  // namespace focus
