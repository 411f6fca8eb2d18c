#include "autograd/soft_cap.h"

#include <algorithm>

#include "autograd/ops.h"
#include "autograd/simd/kernels.h"

namespace focus {

void soft_cap(Real* row, Index n, Real cap, Real* slope) {
  if (cap == 0) {
    if (slope != nullptr) std::fill_n(slope, n, Real(1));
    return;
  }
  const auto& kernels = simd::kernels().elementwise;
  kernels.affine(row, 1 / cap, 0, row, n);
  kernels.tanh.value(row, row, n);
  if (slope != nullptr) {  // 1 - tanh^2
    kernels.multiply(row, row, slope, n);
    kernels.affine(slope, -1, 1, slope, n);
  }
  kernels.affine(row, cap, 0, row, n);
}

Variable soft_cap(const Variable& x, Real cap) {
  return cap > 0 ? scale(tanh(scale(x, 1 / cap)), cap) : x;
}

}  // namespace focus
