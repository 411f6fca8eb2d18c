#include "autograd/gemm/matrix_view.h"

#include <bit>
#include <cmath>
#include <limits>

#include "autograd/gemm/bf16.h"
#include "autograd/gemm/frozen_matrix.h"
#include "autograd/gemm/gemm.h"
#include "autograd/ops.h"
#include "autograd/simd/kernels.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/stored_matrix.h"

// Products with a matrix as it lies in a file have the bits of the widened matrix.
namespace focus {
namespace {

TEST(MatrixView, ProductsHaveTheBitsOfTheWidenedMatrix) {
  // One and two rows: a token that is generated. 300 and more: several blocks of depth.
  const std::vector<std::array<Index, 3>> shapes = {{1, 40, 24},  {2, 84, 300},   {3, 12, 5},
                                                    {7, 300, 40}, {130, 44, 530}, {200, 300, 100}};
  for (const NumberFormat format : kStoredFormats)
    for (const StoredLayout& layout : kStoredLayouts)
      for (const auto& [m, rows, cols] : shapes) {
        const Stored w = stored(rows, cols, format, layout, static_cast<std::uint64_t>(rows));
        const std::string what =
            fmt::format("{}: {} x {} x {}", described(format, layout), m, rows, cols);
        const Tensor x = randn({m, cols}, 1), dy = randn({m, rows}, 2);
        Tensor y({m, rows}), wanted({m, rows}), dx({m, cols}), wanted_dx({m, cols});
        gemm_nt(m, x.data(), cols, w.view, y.data(), rows);
        gemm_nt(m, rows, cols, x.data(), cols, w.widened.data(), cols, wanted.data(), rows);
        EXPECT_TRUE(same_bits(y, wanted)) << what;
        gemm(m, dy.data(), rows, w.view, dx.data(), cols);
        gemm(m, cols, rows, dy.data(), rows, w.widened.data(), cols, wanted_dx.data(), cols);
        EXPECT_TRUE(same_bits(dx, wanted_dx)) << what;
      }
}

TEST(MatrixView, RowsAreRead) {
  for (const NumberFormat format : kStoredFormats)
    for (const StoredLayout& layout : kStoredLayouts) {
      const Stored w = stored(80, 90, format, layout, 3);
      for (const auto& [first, count] : {std::pair<Index, Index>{0, 80}, {7, 1}, {30, 41}}) {
        Tensor rows({count, 90});
        read_rows(w.view, first, count, rows.data());
        const auto wanted = w.widened.span().subspan(static_cast<std::size_t>(first * 90),
                                                     static_cast<std::size_t>(count * 90));
        EXPECT_TRUE(std::ranges::equal(rows.span(), wanted)) << described(format, layout);
      }
    }
}

TEST(MatrixView, CountsItsWork) {
  const Stored w = stored(40, 30, NumberFormat::bf16, {}, 1);
  const Tensor x = randn({50, 30}, 1);
  Tensor y({50, 40});
  const std::uint64_t before = multiply_adds();
  gemm_nt(50, x.data(), 30, w.view, y.data(), 40);
  EXPECT_EQ(multiply_adds() - before, 50u * 30 * 40);
}

TEST(MatrixView, BitsDoNotDependOnThreads) {
  const Stored w = stored(700, 260, NumberFormat::bf16, {.transposed = true}, 1);
  const Tensor x = randn({300, 260}, 1), one = randn({1, 260}, 2);
  expect_same_bits_for_any_threads("view", [&] {
    Tensor y({300, 700}), row({1, 700});
    gemm_nt(300, x.data(), 260, w.view, y.data(), 700);
    gemm_nt(1, one.data(), 260, w.view, row.data(), 700);
    return std::vector<Tensor>{y, row};
  });
}

TEST(MatrixView, EverySixteenBitNumberIsWidened) {
  for (const NumberFormat format : {NumberFormat::bf16, NumberFormat::f16}) {
    std::vector<std::uint16_t> all(1 << 16);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    const MatrixView view{.data = all.data(), .format = format, .rows = 1, .cols = 1 << 16};
    for (const simd::Kernels* kernels : simd::usable_kernels()) {
      std::vector<Real> wide(all.size());
      (format == NumberFormat::bf16 ? kernels->widen_bf16 : kernels->widen_f16)(all.data(), 1 << 16,
                                                                                wide.data());
      for (std::size_t i = 0; i < all.size(); ++i) {
        const bool f16 = format == NumberFormat::f16;
        const std::uint16_t top = f16 ? 0x7c00 : 0x7f80;
        const auto bits = static_cast<std::uint16_t>(i);
        if ((bits & top) != top)
          ASSERT_EQ(wide[i], number_at(view, static_cast<Index>(i))) << name_of(format) << " " << i;
        else if ((bits & 0x7fff) == top)
          ASSERT_EQ(wide[i], (bits >> 15 ? -1 : 1) * std::numeric_limits<Real>::infinity());
        else
          ASSERT_TRUE(std::isnan(wide[i])) << name_of(format) << " " << i;
      }
      EXPECT_TRUE(std::signbit(wide[0x8000]));
    }
  }
}

TEST(MatrixView, NumbersAreRoundedToTheNearestOfSixteenBits) {
  for (const simd::Kernels* each : simd::usable_kernels()) {
    const simd::Kernels& kernels = *each;
    const auto rounded = [&](const std::vector<Real>& x) {
      std::vector<std::uint16_t> to(x.size());
      kernels.round_f16(x.data(), std::ssize(x), to.data());
      return to;
    };
    // Every number of 16 bits stays; what lies in the middle of two goes to the even one, what lies
    // beside it to the nearer.
    constexpr std::uint16_t kInfinity = 0x7c00;
    std::vector<std::uint16_t> all;
    for (std::uint16_t i = 0; i < kInfinity; ++i)
      all.insert(all.end(), {i, static_cast<std::uint16_t>(i | 0x8000)});
    std::vector<Real> wide(all.size()), middle, below, above;
    kernels.widen_f16(all.data(), std::ssize(all), wide.data());
    EXPECT_EQ(rounded(wide), all) << kernels.name;
    std::vector<std::uint16_t> even, lower, upper;
    for (std::size_t i = 0; i + 2 < all.size(); i += 2) {
      lower.push_back(all[i]);
      upper.push_back(all[i + 2]);
      even.push_back(all[i] % 2 == 0 ? all[i] : all[i + 2]);
      middle.push_back((wide[i] + wide[i + 2]) / 2);
      below.push_back(std::nextafter(static_cast<float>(middle.back()), 0.0f));
      above.push_back(std::nextafter(static_cast<float>(middle.back()), 1e9f));
    }
    EXPECT_EQ(rounded(middle), even) << kernels.name;
    EXPECT_EQ(rounded(below), lower) << kernels.name;
    EXPECT_EQ(rounded(above), upper) << kernels.name;
    constexpr Real kInf = std::numeric_limits<Real>::infinity();
    EXPECT_EQ(rounded({65504, 65519, 65520, -1e6, 3e38f, kInf, -kInf}),
              (std::vector<std::uint16_t>{0x7bff, 0x7bff, 0x7bff, 0xfbff, 0x7bff, 0x7c00, 0xfc00}))
        << kernels.name;
    EXPECT_EQ(rounded({std::numeric_limits<Real>::quiet_NaN()})[0] & 0x7fff, 0x7e00);
  }
}

TEST(FrozenView, AnswersAsTheWeightItViews) {
  const Stored w = stored(36, 20, NumberFormat::bf16, {.transposed = true, .run = 4, .runs = 3}, 5);
  const Weight frozen = FrozenMatrix(w.view, nullptr), dense = w.widened;
  EXPECT_EQ(frozen.precision(), Precision::float32);
  EXPECT_EQ(frozen.bytes(), 36u * 20 * 2);
  const auto ids = random_ids(50, 36, 1);
  EXPECT_TRUE(same_bits(embedding(frozen, ids, {50}).value(), embedding(dense, ids, {50}).value()));
  const Tensor x = randn({50, 20}, 2);
  const auto step = [&](const Weight& weight) {
    const Variable input = leaf(x);
    const Variable loss = linear_cross_entropy(input, weight, ids);
    backward(loss);
    return std::vector<Tensor>{loss.value(), input.grad()};
  };
  const auto ours = step(frozen), wanted = step(dense);
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(same_bits(ours[i], wanted[i]));
}

TEST(FrozenView, RefusesAnAddressBetweenNumbers) {
  alignas(8) const std::array<std::byte, 64> bytes{};
  const MatrixView view{
      .data = bytes.data() + 1, .format = NumberFormat::bf16, .rows = 2, .cols = 2, .pitch = 2};
  EXPECT_THROW(FrozenMatrix(view, nullptr), std::invalid_argument);
}

TEST(FrozenView, RealTensorIsSharedNotCopied) {
  const std::size_t before = pool_stats().live;
  Weight w(randn({256, 256}, 1));
  const std::size_t there = pool_stats().live - before;
  w.freeze(Precision::float32);
  EXPECT_EQ(pool_stats().live - before, there);
  EXPECT_EQ(w.precision(), Precision::float32);
}

}  // namespace
}  // namespace focus
