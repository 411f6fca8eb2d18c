#include "autograd/machine.h"

#include <gtest/gtest.h>

#include "autograd/base/memory.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

TEST(Machine, FiguresOfThisOne) {
  EXPECT_GT(peak_resident_bytes(), 1u << 20);
  EXPECT_GT(memory_limit(), peak_resident_bytes());
  EXPECT_GT(measured_peak_gflops(), 0);
  EXPECT_GT(measured_clock_ghz(), 0.05);
  EXPECT_LT(measured_clock_ghz(), 20);
  const auto [first, second, third] = cache_bytes();
  if (second > 0) {
    EXPECT_LT(first, second);
  }
  if (third > 0) {
    EXPECT_LT(second, third);
  }
  EXPECT_EQ((Machine{.processor = "P",
                     .threads = 2,
                     .kernels = "avx2",
                     .numbers = "float32",
                     .caches = {48 << 10, 5 << 18, 0},
                     .clock_ghz = 2.5}
                 .line()),
            "P, 2 threads, avx2 kernels, float32; caches 48 KiB, 1.25 MiB; 2.50 GHz");
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  for (const simd::Kernels* kernels : simd::usable_kernels()) {
    // Each chain goes to 1, so all lanes of all chains sum to their number.
    EXPECT_NEAR(kernels->multiply_add_peak(200'000),
                static_cast<double>(simd::kPeakChains * kernels->vector), 0.1)
        << kernels->name;
  }
}

}  // namespace
}  // namespace focus
