#pragma once

#include <algorithm>

#include "autograd/simd/lanes.h"

namespace focus {

/// A right-hand side packed as lanes.h says, number by number: panels of up to 64 columns, in rows
/// of lanes of `together` numbers of depth; number(depth, column).
template <class Number, class F>
void pack_panels(Index together, Index depth, Index columns, void* packed, F&& number) {
  auto* to = static_cast<Number*>(packed);
  const Index whole = (columns + 15) / 16 * 16;
  for (Index panel = 0; panel < whole; panel += 64)
    for (Index p = 0; p < depth; p += together)
      for (Index j = panel; j < std::min(whole, panel + 64); ++j)
        for (Index i = p; i < p + together; ++i)
          *to++ = i < depth && j < columns ? number(i, j) : Number{0};
}

}  // namespace focus
