#pragma once

#include "autograd/tensor.h"

namespace focus {

/// The sum of the rows of x [..., n], under `shape` (of n numbers). In parallel over chunks of rows
/// whose sums are then summed in the same way: the order does not depend on the threads.
Tensor sum_rows(const Tensor& x, const Shape& shape);

}  // namespace focus
