// Products of numbers that are split into two bf16: errors near float32's.
#include <cmath>
#include <limits>

#include "autograd/gemm/bf16.h"
#include "autograd/gemm/frozen_matrix.h"
#include "autograd/gemm/gemm.h"
#include "autograd/ops.h"
#include "autograd/simd/kernels.h"
#include "tests/support/bf16_products.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/stored_matrix.h"

namespace focus {
namespace {

struct Split {
  std::vector<Bf16> high, low;
};
Split split(const simd::Kernels& kernels, const std::vector<Real>& x) {
  Split parts{std::vector<Bf16>(x.size()), std::vector<Bf16>(x.size())};
  kernels.split_bf16(x.data(), static_cast<Index>(x.size()), parts.high.data(), parts.low.data());
  return parts;
}

TEST(SplitBf16, LeavesLessThanTheLastBitsOfAFloat) {
  std::vector<Real> values;
  for (const double size : {1.0, 1e-20, 1e20}) {
    const Tensor x = randn({1000}, 1, size);
    values.insert(values.end(), x.data(), x.data() + x.size());
  }
  const auto largest = static_cast<Real>(std::numeric_limits<float>::max());
  values.insert(values.end(), {0, Real(-0.0), 1, largest, -largest});
  const simd::KernelList list = simd::usable_kernels();
  for (int k = 0; k < list.count; ++k) {
    const auto [high, low] = split(*list.items[k], values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto x = static_cast<float>(values[i]);
      if (std::abs(x) < largest) {
        EXPECT_EQ(high[i], to_bf16(x)) << x;
      }
      EXPECT_TRUE(std::isfinite(from_bf16(high[i]))) << x;
      const double both = static_cast<double>(from_bf16(high[i])) + from_bf16(low[i]);
      EXPECT_LE(std::abs(both - static_cast<double>(x)), std::abs(x) * 0x1p-17) << x;
      if (from_bf16(to_bf16(x)) == x) {
        EXPECT_EQ(low[i], 0) << x;
      }
    }
  }
}

TEST(SplitBf16, WhatIsNoNumberLeavesNothing) {
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  std::vector<Real> values = {kInf, -kInf};
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xffffffffu})
    values.push_back(static_cast<Real>(std::bit_cast<float>(bits)));
  const simd::KernelList list = simd::usable_kernels();
  for (int k = 0; k < list.count; ++k) {
    const auto [high, low] = split(*list.items[k], values);
    EXPECT_EQ(high[0], 0x7f80);
    EXPECT_EQ(high[1], 0xff80);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(low[i], 0);
      EXPECT_EQ(std::isnan(from_bf16(high[i])), i >= 2);
    }
  }
}

struct Size {
  Index m, n, k;
};
// Below and above vectors, panels and blocks of depth; odd depth; one column.
const std::vector<Size> kSizes = {{3, 1, 1},       {3, 7, 11},    {13, 48, 66},
                                  {64, 16, 64},    {4, 300, 513}, {7, 65, 33},
                                  {11, 259, 1541}, {517, 257, 5}, {8, 96, 0}};

/// What is left out of a short sum: 3 2^-18 of its largest product, and more of what remains of it.
constexpr double kLeftOut = 2e-5;

/// Root of the mean square of the difference over that of what is wanted.
double rms_error(const Tensor& found, const Tensor& wanted) {
  double error = 0, size = 0;
  for (Index i = 0; i < wanted.size(); ++i) {
    const double difference = static_cast<double>(found[i]) - static_cast<double>(wanted[i]);
    error += difference * difference;
    size += static_cast<double>(wanted[i]) * static_cast<double>(wanted[i]);
  }
  return std::sqrt(error / size);
}

TEST(Bf16x3, AgreesWithTheDefinition) {
  for (const simd::Bf16Kernels* kernels : usable_kernels_of_bf16())
    for (const auto& [m, n, k] : kSizes)
      for (const bool transposed : {true, false}) {
        const Tensor a = randn({m, k}, 1), w = transposed ? randn({n, k}, 2) : randn({k, n}, 2);
        Tensor c = Tensor::full({m, n + 3}, 77);  // what lies between the rows must stay
        (transposed ? gemm_nt_bf16x3 : gemm_bf16x3)(m, a.data(), k, view_of(w), c.data(), n + 3, {},
                                                    kernels);
        Tensor dense({m, n});
        for (Index i = 0; i < m; ++i) {
          std::copy_n(c.data() + i * (n + 3), n, dense.data() + i * n);
          for (Index j = n; j < n + 3; ++j) ASSERT_EQ(c[i * (n + 3) + j], 77);
        }
        EXPECT_LE(relative_difference(dense, product_in_double(a, w, transposed)), kLeftOut)
            << kernels->name << (transposed ? " nt " : " nn ") << m << "x" << n << "x" << k;
      }
}

// The errors that amx.md's measurements promise: about 4.4e-6, where bf16 has 2.4e-3.
TEST(Bf16x3, ErrsLittleMoreThanFloat32AndFarLessThanBf16) {
  if constexpr (kRealIsDouble) GTEST_SKIP() << "float32 is what it is compared with";
  const Index m = 96, n = 128;
  for (const Index k : {768, 3072})
    for (const bool outliers : {false, true}) {
      Tensor a = randn({m, k}, 1);
      const Tensor w = randn({n, k}, 2);
      for (Index i = 0; outliers && i < m; ++i)
        for (Index p = 0; p < 4; ++p) a.data()[i * k + 100 * p] *= 50;
      const Tensor wanted = product_in_double(a, w, true);
      Tensor c({m, n});
      gemm_nt(m, n, k, a.data(), k, w.data(), k, c.data(), n);
      const double in_float = rms_error(c, wanted);
      for (const simd::Bf16Kernels* kernels : usable_kernels_of_bf16()) {
        gemm_nt_bf16x3(m, a.data(), k, view_of(w), c.data(), n, {}, kernels);
        const double split = rms_error(c, wanted);
        gemm_nt(m, a.data(), k, Bf16Matrix(n, k, w.data(), k), c.data(), n, {}, *kernels);
        const double rounded = rms_error(c, wanted);
        const std::string what = fmt::format("{} k={}: float32 {:.2g}, bf16x3 {:.2g}, bf16 {:.2g}",
                                             kernels->name, k, in_float, split, rounded);
        EXPECT_LE(split, 6e-6) << what;
        EXPECT_LE(split, 20 * in_float) << what;
        EXPECT_LE(300 * split, rounded) << what;
        RecordProperty(fmt::format("{}_{}_{}", kernels->name, k, outliers), what);
      }
    }
}

TEST(Bf16x3, ReadsMatricesAsTheyLie) {
  const std::vector<Size> sizes = {{5, 84, 300}, {7, 12, 5}, {40, 44, 530}};
  for (const simd::Bf16Kernels* kernels : usable_kernels_of_bf16())
    for (const NumberFormat format : kStoredFormats)
      for (const StoredLayout& layout : kStoredLayouts)
        for (const auto& [m, rows, cols] : sizes) {
          const Stored w = stored(rows, cols, format, layout, static_cast<std::uint64_t>(rows));
          const std::string what = fmt::format("{} {}: {} x {} x {}", kernels->name,
                                               described(format, layout), m, rows, cols);
          const Tensor x = randn({m, cols}, 1), dy = randn({m, rows}, 2);
          Tensor y({m, rows}), wanted({m, rows}), dx({m, cols}), wanted_dx({m, cols});
          gemm_nt_bf16x3(m, x.data(), cols, w.view, y.data(), rows, {}, kernels);
          gemm_bf16x3(m, dy.data(), rows, w.view, dx.data(), cols, {}, kernels);
          EXPECT_LE(relative_difference(y, product_in_double(x, w.widened, true)), kLeftOut)
              << what;
          EXPECT_LE(relative_difference(dx, product_in_double(dy, w.widened, false)), kLeftOut)
              << what;
          if (format == NumberFormat::bf16) continue;  // two products there: other sums
          gemm_nt_bf16x3(m, x.data(), cols, view_of(w.widened), wanted.data(), rows, {}, kernels);
          gemm_bf16x3(m, dy.data(), rows, view_of(w.widened), wanted_dx.data(), cols, {}, kernels);
          EXPECT_TRUE(same_bits(y, wanted)) << what;
          EXPECT_TRUE(same_bits(dx, wanted_dx)) << what;
        }
}

TEST(Bf16x3, BitsDoNotDependOnThreads) {
  for (const simd::Bf16Kernels* kernels : usable_kernels_of_bf16())
    for (const auto& [m, n, k] :
         std::vector<Size>{{300, 700, 260}, {2048, 9, 64}, {64, 1030, 530}}) {
      const Tensor a = randn({m, k}, 1), rows = randn({n, k}, 2), columns = randn({k, n}, 3);
      expect_same_bits_for_any_threads(
          fmt::format("{} {}x{}x{}", kernels->name, m, n, k), [&, m = m, n = n, k = k] {
            Tensor x({m, n}), y({m, n});
            gemm_nt_bf16x3(m, a.data(), k, view_of(rows), x.data(), n, {}, kernels);
            gemm_bf16x3(m, a.data(), k, view_of(columns), y.data(), n, {}, kernels);
            return std::vector<Tensor>{x, y};
          });
    }
}

TEST(Bf16x3, RowsDoNotDependOnTheirNeighbours) {
  const Index n = 70, k = 130;
  const Tensor a = randn({40, k}, 1), w = randn({n, k}, 2);
  for (const simd::Bf16Kernels* kernels : usable_kernels_of_bf16()) {
    Tensor all({40, n}), some({17, n});
    gemm_nt_bf16x3(40, a.data(), k, view_of(w), all.data(), n, {}, kernels);
    gemm_nt_bf16x3(17, a.data(), k, view_of(w), some.data(), n, {}, kernels);
    EXPECT_TRUE(std::equal(some.data(), some.data() + some.size(), all.data())) << kernels->name;
  }
}

TEST(Bf16x3, FewRowsAndNoKernelsHaveTheBitsOfReal) {
  const Tensor w = randn({90, 70}, 1);
  for (const Index m : {1, 2, 20}) {
    const Tensor x = randn({m, 70}, 2);
    Tensor y({m, 90}), wanted({m, 90});
    gemm_nt(m, x.data(), 70, view_of(w), wanted.data(), 90);
    gemm_nt_bf16x3(m, x.data(), 70, view_of(w), y.data(), 90, {},
                   m > 2 ? nullptr : usable_kernels_of_bf16()[0]);
    EXPECT_TRUE(same_bits(y, wanted)) << m;
  }
}

TEST(Bf16x3, HugeNumbersStayAndWhatIsNoNumberShows) {
  const float largest = std::numeric_limits<float>::max();
  Tensor a = randn({4, 40}, 1), w = randn({5, 40}, 2);
  std::fill_n(w.data(), 40, Real(0));
  w.data()[3] = static_cast<Real>(largest);  // would be infinity in bf16
  w.data()[2 * 40 + 7] = std::numeric_limits<Real>::infinity();
  w.data()[3 * 40 + 7] = std::numeric_limits<Real>::quiet_NaN();
  for (Index i = 0; i < 4; ++i) a.data()[i * 40 + 3] = Real(0.75);
  for (const simd::Bf16Kernels* kernels : usable_kernels_of_bf16()) {
    Tensor c({4, 5});
    gemm_nt_bf16x3(4, a.data(), 40, view_of(w), c.data(), 5, {}, kernels);
    for (Index i = 0; i < 4; ++i) {
      EXPECT_NEAR(static_cast<double>(c[i * 5]) / (0.75 * static_cast<double>(largest)), 1, 1e-4);
      EXPECT_FALSE(std::isfinite(c[i * 5 + 2]));
      EXPECT_TRUE(std::isnan(c[i * 5 + 3]));
      for (const Index j : {1, 4}) EXPECT_TRUE(std::isfinite(c[i * 5 + j]));
    }
  }
}

TEST(Bf16x3, CountsAProductOnce) {
  const Tensor a = randn({300, 20}, 1), w = randn({30, 20}, 2);
  Tensor c({300, 30});
  const std::uint64_t before = multiply_adds();
  gemm_nt_bf16x3(300, a.data(), 20, view_of(w), c.data(), 30, {}, usable_kernels_of_bf16()[0]);
  EXPECT_EQ(multiply_adds() - before, 300u * 30 * 20);
}

TEST(Bf16x3Weight, LinearEmbeddingAndLossAnswerAsTheWeightDoes) {
  const Stored w = stored(36, 20, NumberFormat::bf16, {.transposed = true, .run = 4, .runs = 3}, 5);
  const Weight frozen = FrozenMatrix(w.view, nullptr, MatrixForm::bf16x3), dense = w.widened;
  EXPECT_EQ(frozen.form(), MatrixForm::bf16x3);
  EXPECT_EQ(frozen.bytes(), 36u * 20 * 2) << "nothing was copied";
  const auto ids = random_ids(50, 36, 1);
  EXPECT_TRUE(same_bits(embedding(frozen, ids, {50}).value(), embedding(dense, ids, {50}).value()));
  const Tensor x = randn({50, 20}, 2);
  const auto step = [&](const Weight& weight) {
    const Variable input = leaf(x);
    const Variable own = linear_cross_entropy(input, weight, ids);
    backward(own);
    return std::vector<Tensor>{own.value(), input.grad(), linear(x, weight, {}).value()};
  };
  const auto ours = step(frozen), wanted = step(dense);
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_LE(relative_difference(ours[i], wanted[i]), kLeftOut) << i;
}

TEST(Bf16x3Weight, GradientsAreThoseOfTheFunction) {
  const Weight w = FrozenMatrix(randn({7, 9}, 1), MatrixForm::bf16x3);
  expect_gradients([&](const Variables& x) { return linear(x[0], w, {}); }, {randn({5, 9}, 2)});
}

}  // namespace
}  // namespace focus
