#include "autograd/machine.h"

#include <gtest/gtest.h>

#include "autograd/base/memory.h"
#include "autograd/simd/bf16_kernels.h"
#include "autograd/simd/block_kernels.h"
#include "autograd/simd/kernels.h"
#include "tests/support/temp_folder.h"

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

TEST(Simd, TheEnvironmentSelects) {
  using simd::Instructions;
  const Instructions all{
      .avx2 = true, .avx512 = true, .vnni = true, .bf16 = true, .amx_bf16 = true};
  // avx2, avx512, vnni, bf16, amx_bf16, always_bf16
  const std::vector<std::pair<const char*, std::string>> cases = {
      {"", "111110"},
      {"avx512", "111110"},
      {"avx2", "100000"},
      {"baseline", "000000"},
      {"no-amx", "111100"},
      {"no-vnni", "110110"},
      {"avx512,no-bf16", "111000"},
      {"avx512,no-vnni,no-bf16", "110000"},
      {"always-bf16,avx2", "100001"}};
  for (const auto& [words, expected] : cases) {
    const Instructions some = simd::selected(all, words);
    std::string found;
    for (const bool has :
         {some.avx2, some.avx512, some.vnni, some.bf16, some.amx_bf16, some.always_bf16})
      found += has ? '1' : '0';
    EXPECT_EQ(found, expected) << words;
  }
  const auto refusal = [](const Instructions& machine, const char* words) {
    return error_of([&] { simd::selected(machine, words); });
  };
  EXPECT_EQ(refusal(all, "avx9"),
            "FOCUS_SIMD is \"avx9\": expected one of baseline, avx2, avx512, and any of no-vnni, "
            "no-bf16, no-amx, always-bf16, with commas between them");
  for (const char* words : {"avx2,", "AVX2", "amx", "no-avx2"})
    EXPECT_NE(refusal(all, words).find("expected one of"), std::string::npos) << words;
  EXPECT_EQ(refusal(all, "avx2,baseline"),
            "FOCUS_SIMD is \"avx2,baseline\": it names more than one level");
  EXPECT_EQ(refusal({.avx2 = true}, "avx512"),
            "FOCUS_SIMD is \"avx512\", but this machine can run baseline, avx2");
  EXPECT_EQ(refusal({}, "avx2"), "FOCUS_SIMD is \"avx2\", but this machine can run baseline");
}

TEST(Simd, TheBestThatMayBeUsedComesFirst) {
  const simd::Instructions& has = simd::instructions();
  EXPECT_STREQ(simd::kernels().name, has.avx512 ? "avx512" : has.avx2 ? "avx2" : "baseline");
  EXPECT_STREQ(simd::usable_kernels().back()->name, "baseline");
  EXPECT_STREQ(simd::block_kernels().name, has.vnni ? "avx512_vnni" : simd::kernels().name);
  EXPECT_EQ(simd::usable_block_kernels().size(), simd::usable_kernels().size() + has.vnni);
  if (sizeof(Real) == sizeof(float)) {
    EXPECT_EQ(simd::usable_bf16_kernels().size(), 1u + has.bf16 + has.amx_bf16);
    EXPECT_EQ(std::string_view(simd::bf16_kernels().name) == "amx_bf16", has.amx_bf16);
  }
}

}  // namespace
}  // namespace focus
