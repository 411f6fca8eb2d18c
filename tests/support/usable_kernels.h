#pragma once

#include <gtest/gtest.h>

#include "autograd/simd/kernels.h"

namespace focus {

/// Calls f(kernels) for all that this machine can run.
template <class F>
void for_kernels(F&& f) {
  for (const simd::Kernels* kernels : simd::usable_kernels()) {
    SCOPED_TRACE(kernels->name);
    f(*kernels);
  }
}

}  // namespace focus
