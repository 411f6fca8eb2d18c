// Weights rounded once to int8, a scale for each row.
#include "autograd/gemm/int8.h"

#include <cmath>
#include <limits>

#include "autograd/gemm/frozen_matrix.h"
#include "autograd/gemm/gemm.h"
#include "autograd/ops.h"
#include "autograd/simd/kernels.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/stored_matrix.h"

namespace focus {
namespace {

Tensor widened(const MatrixView& view) {
  Tensor all({view.rows, view.cols});
  read_rows(view, 0, view.rows, all.data());
  return all;
}

Tensor rounded(const Tensor& w) { return widened(rounded_to_int8(view_of(w)).view); }

Weight in_int8(const Tensor& w) { return FrozenMatrix(w, MatrixForm::int8); }

TEST(Int8, RoundsToTheNearestOfItsRowsSteps) {
  Tensor w = randn({9, 70}, 1);
  for (Index i = 0; i < 9; ++i)  // rows of very different sizes
    for (Index j = 0; j < 70; ++j)
      w.data()[i * 70 + j] *= std::pow(Real(10), static_cast<Real>(i - 4));
  const Int8Matrix m = rounded_to_int8(view_of(w));
  const auto* numbers = static_cast<const std::int8_t*>(m.view.data);
  const Tensor back = widened(m.view);
  for (Index i = 0; i < 9; ++i) {
    double largest = 0, step = static_cast<double>(m.view.scales[i]);
    int most = 0;
    for (Index j = 0; j < 70; ++j) {
      largest = std::max(largest, std::abs(static_cast<double>(w[i * 70 + j])));
      most = std::max(most, std::abs(static_cast<int>(numbers[i * m.view.pitch + j])));
      EXPECT_LE(std::abs(static_cast<double>(back[i * 70 + j] - w[i * 70 + j])),
                step * 0.5 * (1 + 1e-5));
    }
    EXPECT_EQ(most, 127);
    EXPECT_NEAR(step * 127 / largest, 1, 1e-6);
  }
}

TEST(Int8, NumbersOnTheStepsComeBackAndTiesGoToEven) {
  const Tensor w = tensor_of({2, 5}, {127, 2.5, 3.5, -2.5, -126, 254, 1, 3, -1, -254});
  EXPECT_TRUE(same_bits(rounded(w), tensor_of({2, 5}, {127, 2, 4, -2, -126, 254, 0, 4, 0, -254})));
  EXPECT_TRUE(same_bits(rounded(rounded(w)), rounded(w)));
}

TEST(Int8, RowsOfZerosAndOfExtremesStaySane) {
  constexpr Real kLargest = std::numeric_limits<Real>::max();
  constexpr Real kTiny = std::numeric_limits<Real>::denorm_min();
  Tensor w({4, 3});
  const std::vector<Real> numbers = {
      0,         Real(-0.0), 0,     kLargest,    -kLargest,    kLargest / 3,
      5 * kTiny, kTiny,      kTiny, 100 * kTiny, -200 * kTiny, 0};
  std::ranges::copy(numbers, w.data());
  const Int8Matrix m = rounded_to_int8(view_of(w));
  const Tensor back = widened(m.view);
  EXPECT_EQ(m.view.scales[0], 0);
  for (Index j = 0; j < 3; ++j) EXPECT_EQ(back[j], 0);
  for (Index i = 0; i < w.size(); ++i) EXPECT_TRUE(std::isfinite(back[i])) << i;
  EXPECT_NEAR(static_cast<double>(back[3] / kLargest), 1, 1e-6);
  EXPECT_NEAR(static_cast<double>(back[5] / kLargest), 1.0 / 3, 1.0 / 254);
  const auto* q = static_cast<const std::int8_t*>(m.view.data);
  for (Index i = 0; i < 4 * m.view.pitch; ++i) EXPECT_LE(std::abs(static_cast<int>(q[i])), 127);
}

TEST(Int8, WhatIsNoNumberIsRefused) {
  const auto refusal = [](Real number, Index row, const std::string& name) -> std::string {
    Tensor w = randn({200, 300}, 1);
    w.data()[row * 300 + 299] = number;
    w.data()[150 * 300] = number;  // a later one: the first is told
    try {
      rounded_to_int8(view_of(w), name);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing";
  };
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  const Real nan = std::numeric_limits<Real>::quiet_NaN();
  EXPECT_EQ(
      refusal(nan, 3, ""),
      "int8: row 3 of the matrix holds NaN or infinity, which no scale can represent: use float32");
  EXPECT_EQ(refusal(-nan, 77, "a.weight"),
            "int8: row 77 of the weight a.weight holds NaN or infinity, which no scale can "
            "represent: use float32");
  EXPECT_NE(refusal(-kInf, 0, ""), "nothing");
}

TEST(Int8, EveryNumberIsWidenedByEveryKernel) {
  std::vector<std::int8_t> all;
  for (int i = -128; i < 128; ++i) all.push_back(static_cast<std::int8_t>(i));
  const simd::KernelList list = simd::usable_kernels();
  for (int k = 0; k < list.count; ++k) {
    std::vector<Real> wide(all.size());
    list.items[k]->widen_int8(all.data(), static_cast<Index>(all.size()), Real(0.37), wide.data());
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(wide[i], static_cast<Real>(all[i]) * Real(0.37)) << list.items[k]->name;
  }
}

TEST(Int8, MatricesAreRoundedAsTheyLie) {
  for (const NumberFormat format : kStoredFormats)
    for (const StoredLayout& layout : kStoredLayouts)
      for (const auto& [rows, cols] : {std::pair<Index, Index>{84, 90}, {12, 5}, {4, 1}}) {
        const Stored w = stored(rows, cols, format, layout, 3);
        EXPECT_TRUE(same_bits(widened(rounded_to_int8(w.view).view), rounded(w.widened)))
            << described(format, layout);
      }
}

TEST(Int8, ProductsHaveTheBitsOfTheWidenedMatrix) {
  const std::vector<std::array<Index, 3>> shapes = {{1, 40, 24},  {2, 85, 301},   {3, 12, 5},
                                                    {7, 300, 40}, {130, 44, 530}, {5, 1, 1}};
  for (const auto& [m, rows, cols] : shapes) {
    Tensor w = randn({rows, cols}, 1);
    std::fill_n(w.data() + (rows / 2) * cols, cols, Real(0));
    const Int8Matrix q = rounded_to_int8(view_of(w));
    const Tensor wide = widened(q.view), x = randn({m, cols}, 2), dy = randn({m, rows}, 3);
    Tensor y({m, rows}), wanted({m, rows}), dx({m, cols}), wanted_dx({m, cols});
    gemm_nt(m, x.data(), cols, q.view, y.data(), rows);
    gemm_nt(m, rows, cols, x.data(), cols, wide.data(), cols, wanted.data(), rows);
    gemm(m, dy.data(), rows, q.view, dx.data(), cols);
    gemm(m, cols, rows, dy.data(), rows, wide.data(), cols, wanted_dx.data(), cols);
    const std::string what = fmt::format("{} x {} x {}", m, rows, cols);
    EXPECT_TRUE(same_bits(y, wanted)) << what;
    EXPECT_TRUE(same_bits(dx, wanted_dx)) << what;
  }
}

TEST(Int8, BitsDoNotDependOnThreads) {
  const Tensor w = randn({700, 260}, 1), x = randn({300, 260}, 2), dy = randn({300, 700}, 3);
  expect_same_bits_for_any_threads("int8", [&] {
    const Int8Matrix q = rounded_to_int8(view_of(w));
    Tensor y({300, 700}), dx({300, 260});
    gemm_nt(300, x.data(), 260, q.view, y.data(), 700);
    gemm(300, dy.data(), 700, q.view, dx.data(), 260);
    return std::vector<Tensor>{widened(q.view), y, dx};
  });
}

TEST(Int8Weight, StaysNearAndIsNotTheWeight) {
  const Tensor w = randn({90, 200}, 1), x = randn({30, 200}, 2);
  const Tensor wanted = linear(x, w, {}).value(), found = linear(x, in_int8(w), {}).value();
  // A row's step is its largest / 127, of 200 normal numbers 2.8 / 127: 0.006 of a number's size.
  EXPECT_LE(relative_difference(found, wanted), 1e-2);
  EXPECT_GE(relative_difference(found, wanted), 1e-4) << "nothing was rounded";
}

TEST(Int8Weight, GradientsAreThoseOfTheRoundedMatrix) {
  const Tensor w = randn({19, 33}, 1), x = randn({5, 33}, 2), dy = randn({5, 19}, 3);
  const auto gradient = [&](const Weight& weight) {
    const Variable input = leaf(x);
    backward(multiply(linear(input, weight, {}), Variable(dy)));
    return input.grad();
  };
  EXPECT_TRUE(same_bits(gradient(in_int8(w)), gradient(rounded(w))));
  EXPECT_FALSE(same_bits(gradient(in_int8(w)), gradient(w)));
  const Weight frozen = in_int8(w);
  expect_gradients([&](const Variables& in) { return tanh(linear(in[0], frozen, {})); }, {x});
}

TEST(Int8Weight, EmbeddingAndTiedHeadAreOneMatrix) {
  const Tensor w = randn({36, 20}, 1), wide = rounded(w);
  const Weight tied = in_int8(w);
  const auto ids = random_ids(50, 36, 1);
  EXPECT_TRUE(same_bits(embedding(tied, ids, {50}).value(), embedding(wide, ids, {50}).value()));
  const auto step = [&](const Weight& weight) {
    const Variable input = leaf(randn({50, 20}, 2));
    const Variable loss = linear_cross_entropy(input, weight, ids);
    backward(loss);
    return std::vector<Tensor>{loss.value(), input.grad()};
  };
  const auto ours = step(tied), wanted = step(wide);
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(same_bits(ours[i], wanted[i]));
}

TEST(Int8Weight, TakesAQuarterOfFloat32) {
  const std::size_t before = pool_stats().live;
  Weight w(randn({512, 256}, 1));
  w.freeze(MatrixForm::int8);
  EXPECT_EQ(w.form(), MatrixForm::int8);
  EXPECT_EQ(w.bytes(), 512u * 256 + 512 * sizeof(Real));
  EXPECT_EQ(pool_stats().live - before, w.bytes());
  w.freeze(MatrixForm::int8);  // stays as it is
  EXPECT_THROW(w.freeze(MatrixForm::bf16), std::invalid_argument);
  EXPECT_THROW(w.set_requires_grad(true), std::invalid_argument);
  EXPECT_THROW(Weight(leaf(randn({4, 4}, 1))).freeze(MatrixForm::int8), std::invalid_argument);
}

}  // namespace
}  // namespace focus
