#pragma once

#include <cmath>

#include "autograd/variable.h"

// The soft-cap c tanh(s / c) of attention's scores and of the output head's logits (Gemma 2); c = 0
// caps nothing. Tiles of attention use the kernel softcap_row (autograd/simd), which computes tanh
// by e^2x only: the error near 0 does not matter to a softmax.
namespace focus {

inline Real soft_cap(Real s, Real cap) { return cap > 0 ? cap * std::tanh(s / cap) : s; }

/// A row in place; `slope`, where not null, receives the derivative at each number.
void soft_cap(Real* row, Index n, Real cap, Real* slope = nullptr);

Variable soft_cap(const Variable& x, Real cap);

}  // namespace focus
