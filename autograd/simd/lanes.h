#pragma once

#include "autograd/base/types.h"

// Products of numbers so narrow that a lane of 32 bits holds several of them, which are neighbours
// along the depth of a product: two of bf16, four of int8.
namespace focus::simd {

using Lane32 = std::uint32_t;

/// A right-hand side that is packed for them, or a part of it: panels of 64 columns (the last of
/// what is left, in whole vectors of 16), each of which has its rows of lanes one after the other.
struct LanePanels {
  const void* data = nullptr;
  Index lanes = 0;         // depth of the whole
  Index columns = 0;       // of the whole, a multiple of 16
  Index first_lane = 0;    // where a product starts
  Index first_column = 0;  // likewise, a multiple of 16
};

/// What a product is added to: C, or one row for each of C's, or nothing.
template <class Sum>
struct LaneStart {
  bool c = false;
  const Sum* row = nullptr;
};

}  // namespace focus::simd
