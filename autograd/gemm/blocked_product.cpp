#include "autograd/gemm/blocked_product.h"

#include "autograd/machine.h"

namespace focus {

Index block_columns(std::size_t second_level) {
  constexpr Index kUsual = 256;  // for 1 MiB
  if (second_level == 0) return kUsual;
  const Index quarters = static_cast<Index>(second_level / (std::size_t{256} << 10));
  // Whole panels of every kernel, also where blocks are halved.
  return std::clamp<Index>(quarters * (kUsual / 4) / 128 * 128, kUsual / 2, 2 * kUsual);
}

Index block_columns() {
  static const Index columns = block_columns(cache_bytes()[1]);
  return columns;
}

}  // namespace focus
