#pragma once

#include <gtest/gtest.h>

#include "autograd/simd/kernels.h"

namespace focus {

/// Calls f(kernels) for all that this machine can run.
template <class F>
void for_kernels(F&& f) {
  const simd::KernelList list = simd::usable_kernels();
  for (int i = 0; i < list.count; ++i) {
    SCOPED_TRACE(list.items[i]->name);
    f(*list.items[i]);
  }
}

}  // namespace focus
