// The product by AMX's tiles, with a model of the tiles in their place: on any machine. Where there
// are tiles, usable_bf16_kernels() holds them against the same model, and bf16_test.cpp has them
// too.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "autograd/gemm/bf16.h"
#include "tests/support/compare.h"
#include "tests/support/stored_blocks.h"

#ifndef FOCUS_REAL_DOUBLE
namespace focus {
namespace {

using simd::Bf16Kernels;
using simd::Bf16Panels;
using simd::Keep;
using simd::Pair;
#include "autograd/simd/tile_model.inc"
#include "autograd/simd/tile_product.inc"

/// A right-hand side packed as bf16_kernels.h says, number by number; number(depth, column).
template <class F>
void pack_panels(Index depth, Index columns, void* packed, F&& number) {
  auto* to = static_cast<Bf16*>(packed);
  const Index whole = (columns + 15) / 16 * 16;
  for (Index panel = 0; panel < whole; panel += 64)
    for (Index p = 0; p < depth; p += 2)
      for (Index j = panel; j < std::min(whole, panel + 64); ++j)
        for (Index i = p; i < p + 2; ++i) *to++ = i < depth && j < columns ? number(i, j) : Bf16{0};
}

void round_numbers(const float* source, Index n, Bf16* to) {
  for (Index i = 0; i < n; ++i) to[i] = to_bf16(source[i]);
}

const Bf16Kernels kModel = {
    .name = "amx model",
    .vector = 16,
    .is_faster = true,
    .round = round_numbers,
    .pack =
        [](const Bf16* source, Index pitch, Index depth, Index columns, void* packed) {
          pack_panels(depth, columns, packed,
                      [&](Index i, Index j) { return source[i * pitch + j]; });
        },
    .pack_transposed =
        [](const Bf16* source, Index pitch, Index columns, Index depth, void* packed) {
          pack_panels(depth, columns, packed,
                      [&](Index i, Index j) { return source[j * pitch + i]; });
        },
    .transpose =
        [](const Bf16* source, Index pitch, Index rows, Index cols, Bf16* to, Index to_pitch) {
          for (Index i = 0; i < rows; ++i)
            for (Index j = 0; j < cols; ++j) to[j * to_pitch + i] = source[i * pitch + j];
        },
    .round_transposed =
        [](const float* source, Index ld, Index rows, Index cols, Bf16* to, Index to_pitch) {
          for (Index j = 0; j < cols; ++j)
            for (Index i = 0; i < rows + rows % 2; ++i)
              to[j * to_pitch + i] = i < rows ? to_bf16(source[i * ld + j]) : Bf16{0};
        },
    .product = tile_product<ModelTiles<ModelBf16>>,
};

struct Size {
  Index m, n, k;
};
// Below, at and above a tile, two tiles, a panel; odd depth; more than one block of depth.
const std::vector<Size> kSizes = {{1, 1, 1},    {16, 16, 32},  {17, 33, 34},   {32, 64, 64},
                                  {53, 80, 90}, {15, 130, 31}, {70, 300, 131}, {33, 48, 800}};

TEST(AmxModel, ProductsAreThoseOfTheWidenedNumbers) {
  const auto& all = simd::usable_bf16_kernels();
  const auto widened = std::ranges::find_if(
      all, [](const Bf16Kernels* kernels) { return std::string_view(kernels->name) == "widened"; });
  ASSERT_NE(widened, all.end());
  for (const Size& size : kSizes) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", size.m, size.n, size.k));
    const Tensor a = randn({size.m, size.k}, 1), w = randn({size.n, size.k}, 2);
    const Tensor dy = randn({size.m, size.n}, 3);
    const Bf16Matrix matrix(size.n, size.k, w.data(), size.k);
    const auto products = [&](const Bf16Kernels& kernels) {
      Tensor forward({size.m, size.n}), back({size.m, size.k});
      gemm_nt(size.m, a.data(), size.k, matrix, forward.data(), size.n, {}, kernels);
      gemm(size.m, dy.data(), size.n, matrix, back.data(), size.k, {}, kernels);
      return std::pair(forward, back);
    };
    const auto [forward, back] = products(kModel);
    const auto [wanted, wanted_back] = products(**widened);
    EXPECT_LE(relative_difference(forward, wanted), 1e-5);
    EXPECT_LE(relative_difference(back, wanted_back), 1e-5);
  }
}

/// As a machine would whose tiles compute something else.
struct Wrong : ModelBf16 {
  static float add(float sum, const char* a, const char (*b)[64], Index column, Index lanes) {
    return ModelBf16::add(sum, a, b, column, lanes - 1);
  }
};

TEST(AmxModel, TilesAreHeldAgainstIt) {
  using Model = ModelTiles<ModelBf16>;
  EXPECT_TRUE((tiles_agree<Model, Model>()));
  EXPECT_FALSE((tiles_agree<ModelTiles<Wrong>, Model>()));
}

TEST(AmxModel, NothingBeyondTheOperandsIsRead) {
  constexpr Index kRows = 21, kDepth = 45, kColumns = 48, kPitch = 64, kLdc = 50;
  constexpr Bf16 kNan = 0x7fc0;
  std::vector<Bf16> a(kRows * kPitch, kNan);
  std::vector<std::uint32_t> packed((kDepth + 1) / 2 * kColumns + 64, 0x7fc07fc0);
  for (Index i = 0; i < kRows; ++i)
    for (Index p = 0; p < kDepth + 1; ++p) a[i * kPitch + p] = p < kDepth ? Bf16{0x3f80} : Bf16{0};
  pack_panels(kDepth, kColumns, packed.data(), [](Index, Index) { return Bf16{0x4000}; });
  const Bf16Panels panels{packed.data(), kDepth, kColumns};
  std::vector<float> c(kRows * kLdc, std::numeric_limits<float>::quiet_NaN());
  for (const bool add : {false, true})
    tile_product<ModelTiles<ModelBf16>>(kRows, kColumns, kDepth, a.data(), kPitch, panels, c.data(),
                                        kLdc, {.any = add});
  for (Index i = 0; i < kRows; ++i)
    for (Index j = 0; j < kLdc; ++j) {
      const float x = c[i * kLdc + j];
      if (j < kColumns)
        EXPECT_EQ(x, 2 * 2 * kDepth);
      else
        EXPECT_TRUE(std::isnan(x));
    }
}

}  // namespace
}  // namespace focus
#endif
