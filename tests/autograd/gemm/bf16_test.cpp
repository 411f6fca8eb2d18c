#include "autograd/gemm/bf16.h"

#include <limits>

#include "autograd/gemm/gemm.h"
#include "autograd/gemm/q8.h"
#include "autograd/ops.h"
#include "tests/support/gradcheck.h"
#include "tests/support/kernels.h"
#include "tests/support/stored_blocks.h"

namespace focus {
namespace {

float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

Bf16Matrix matrix_of(const Tensor& x) { return {x.dim(0), x.dim(1), x.data(), x.dim(1)}; }

/// Every number rounded to bf16.
Tensor rounded(const Tensor& x) {
  Tensor y(x.shape());
  for (Index i = 0; i < x.size(); ++i) y.data()[i] = from_bf16(to_bf16(static_cast<float>(x[i])));
  return y;
}

Weight in_bf16(const Tensor& matrix) { return FrozenMatrix(matrix, Precision::bf16); }

struct Rounding {
  std::uint32_t from;
  Bf16 to;
};
const std::vector<Rounding> kRoundings = {
    {0x00000000, 0x0000},                        // 0
    {0x80000000, 0x8000},                        // -0
    {0x3f800000, 0x3f80},                        // 1
    {0x3f807fff, 0x3f80},                        // just below half a step: down
    {0x3f808000, 0x3f80},                        // a tie: to the even one below
    {0x3f808001, 0x3f81},                        // just above half a step: up
    {0x3f818000, 0x3f82},                        // a tie: to the even one above
    {0x3f817fff, 0x3f81}, {0xbf808000, 0xbf80},  // the same with a sign
    {0xbf818000, 0xbf82}, {0x3fffffff, 0x4000},  // carries into the exponent
    {0x7f7f7fff, 0x7f7f},                        // the largest that stays finite
    {0x7f7fffff, 0x7f80},                        // the largest float rounds to infinity
    {0xff7fffff, 0xff80}, {0x7f800000, 0x7f80},  // infinities
    {0xff800000, 0xff80}, {0x00000001, 0x0000},  // subnormal
    {0x00008000, 0x0000}, {0x00008001, 0x0001}, {0x00018000, 0x0002},
    {0x807fffff, 0x8080},  // the largest subnormal rounds to the smallest normal number
};

TEST(Bf16, RoundsToNearestEven) {
  for (const auto& [from, to] : kRoundings)
    EXPECT_EQ(to_bf16(float_of(from)), to) << fmt::format("{:08x}", from);
}

TEST(Bf16, NanStaysNan) {
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu})
    EXPECT_TRUE(std::isnan(from_bf16(to_bf16(float_of(bits))))) << fmt::format("{:08x}", bits);
}

TEST(Bf16, EveryBf16ComesBack) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float x = from_bf16(static_cast<Bf16>(bits));
    if (std::isnan(x))
      EXPECT_TRUE(std::isnan(from_bf16(to_bf16(x))));
    else
      EXPECT_EQ(to_bf16(x), bits);
  }
}

TEST(Bf16, EveryKernelRoundsAlike) {
  std::vector<Real> values;
  for (const auto& [from, to] : kRoundings) values.push_back(static_cast<Real>(float_of(from)));
  values.push_back(std::numeric_limits<Real>::quiet_NaN());
  for (const simd::Bf16Kernels* kernels : simd::usable_bf16_kernels()) {
    const auto n = static_cast<Index>(values.size());
    const Bf16Matrix m(1, n, values.data(), n, *kernels);
    for (Index i = 0; i < n; ++i)
      EXPECT_EQ(m.row(0)[i], to_bf16(static_cast<float>(values[i])))
          << kernels->name << ", number " << i;
  }
}

TEST(Bf16Matrix, RowsOfOddLengthEndInZero) {
  const Tensor x = randn({3, 7}, 1);
  const Bf16Matrix m(3, 5, x.data(), 7);  // with a gap between the rows of x
  EXPECT_EQ(m.shape(), (Shape{3, 5}));
  ASSERT_EQ(m.pitch(), 6);
  for (Index i = 0; i < 3; ++i) {
    for (Index j = 0; j < 5; ++j) EXPECT_EQ(m.row(i)[j], to_bf16(static_cast<float>(x[i * 7 + j])));
    EXPECT_EQ(m.row(i)[5], 0);
  }
}

struct Size {
  Index m, n, k;
};
const std::vector<Size> kSizes = {{2048, 9, 64},   {1, 1, 1},    {1, 5, 3},     {5, 1, 2},
                                  {3, 7, 11},      {6, 64, 32},  {7, 65, 33},   {13, 48, 66},
                                  {64, 16, 64},    {2, 300, 70}, {513, 31, 8},  {9, 17, 769},
                                  {11, 259, 1541}, {4, 80, 191}, {517, 257, 5}, {8, 96, 0}};

using Product = void (*)(Index, const Real*, Index, const Bf16Matrix&, Real*, Index, Start,
                         const simd::Bf16Kernels&);

/// Sums in double of the products of rounded numbers: A Bᵀ where `transposed`, or A B.
Tensor reference(const Tensor& a, const Tensor& b, bool transposed) {
  return product_in_double(rounded(a), rounded(b), transposed);
}

TEST(Bf16Product, AgreesWithTheDefinition) {
  for (const simd::Bf16Kernels* kernels : simd::usable_bf16_kernels())
    for (const auto& [m, n, k] : kSizes)
      for (const bool transposed : {true, false}) {
        const Tensor a = randn({m, k}, 1), b = transposed ? randn({n, k}, 2) : randn({k, n}, 2);
        const Tensor bias = randn({n}, 3), products = reference(a, b, transposed);
        const Product product = transposed ? Product{gemm_nt} : Product{gemm};
        for (const Start& start : {Start(), Start(Into::add), Start(bias.data())}) {
          Tensor c = Tensor::full({m, n + 3}, 77);  // what lies between the rows must stay
          product(m, a.data(), k, matrix_of(b), c.data(), n + 3, start, *kernels);
          Tensor dense({m, n}), wanted({m, n});
          for (Index i = 0; i < m; ++i) {
            std::copy_n(c.data() + i * (n + 3), n, dense.data() + i * n);
            for (Index j = n; j < n + 3; ++j) ASSERT_EQ(c[i * (n + 3) + j], 77);
            for (Index j = 0; j < n; ++j)
              wanted.data()[i * n + j] =
                  products[i * n + j] + (start.add ? Real(77) : start.in_column(j));
          }
          EXPECT_LE(relative_difference(dense, wanted), tolerance(3e-6, 1e-14))
              << kernels->name << (transposed ? " nt " : " nn ") << m << "x" << n << "x" << k
              << (start.add              ? " onto C"
                  : start.row != nullptr ? " onto a row"
                                         : "");
        }
      }
}

TEST(Bf16Product, RoundsBlocksOnTheirWay) {
  for (const NumberFormat format : kBlockFormats)
    for (const simd::Bf16Kernels* kernels : simd::usable_bf16_kernels()) {
      const Stored w = stored_blocks(37, 1024, format, {}, 5);
      const Bf16Matrix x(40, 1024, randn({40, 1024}, 1).data(), 1024);
      const auto product = [&](const auto& matrix) {
        Tensor y({40, 37});
        gemm_nt(x, matrix, y.data(), 37, {}, *kernels);
        return y;
      };
      EXPECT_TRUE(same_bits(product(w.view), product(matrix_of(w.widened))))
          << name_of(format) << " " << kernels->name;
    }
}

TEST(Bf16Product, TilesTakeManyRowsInQ8) {
  const Stored stored = stored_blocks(40, 256, NumberFormat::q4_1, {.rotary_pairs = 4}, 5);
  const FrozenMatrix q8(stored.view, nullptr, Precision::q8);
  for (const Index m : {31, 32}) {
    const Tensor x = randn({m, 256}, 1);
    Tensor y({m, 40}), expected({m, 40}), together({m, 40});
    q8->gemm_nt(m, x.data(), y.data(), {});
    const FrozenProduct product{q8.operator->(), together.data(), {}};
    gemm_nt_together(m, x.data(), {&product, 1});
    if (m == 32 && simd::bf16_kernels().by_tiles)
      gemm_nt(matrix_of(x), stored.view, expected.data(), 40);
    else
      gemm_nt_q8(m, x.data(), 256, stored.view, expected.data(), 40);
    EXPECT_TRUE(same_bits(y, expected));
    EXPECT_TRUE(same_bits(together, expected));
  }
}

/// With a frozen weight: what it multiplies is rounded only where products are faster by that.
Tensor of_frozen(const Tensor& a, const Tensor& w, bool transposed) {
  return product_in_double(simd::fast_bf16_kernels() != nullptr ? rounded(a) : a, rounded(w),
                           transposed);
}

TEST(Bf16Weight, LinearAndItsGradient) {
  const Tensor x = randn({2, 5, 33}, 1), w = randn({19, 33}, 2), b = randn({19}, 3);
  const Variable input = leaf(x), bias = leaf(b);
  const Weight weight = in_bf16(w);
  const Variable y = linear(input, weight, bias);
  ASSERT_EQ(y.shape(), (Shape{2, 5, 19}));
  Tensor expected = of_frozen(x.reshape({10, 33}), w, true);
  for (Index i = 0; i < expected.size(); ++i) expected.data()[i] += b[i % 19];
  EXPECT_LE(relative_difference(y.value().reshape({10, 19}), expected), tolerance(1e-6, 1e-14));
  const Tensor dy = randn({2, 5, 19}, 4);
  backward(multiply(y, Variable(dy)));
  EXPECT_LE(relative_difference(input.grad().reshape({10, 33}),
                                of_frozen(dy.reshape({10, 19}), w, false)),
            tolerance(1e-6, 1e-14));
  EXPECT_TRUE(
      same_bits(linear(input, weight, {}).value(), linear(input, in_bf16(rounded(w)), {}).value()));
  ASSERT_TRUE(bias.grad().defined());
}

TEST(Bf16Matrix, TransposesAndRounds) {
  for (const auto& [rows, cols] : std::vector<std::pair<Index, Index>>{
           {1, 1}, {3, 5}, {17, 64}, {33, 65}, {5, 256}, {48, 1024}, {100, 97}, {31, 126}}) {
    const Tensor x = randn({cols, rows}, 1);
    for (const simd::Bf16Kernels* kernels : simd::usable_bf16_kernels()) {
      const Bf16Matrix m = Bf16Matrix(cols, rows, x.data(), rows, *kernels).transposed(*kernels);
      ASSERT_EQ(m.shape(), (Shape{rows, cols}));
      ASSERT_EQ(m.pitch() % 2, 0);
      for (Index i = 0; i < rows; ++i)
        for (Index p = 0; p < m.cols() + m.cols() % 2; ++p)
          ASSERT_EQ(m.row(i)[p], p < cols ? to_bf16(static_cast<float>(x[p * rows + i])) : Bf16{0})
              << kernels->name << ", " << rows << " x " << cols << " at " << i << ", " << p;
    }
  }
}

Tensor turned(const Tensor& x) { return transpose(Variable(x), 0, 1).value(); }

TEST(Bf16Product, OfATransposeAgreesWithTheDefinition) {
  for (const simd::Bf16Kernels* kernels : simd::usable_bf16_kernels())
    for (const auto& [m, n, k] : kSizes) {
      const Tensor a = randn({k, m}, 1), b = randn({k, n}, 2), before = randn({m, n}, 3);
      const Tensor wanted = reference(turned(a), b, false);
      const std::string what = fmt::format("{} {}x{}x{}", kernels->name, m, n, k);
      expect_same_bits_for_any_threads(what, [&, m = m, n = n, k = k] {
        Tensor c({m, n}), onto = before.clone();
        const Bf16Matrix left(k, m, a.data(), m, *kernels), right(k, n, b.data(), n, *kernels);
        gemm_tn(left, right, c.data(), n, Into::assign, *kernels);
        gemm_tn(left, right, onto.data(), n, Into::add, *kernels);
        EXPECT_LE(relative_difference(c, wanted), tolerance(3e-6, 1e-14)) << what;
        EXPECT_LE(relative_difference(onto, add(before, wanted).value()), tolerance(3e-6, 1e-14))
            << what;
        return std::vector<Tensor>{c, onto};
      });
    }
}

// A weight that is trained: as a float32 one whose products get rounded operands.
TEST(Bf16Weight, TrainedOneMultipliesRoundedNumbers) {
  const Tensor x = randn({10, 33}, 1), w = randn({19, 33}, 2), dy = randn({10, 19}, 3);
  Weight trained{leaf(w)};
  EXPECT_EQ(trained.precision(), Precision::float32);
  trained.multiply_in_bf16();
  EXPECT_EQ(trained.precision(), Precision::bf16);
  const Variable input = leaf(x);
  const Variable y = linear(input, trained, {});
  backward(multiply(y, Variable(dy)));
  const double close = tolerance(1e-6, 1e-14);
  EXPECT_LE(relative_difference(y.value(), reference(x, w, true)), close);
  EXPECT_LE(relative_difference(input.grad(), reference(dy, w, false)), close);
  EXPECT_LE(relative_difference(trained.grad(), reference(turned(dy), x, false)), close);
  EXPECT_TRUE(same_bits(trained.value(), w));  // its own numbers stay as they are
}

TEST(Bf16Weight, TrainedHeadTakesTheGradientOfItsLoss) {
  // More rows than are scored at a time, so that gradients of chunks are added up.
  const Index rows = 700, hidden = 16, vocab = 40;
  const Tensor x = randn({rows, hidden}, 1), w = randn({vocab, hidden}, 2);
  const std::vector<std::int32_t> targets = random_ids(rows, vocab, 3);
  Weight trained{leaf(w)}, plain{leaf(rounded(w))};
  trained.multiply_in_bf16();
  const Variable input = leaf(x), again = leaf(rounded(x));
  const Variable loss = linear_cross_entropy(input, trained, targets);
  const Variable wanted = linear_cross_entropy(again, plain, targets);
  backward(loss);
  backward(wanted);
  EXPECT_NEAR(loss.value()[0], wanted.value()[0], tolerance(1e-5, 1e-12));
  // Gradients of logits are rounded once more: 2^-9 of each.
  EXPECT_LE(relative_difference(trained.grad(), plain.grad()), 4e-3);
  EXPECT_LE(relative_difference(input.grad(), again.grad()), 4e-3);
}

}  // namespace
}  // namespace focus
