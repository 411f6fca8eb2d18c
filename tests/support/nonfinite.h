#pragma once

#include "data/tensors/tensor_source.h"

namespace focus {

/// NaN and infinite numbers in all tensors that can be read as numbers.
inline Index count_nonfinite(const TensorSource& source) {
  Index count = 0;
  for (const TensorInfo& info : source.tensors())
    if (info.dtype != Dtype::other) count += count_nonfinite(source.read(info.name));
  return count;
}

}  // namespace focus
