// Both sides of a product rounded to int8: weights once, what they multiply each time.
#include <cmath>
#include <limits>

#include "autograd/gemm/frozen_matrix.h"
#include "autograd/gemm/int8.h"
#include "autograd/ops.h"
#include "autograd/simd/bf16_kernels.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/stored_matrix.h"
#include "tests/support/tile_panels.h"

namespace focus {
namespace {

using simd::Int8Kernels;
#ifndef FOCUS_REAL_DOUBLE
using simd::Bf16Panels;
using simd::Lane32;
using simd::LanePanels;
using simd::lanes_of;
using simd::LaneStart;
#include "autograd/simd/tile_model.inc"
#include "autograd/simd/tile_product.inc"
#endif

std::vector<const Int8Kernels*> usable() {
  const simd::Int8KernelList list = simd::usable_int8_kernels();
  return {list.items, list.items + list.count};
}

/// Integers and scale of a row, by the definition.
struct Rounded {
  Rounded(const Real* row, Index n) : numbers(static_cast<std::size_t>(n)) {
    Real most = 0;
    for (Index i = 0; i < n; ++i) most = std::max(most, std::abs(row[i]));
    scale = most / 127;
    for (Index i = 0; i < n && scale > 0; ++i)
      numbers[static_cast<std::size_t>(i)] =
          static_cast<int>(std::clamp(std::nearbyint(row[i] / scale), Real(-127), Real(127)));
  }
  std::vector<int> numbers;
  Real scale;
};

/// x Wᵀ of integers, times the scales.
Tensor by_definition(const Tensor& x, const Tensor& w) {
  Tensor y({x.dim(0), w.dim(0)});
  for (Index i = 0; i < x.dim(0); ++i) {
    const Rounded a(x.data() + i * x.dim(1), x.dim(1));
    for (Index j = 0; j < w.dim(0); ++j) {
      const Rounded b(w.data() + j * w.dim(1), w.dim(1));
      std::int64_t sum = 0;
      for (std::size_t p = 0; p < a.numbers.size(); ++p) sum += a.numbers[p] * b.numbers[p];
      y.data()[i * w.dim(0) + j] = static_cast<Real>(sum) * b.scale * a.scale;
    }
  }
  return y;
}

Tensor product(const Tensor& x, const Tensor& w, const Int8Kernels& kernels, Start start = {},
               const Tensor& onto = {}) {
  const Int8Matrix q = rounded_to_int8(view_of(w));
  Tensor y = onto.rank() > 0 ? onto.clone() : Tensor({x.dim(0), w.dim(0)});
  gemm_nt_w8a8(x.dim(0), x.data(), x.dim(1), q.view, row_sums(q.view).data(), y.data(), w.dim(0),
               start, kernels);
  return y;
}

// One row, few, many; below, at and above a vector, a panel, a block of columns; depth that is no
// multiple of 4, of a tile, more than one block.
const std::vector<std::array<Index, 3>> kShapes = {
    {1, 40, 24}, {2, 85, 301}, {3, 12, 5},     {7, 300, 40},  {130, 44, 530},
    {5, 1, 1},   {33, 80, 90}, {17, 70, 2051}, {100, 65, 66}, {1, 9, 1030}};

TEST(W8A8, EveryKernelHasTheBitsOfTheDefinition) {
  for (const auto& [m, n, k] : kShapes) {
    const Tensor x = randn({m, k}, 1);
    Tensor w = randn({n, k}, 2);
    std::fill_n(w.data() + (n / 2) * k, n > 1 ? k : 0, Real(0));
    const Tensor wanted = by_definition(x, w), bias = randn({n}, 3), before = randn({m, n}, 4);
    for (const Int8Kernels* kernels : usable()) {
      const std::string what = fmt::format("{} {} x {} x {}", kernels->name, m, n, k);
      EXPECT_TRUE(same_bits(product(x, w, *kernels), wanted)) << what;
      const Tensor from = product(x, w, *kernels, Start(bias.data()));
      const Tensor onto = product(x, w, *kernels, Into::add, before);
      for (Index i = 0; i < m * n; ++i) {
        ASSERT_EQ(from[i], bias[i % n] + wanted[i]) << what;
        ASSERT_EQ(onto[i], before[i] + wanted[i]) << what;
      }
    }
  }
}

TEST(W8A8, SumsBeyondWhatAFloatHoldsAreExact) {
  // 3,000 products of 127 x 127 and one of 1 x 127: 48,387,127 is no float.
  Tensor x = Tensor({3, 3001}), w = Tensor({2, 3001});
  std::fill_n(x.data(), x.size(), Real(127));
  std::fill_n(w.data(), w.size(), Real(127));
  for (Index i = 0; i < 3; ++i) x.data()[i * 3001] = 1;
  constexpr std::int64_t kSum = 3000LL * 127 * 127 + 127;
  for (const Int8Kernels* kernels : usable())
    EXPECT_EQ(product(x, w, *kernels)[0], static_cast<Real>(kSum)) << kernels->name;
}

TEST(W8A8, EveryKernelRoundsAlike) {
  Tensor x = randn({1, 4099}, 1);
  constexpr Real kTiny = std::numeric_limits<Real>::denorm_min();
  x.data()[7] = kTiny;
  x.data()[8] = -0.0;
  x.data()[4098] = 127;
  for (Index i = 0; i < 254; ++i) x.data()[20 + i] = static_cast<Real>(i - 127) + Real(0.5);
  const auto all = usable();
  const Int8Kernels& plain = *all.back();
  for (const Real factor : {Real(1), Real(1e-30), Real(3e30), Real(0.37)}) {
    Tensor scaled = x.clone();
    for (Index i = 0; i < x.size(); ++i) scaled.data()[i] *= factor;
    const Real largest = plain.largest(scaled.data(), x.size()), scale = largest / 127;
    std::vector<std::uint8_t> wanted(4100), found(4100);
    plain.round(scaled.data(), x.size(), scale, wanted.data());
    EXPECT_EQ(wanted[4099], 128) << "what fills the row up";
    for (const Int8Kernels* kernels : all) {
      EXPECT_EQ(kernels->largest(scaled.data(), x.size()), largest) << kernels->name;
      kernels->round(scaled.data(), x.size(), scale, found.data());
      EXPECT_EQ(found, wanted) << kernels->name << " " << factor;
    }
  }
  x.data()[4097] = std::numeric_limits<Real>::quiet_NaN();
  for (const Int8Kernels* kernels : all)
    EXPECT_TRUE(std::isnan(kernels->largest(x.data(), x.size()))) << kernels->name;
}

TEST(W8A8, WhatIsNoNumberIsNoNumberInItsRowAlone) {
  const Tensor w = randn({20, 30}, 1);
  for (const Real bad :
       {std::numeric_limits<Real>::quiet_NaN(), -std::numeric_limits<Real>::infinity()})
    for (const Index m : {2, 9})
      for (const Int8Kernels* kernels : usable()) {
        Tensor x = randn({m, 30}, 2);
        const Tensor before = product(x, w, *kernels);
        x.data()[30 + 29] = bad;
        const Tensor y = product(x, w, *kernels);
        for (Index i = 0; i < m; ++i)
          for (Index j = 0; j < 20; ++j) {
            const Real found = y[i * 20 + j];
            EXPECT_TRUE(i == 1 ? std::isnan(found) : found == before[i * 20 + j])
                << kernels->name << " " << i << " " << j;
          }
      }
}

TEST(W8A8, TooManyColumnsAreRefused) {
  const MatrixView wide = {.rows = 1, .cols = kMostInt8Columns + 1};
  const Real x = 0;
  Real y = 0;
  EXPECT_THROW(gemm_nt_w8a8(1, &x, 1, wide, nullptr, &y, 1), std::invalid_argument);
}

TEST(W8A8, BitsDoNotDependOnThreads) {
  const Tensor w = randn({700, 260}, 1), x = randn({300, 260}, 2);
  expect_same_bits_for_any_threads(
      "w8a8", [&] { return std::vector<Tensor>{product(x, w, simd::int8_kernels())}; });
}

#ifndef FOCUS_REAL_DOUBLE
/// AMX's product with a model of its tiles, on the numbers that other kernels round.
TEST(W8A8, TilesHaveTheSameBits) {
  static Int8Kernels tiles;
  tiles = *usable().back();
  tiles.name = "amx model";
  tiles.vector = 16;
  tiles.pack_transposed = [](const std::int8_t* source, Index pitch, Index columns, Index depth,
                             void* packed) {
    pack_panels<std::int8_t>(4, depth, columns, packed,
                             [&](Index i, Index j) { return source[j * pitch + i]; });
  };
  tiles.product = int8_tile_product<ModelTiles<ModelInt8>>;
  for (const auto& [m, n, k] : kShapes) {
    const Tensor x = randn({m, k}, 1), w = randn({n, k}, 2);
    EXPECT_TRUE(same_bits(product(x, w, tiles), by_definition(x, w)))
        << m << " x " << n << " x " << k;
  }
}
#endif

TEST(W8A8Weight, StaysNearAndIsNeitherTheWeightNorInt8) {
  const Tensor w = randn({90, 200}, 1), x = randn({30, 200}, 2);
  const Tensor wanted = linear(x, w, {}).value();
  const Tensor int8 = linear(x, FrozenMatrix(w, MatrixForm::int8), {}).value();
  const Tensor found = linear(x, FrozenMatrix(w, MatrixForm::w8a8), {}).value();
  EXPECT_LE(relative_difference(found, wanted), 1.5e-2);
  EXPECT_GE(relative_difference(found, int8), 1e-4) << "what was multiplied was not rounded";
}

TEST(W8A8Weight, GradientsAreInt8s) {
  const Tensor w = randn({19, 33}, 1), x = randn({5, 33}, 2), dy = randn({5, 19}, 3);
  const auto gradient = [&](MatrixForm form) {
    const Variable input = leaf(x);
    backward(multiply(linear(input, FrozenMatrix(w, form), {}), Variable(dy)));
    return input.grad();
  };
  EXPECT_TRUE(same_bits(gradient(MatrixForm::w8a8), gradient(MatrixForm::int8)));
}

TEST(W8A8Weight, SaysWhatItIsAndWhatItTakes) {
  Weight w(randn({512, 254}, 1));
  w.freeze(MatrixForm::w8a8);
  EXPECT_EQ(w.form(), MatrixForm::w8a8);
  EXPECT_STREQ(name_of(MatrixForm::w8a8), "w8a8");
  EXPECT_EQ(w.bytes(), 512u * 254 + 512 * (sizeof(Real) + sizeof(std::int32_t)));
  Tensor bad = randn({3, 4}, 1);
  bad.data()[5] = std::numeric_limits<Real>::infinity();
  EXPECT_THROW(FrozenMatrix(bad, MatrixForm::w8a8), std::invalid_argument);
}

}  // namespace
}  // namespace focus
