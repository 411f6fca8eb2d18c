#include <cmath>

#include "autograd/attention/tiled_attention.h"
#include "autograd/gemm/gemm.h"
#include "tests/support/compare.h"
#include "tests/support/composed.h"
#include "tests/support/dense_attention_case.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

using Case = DenseCase;

TEST(Attention, EqualsTheComposedForm) {
  std::vector<Case> cases;
  for (const Index seq_len : {1, 2, 63, 64, 65, 130, 200})
    for (const Index kv_heads : {4, 2, 1}) cases.push_back({1, seq_len, 4, kv_heads, 5});
  for (const Index window : {1, 3, 64, 65, 100, 500}) cases.push_back({1, 200, 2, 1, 3, 0, window});
  for (const Index head_dim : {8, 12, 48, 64, 80, 128, 256})
    cases.push_back({1, 150, 2, 1, head_dim, 0, head_dim == 48 ? 70 : 0});
  cases.push_back({2, 130, 2, 2, 7, 1.5, 0});
  // More keys than backward goes through at a time.
  for (const Index window : {0, 1050}) cases.push_back({1, 1100, 1, 1, 256, 0, window});
  // So long that the heads of keys are copied out of their rows.
  for (const Index head_dim : {64, 80}) cases.push_back({1, 1700, 2, 2, head_dim});
  // Short windows: runs of queries, of which each writes onto the keys' own rows.
  cases.push_back({2, 700, 2, 1, 16, 0, 90});
  cases.push_back({1, 1600, 2, 1, 64, 1.5, 400});
  cases.push_back({3, 450, 4, 2, 32, 0, 20, 0.3});
  cases.push_back({3, 65, 6, 2, 1, 0.7, 20});
  cases.push_back({2, 90, 1, 1, 16, 2, 64});
  cases.push_back({2, 130, 4, 2, 7, 0, 0, 0.3});
  cases.push_back({1, 200, 2, 1, 64, 0, 65, 0.5});
  cases.push_back({3, 65, 6, 2, 1, 0.7, 20, 0.1});
  cases.push_back({2, 1, 2, 2, 4, 0, 0, 0.5});
  for (const Case& c : cases) {
    SCOPED_TRACE(c.str());
    const Variables fused = leaves(inputs_of(c)), composed = leaves(inputs_of(c));
    Tensor expected_lse;
    const Variable out = attention(fused[0], fused[1], fused[2], options_of(c));
    const Tensor lse =
        tiled_attention({fused[0].value(), fused[1].value(), fused[2].value(), options_of(c)},
                        causal_plan(c.batch, c.seq_len, c.window), nullptr)
            .lse;
    const Variable expected = composed_attention(composed[0], composed[1], composed[2], {},
                                                 options_of(c), nullptr, &expected_lse);
    EXPECT_LE(relative_difference(out.value(), expected.value()), tolerance(1e-5, 1e-10));
    EXPECT_LE(relative_difference(lse, expected_lse), tolerance(1e-5, 1e-10));
    const Variable d_out(randn(out.shape(), 4));
    backward(multiply(out, d_out));
    backward(multiply(expected, d_out));
    // Beside 1: the softmax over a single key is constant, and q's and k's gradients are zero.
    for (const std::size_t i : {0, 1, 2})
      EXPECT_LE(relative_difference(fused[i].grad(), composed[i].grad(), 1), tolerance(1e-5, 1e-10))
          << "gradient of input " << i;
  }
}

TEST(Attention, Gradient) {
  for (const Case& c :
       {Case{1, 5, 2, 1, 3}, Case{2, 4, 2, 2, 2, 1.5, 2}, Case{2, 5, 2, 1, 3, 0, 0, 0.4}})
    expect_gradients([&](const Variables& v) { return attention(v[0], v[1], v[2], options_of(c)); },
                     inputs_of(c));
}

TEST(Attention, LaterTokensDoNotMatter) {
  const Case c{1, 130, 2, 2, 4};
  std::vector<Tensor> x = inputs_of(c);
  const Tensor before = attention(x[0], x[1], x[2], options_of(c)).value();
  const Index changed = 100, width = c.heads * c.head_dim;
  for (Tensor& t : x) t.data()[changed * width] += 1;
  const Tensor after = attention(x[0], x[1], x[2], options_of(c)).value();
  for (Index i = 0; i < changed * width; ++i) ASSERT_EQ(after[i], before[i]) << i;
  EXPECT_NE(after[changed * width], before[changed * width]);
}

TEST(Attention, HugeScoresStayFinite) {
  const Variables x =
      leaves({randn({1, 70, 1, 4}, 1, 1e3), randn({1, 70, 1, 4}, 2, 1e3), randn({1, 70, 1, 4}, 3)});
  const Variable out = attention(x[0], x[1], x[2], {.scale = 1});
  backward(out);
  for (const Variable& v : x)
    for (const Real g : v.grad().span()) ASSERT_TRUE(std::isfinite(g));
  for (const Real o : out.value().span()) ASSERT_TRUE(std::isfinite(o));
}

TEST(Attention, KeepsMemoryLinearInLength) {
  for (const Index seq_len : {256, 512}) {
    const Variables x = leaves(inputs_of({1, seq_len, 2, 2, 8}));
    const std::size_t before = pool_stats().live;
    const Variable out = attention(x[0], x[1], x[2], {});
    // The output and the log-sum-exps; q, k and v are the caller's own.
    EXPECT_EQ(pool_stats().live - before,
              static_cast<std::size_t>(seq_len * 2 * (8 + 1)) * sizeof(Real));
  }
}

TEST(Attention, ShortWindowsKeepOneGradientOfKeysWhateverTheTasks) {
  const Case c{1, 4096, 1, 1, 64, 0, 33};
  const Variables x = leaves(inputs_of(c));
  const Variable loss =
      multiply(attention(x[0], x[1], x[2], options_of(c)), Variable(randn(x[0].shape(), 4)));
  with_threads(1, [&] {
    const std::size_t before = pool_stats().live;
    reset_pool_peak();
    backward(loss);
    const std::size_t of_keys = static_cast<std::size_t>(c.seq_len * c.head_dim) * sizeof(Real);
    // Those of q, k and v, of the output, and a task's tiles.
    EXPECT_LE(pool_stats().peak - before, 6 * of_keys);
  });
}

TEST(Attention, FrozenInputsCostNoProducts) {
  const Case c{1, 64, 1, 1, 8};
  // Forward has two products of equal size, backward up to five.
  const auto products = [&](std::vector<bool> wanted) {
    std::vector<Tensor> values = inputs_of(c);
    Variables x(values.begin(), values.end());
    for (std::size_t i = 0; i < 3; ++i) x[i].set_requires_grad(wanted[i]);
    const std::uint64_t start = multiply_adds();
    const Variable out = attention(x[0], x[1], x[2], options_of(c));
    const std::uint64_t product = (multiply_adds() - start) / 2, before = multiply_adds();
    backward(out);
    return static_cast<double>(multiply_adds() - before) / static_cast<double>(product);
  };
  EXPECT_EQ(products({true, true, true}), 5);  // scores, dP, dQ, dK, dV
  EXPECT_EQ(products({true, false, false}), 3);
  EXPECT_EQ(products({false, false, true}), 2);  // dP is not needed for dV
}

TEST(Attention, RejectsMismatchedShapes) {
  const auto zeros = [](const Shape& shape) { return Variable(Tensor::zeros(shape)); };
  const Variable q = zeros({1, 4, 4, 3}), k = zeros({1, 4, 2, 3});
  EXPECT_NO_THROW(attention(q, k, k, {}));
  EXPECT_THROW(attention(q, k, zeros({1, 4, 4, 3}), {}), std::invalid_argument);
  for (const Shape& wrong : {Shape{1, 4, 3, 3}, Shape{1, 5, 2, 3}, Shape{2, 4, 2, 3},
                             Shape{1, 4, 2, 4}, Shape{1, 4, 0, 3}})
    EXPECT_THROW(attention(q, zeros(wrong), zeros(wrong), {}), std::invalid_argument);
}

}  // namespace
}  // namespace focus
