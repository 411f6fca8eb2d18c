#include "autograd/tensor.h"

#include "autograd/ops.h"
#include "tests/support/compare.h"

namespace focus {
namespace {

TEST(Shape, CountsFromBothEnds) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.size(), 24);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape.with(-2, 7), (Shape{2, 7, 4}));
  EXPECT_EQ(shape.str(), "[2, 3, 4]");
  EXPECT_EQ(Shape{}.size(), 1);
  EXPECT_NE(shape, (Shape{2, 3}));
}

TEST(Shape, RejectsNegativeAndTooManyDimensions) {
  EXPECT_THROW((Shape{2, -1}), std::invalid_argument);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1}), std::invalid_argument);
}

TEST(Tensor, CopiesShareTheirBufferAndClonesDoNot) {
  Tensor a = Tensor::full({2, 3}, 1);
  EXPECT_TRUE(a.unique());
  const Tensor shared = a, copy = a.clone(), flat = a.reshape({6});
  EXPECT_FALSE(a.unique());
  a.data()[4] = 5;
  EXPECT_EQ(shared[4], 5);
  EXPECT_EQ(flat[4], 5);
  EXPECT_EQ(copy[4], 1);
  EXPECT_EQ(a.rows(), 2);
  EXPECT_EQ(flat.rows(), 1);
}

TEST(Tensor, RejectsWrongSizes) {
  EXPECT_THROW(Tensor::full({2, 3}, 1).reshape({7}), std::invalid_argument);
  EXPECT_THROW(Tensor::from({2, 2}, std::vector<Real>{1, 2, 3}), std::invalid_argument);
}

TEST(Tensor, BuffersAreAligned) {
  for (const Index size : {1, 7, 100, 12345})
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(Tensor({size}).data()) % 64, 0u);
}

TEST(Pool, CountsWhatIsLiveAndItsPeak) {
  const PoolStats before = pool_stats();
  reset_pool_peak();
  {
    const Tensor a({1024}), b({1024});
    EXPECT_EQ(pool_stats().live - before.live, 2 * 1024 * sizeof(Real));
  }
  EXPECT_EQ(pool_stats().live, before.live);
  EXPECT_EQ(pool_stats().peak - before.live, 2 * 1024 * sizeof(Real));
  EXPECT_GE(pool_stats().reserved, pool_stats().live);
  trim_pool();
  EXPECT_EQ(pool_stats().reserved, pool_stats().live);
}

TEST(Pool, SteadyStateLoopAllocatesNothing) {
  const Variable x = leaf(randn({40, 30}, 1)), w = leaf(randn({20, 30}, 2));
  const auto pass = [&] {
    Variable y = tanh(linear(x, w, {}));
    y = softmax(add(y, scale(y, 2)));
    backward(y);
  };
  pass();
  pass();
  const std::size_t warm = pool_stats().allocations;
  for (int i = 0; i < 10; ++i) pass();
  EXPECT_EQ(pool_stats().allocations, warm);
}

TEST(Pool, ShorterLastBatchReusesBuffers) {
  { const Tensor full({1000, 8}); }
  const std::size_t before = pool_stats().allocations;
  { const Tensor shorter({990, 8}); }
  EXPECT_EQ(pool_stats().allocations, before);
}

}  // namespace
}  // namespace focus
