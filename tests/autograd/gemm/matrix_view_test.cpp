#include "autograd/gemm/matrix_view.h"

#include <cmath>
#include <limits>

#include "autograd/gemm/bf16.h"
#include "autograd/gemm/frozen_matrix.h"
#include "autograd/gemm/gemm.h"
#include "autograd/ops.h"
#include "autograd/simd/kernels.h"
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
        expect_products_of_the_widened(
            w, m, fmt::format("{}: {} x {} x {}", described(format, layout), m, rows, cols));
      }
}

TEST(MatrixView, RowsAreRead) {
  for (const NumberFormat format : kStoredFormats)
    for (const StoredLayout& layout : kStoredLayouts) {
      const Stored w = stored(80, 90, format, layout, 3);
      for (const auto& [first, count] : {std::pair<Index, Index>{0, 80}, {7, 1}, {30, 41}}) {
        Tensor rows({count, 90});
        read_rows(w.view, first, count, rows.data());
        const auto wanted = w.widened.span().subspan(first * 90, count * 90);
        EXPECT_TRUE(std::ranges::equal(rows.span(), wanted)) << described(format, layout);
      }
    }
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

TEST(FrozenView, RefusesAnAddressBetweenNumbers) {
  alignas(8) const std::array<std::byte, 64> bytes{};
  const MatrixView view{
      .data = bytes.data() + 1, .format = NumberFormat::bf16, .rows = 2, .cols = 2, .pitch = 2};
  EXPECT_THROW(FrozenMatrix(view, nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace focus
