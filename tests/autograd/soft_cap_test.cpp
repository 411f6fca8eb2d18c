#include "autograd/soft_cap.h"

#include "autograd/simd/kernels.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

constexpr Real kCap = Real(1.5);

TEST(SoftCap, AllItsFormsAreOneFunction) {
  const simd::Kernels& kernels = simd::kernels();
  const Index n = 8 * kernels.vector;
  const Tensor x = randn({n}, 1, 4);
  const Tensor op = soft_cap(Variable(x), kCap).value();
  Tensor row = x.clone(), tile = x.clone(), slope({n});
  soft_cap(row.data(), n, kCap, slope.data());
  kernels.softcap_row(tile.data(), n, kCap);
  for (Index i = 0; i < n; ++i) {
    const double wanted = kCap * std::tanh(static_cast<double>(x[i]) / kCap);
    EXPECT_NEAR(soft_cap(x[i], kCap), wanted, tolerance(1e-6, 1e-14));
    EXPECT_NEAR(op[i], wanted, tolerance(1e-6, 1e-14));
    EXPECT_NEAR(row[i], wanted, tolerance(1e-6, 1e-14));
    EXPECT_NEAR(tile[i], wanted, tolerance(1e-6, 1e-14));
    EXPECT_NEAR(slope[i], 1 - wanted * wanted / (kCap * kCap), tolerance(2e-6, 1e-14));
  }
}

TEST(SoftCap, Gradient) {
  expect_gradients([](const Variables& v) { return soft_cap(v[0], kCap); }, {randn({3, 5}, 1, 2)});
}

TEST(SoftCap, NoneLeavesItAlone) {
  const Tensor x = randn({20}, 1, 4);
  Tensor row = x.clone(), slope({20});
  soft_cap(row.data(), 20, 0, slope.data());
  EXPECT_TRUE(same_bits(row, x));
  EXPECT_TRUE(same_bits(slope, Tensor::full({20}, 1)));
  EXPECT_TRUE(same_bits(soft_cap(Variable(x), 0).value(), x));
  EXPECT_EQ(soft_cap(x[0], 0), x[0]);
}

}  // namespace
}  // namespace focus
