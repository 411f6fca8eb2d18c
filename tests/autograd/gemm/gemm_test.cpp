#include "autograd/gemm/gemm.h"

#include "autograd/gemm/packed_product.h"
#include "tests/support/compare.h"

namespace focus {
namespace {

using Product = void (*)(Index, Index, Index, const Real*, Index, const Real*, Index, Real*, Index,
                         Start);

struct Kind {
  const char* name;
  Product parallel, serial;
  bool a_transposed, b_transposed;
};
const std::vector<Kind> kKinds = {
    {"nn", gemm, serial::gemm, false, false},
    {"nt", gemm_nt, serial::gemm_nt, false, true},
    {"tn", gemm_tn, serial::gemm_tn, true, false},
};

struct Size {
  Index m, n, k;
};
const std::vector<Size> kSizes = {{1, 1, 1},     {1, 5, 3},    {5, 1, 3},    {4, 4, 1},
                                  {3, 7, 11},    {63, 65, 33}, {64, 16, 64}, {65, 64, 63},
                                  {130, 2, 9},   {2, 130, 70}, {257, 31, 8}, {300, 40, 50},
                                  {1030, 17, 13}};
constexpr Index kGap = 3;  // of a leading dimension beyond the columns

Tensor matrix(Index rows, Index cols, std::uint64_t seed) {
  return randn({rows, cols + kGap}, seed);
}

TEST(Gemm, AgreesWithTheDefinition) {
  for (const Kind& kind : kKinds)
    for (const auto& [m, n, k] : kSizes) {
      const Tensor a = kind.a_transposed ? matrix(k, m, 1) : matrix(m, k, 1);
      const Tensor b = kind.b_transposed ? matrix(n, k, 2) : matrix(k, n, 2);
      const Tensor before = matrix(m, n, 3), bias = randn({n}, 4);
      Tensor sums({m, n});
      for (Index i = 0; i < m; ++i)
        for (Index j = 0; j < n; ++j) {
          double sum = 0;
          for (Index p = 0; p < k; ++p)
            sum +=
                static_cast<double>(kind.a_transposed ? a[p * a.cols() + i] : a[i * a.cols() + p]) *
                (kind.b_transposed ? b[j * b.cols() + p] : b[p * b.cols() + j]);
          sums.data()[i * n + j] = static_cast<Real>(sum);
        }
      for (const Start& start : {Start(), Start(Into::add), Start(bias.data())}) {
        Tensor expected = before.clone();
        for (Index i = 0; i < m; ++i)
          for (Index j = 0; j < n; ++j) {
            Real& c = expected.data()[i * expected.cols() + j];
            c = sums[i * n + j] + (start.add ? c : start.in_column(j));
          }
        for (const Product product : {kind.parallel, kind.serial}) {
          Tensor c = before.clone();
          product(m, n, k, a.data(), a.cols(), b.data(), b.cols(), c.data(), c.cols(), start);
          // The whole buffer is compared: what lies between the rows must be untouched.
          EXPECT_LE(relative_difference(c, expected), tolerance(3e-6, 1e-14))
              << kind.name << " " << m << "x" << n << "x" << k;
          for (Index i = 0; i < m; ++i)
            for (Index j = n; j < c.cols(); ++j)
              ASSERT_EQ(c[i * c.cols() + j], before[i * c.cols() + j]) << kind.name;
        }
      }
    }
}

TEST(Gemm, BlocksAreAsWideAsTheCacheIsLarge) {
  const auto columns = [](double mebibytes) {
    return block_columns(static_cast<std::size_t>(mebibytes * (1 << 20)));
  };
  EXPECT_EQ(columns(0), 256);  // where the system does not say
  EXPECT_EQ(columns(0.25), 128);
  EXPECT_EQ(columns(0.5), 128);
  EXPECT_EQ(columns(1), 256);
  EXPECT_EQ(columns(1.25), 256);
  EXPECT_EQ(columns(2), 512);
  EXPECT_EQ(columns(16), 512);
}

TEST(Gemm, BitsDoNotDependOnTheBlocksWidth) {
  constexpr Index m = 13, n = 707, k = 600;
  const Tensor a = randn({m, k}, 1), b = randn({k, n}, 2);
  const simd::Kernels& kernels = simd::kernels();
  const auto product = [&](Index widest) {
    Tensor c({m, n});
    std::vector<Real> panels(packed::kBlockDepth * widest);
    std::vector<Real> tail(m * kernels.vector);
    blocked_product(
        m, k, packed::kBlockDepth, 0, n, widest, kernels.vector, c.data(), n, {}, tail.data(),
        [&](Index p, Index depth, Index j, Index columns, Real* to, Index ld, Start start) {
          kernels.pack(b.data() + p * n + j, n, depth, columns, 1, panels.data());
          const simd::Panels packed{panels.data(), depth, simd::padded(kernels, columns)};
          kernels.product(m, packed.columns, depth, a.data() + p, k, 1, packed, 0, to, ld,
                          start.keep());
        });
    return c;
  };
  const Tensor expected = product(256);
  Tensor whole({m, n});
  gemm(m, n, k, a.data(), k, b.data(), n, whole.data(), n);
  EXPECT_TRUE(same_bits(expected, whole));
  for (const Index widest : {64, 128, 384, 512})
    EXPECT_TRUE(same_bits(expected, product(widest))) << widest << " columns";
}

}  // namespace
}  // namespace focus
