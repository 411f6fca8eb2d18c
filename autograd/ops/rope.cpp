#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/ops.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

/// Rotates by the table's angles times `direction` (+1 or -1).
Tensor rotated(const Tensor& x, const RotaryTable& table, Index first_position, Real direction) {
  const Index seq_len = x.dim(1), heads = x.dim(2), head_dim = x.dim(3), half = table.cos.dim(1);
  const Index width = heads * head_dim;
  Tensor y(x.shape());
  parallel_chunks(
      x.dim(0) * seq_len, rows_per_chunk(width), [&, out = y.data()](Index begin, Index end) {
        for (Index t = begin; t < end; ++t) {
          const Index angles = (first_position + t % seq_len) * half;
          simd::kernels().elementwise.rope(x.data() + t * width, table.cos.data() + angles,
                                           table.sin.data() + angles, direction, heads, head_dim,
                                           half, out + t * width);
        }
      });
  return y;
}

}  // namespace

Variable rope(const Variable& x, const RotaryTable& table, Index first_position) {
  check(
      x.shape().rank() == 4 && table.cos.rank() == 2 && first_position >= 0 &&
          first_position + x.dim(1) <= table.cos.dim(0) && 2 * table.cos.dim(1) <= x.dim(3),
      "rope: x {} ([batch, seq_len, heads, head_dim]) from position {} does not fit a table of {}",
      x.shape(), first_position, table.cos.shape());
  // A rotation's transpose is the rotation back.
  return Variable::from_op("rope", rotated(x.value(), table, first_position, 1), {x},
                           [table, first_position](const Tensor& dy, Grads grads) {
                             grads[0].add(rotated(dy, table, first_position, -1));
                           });
}

}  // namespace focus
