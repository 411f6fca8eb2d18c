#pragma once

#include <cmath>

#include "autograd/variable.h"

// The soft-cap c tanh(s / c) of attention's scores and of the output head's logits (Gemma 2); c = 0
// caps nothing. It stands here for one number, for a row and as an op; tiles of attention have it
// as a kernel, softcap_row (autograd/simd), by e^2x alone, without tanh's care for numbers near 0:
// what a score is off by there, beside 1, a softmax does not see.
namespace focus {

inline Real soft_cap(Real s, Real cap) { return cap > 0 ? cap * std::tanh(s / cap) : s; }

/// A row in place; `slope`, where not null, receives the derivative at each number.
void soft_cap(Real* row, Index n, Real cap, Real* slope = nullptr);

Variable soft_cap(const Variable& x, Real cap);

}  // namespace focus
