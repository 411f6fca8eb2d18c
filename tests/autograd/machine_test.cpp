#include "autograd/machine.h"

#include <gtest/gtest.h>

#include "autograd/simd/kernels.h"

namespace focus {
namespace {

TEST(Machine, FiguresOfThisOne) {
  EXPECT_GT(peak_resident_bytes(), 1u << 20);
  EXPECT_GT(measured_peak_gflops(), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  for (int i = 0; i < simd::usable_kernels().count; ++i) {
    const simd::Kernels& kernels = *simd::usable_kernels().items[i];
    // Each chain goes to 1, so all lanes of all chains sum to their number.
    EXPECT_NEAR(kernels.multiply_add_peak(200'000),
                static_cast<double>(simd::kPeakChains * kernels.vector), 0.1)
        << kernels.name;
  }
}

}  // namespace
}  // namespace focus
