#include <cmath>

#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

constexpr Real kEps = Real(1e-5);

/// Layer norm (centred) or RMS norm of one row, in double.
std::vector<double> reference(const Real* row, const Tensor& w, const Tensor& b, bool centred) {
  const Index n = w.size();
  double mean = 0, squares = 0;
  for (Index c = 0; c < n && centred; ++c) mean += row[c] / static_cast<double>(n);
  for (Index c = 0; c < n; ++c) squares += (row[c] - mean) * (row[c] - mean);
  std::vector<double> y;
  for (Index c = 0; c < n; ++c)
    y.push_back((row[c] - mean) / std::sqrt(squares / static_cast<double>(n) + kEps) * w[c] +
                (b.defined() ? b[c] : Real(0)));
  return y;
}

TEST(Norms, Values) {
  for (const double size : {1.0, 1e-3, 1e4})
    for (const Index cols : {1, 7, 64}) {
      const Tensor x = randn({5, cols}, 1, size), w = randn({cols}, 2), b = randn({cols}, 3);
      const Tensor centred = layer_norm(x, w, b, kEps).value(),
                   unbiased = layer_norm(x, w, {}, kEps).value(),
                   rms = rms_norm(x, w, kEps).value();
      for (Index r = 0; r < 5; ++r) {
        const Real* row = x.data() + r * cols;
        const auto full = reference(row, w, b, true), bare = reference(row, w, {}, true),
                   root = reference(row, w, {}, false);
        for (Index c = 0; c < cols; ++c) {
          const auto i = static_cast<std::size_t>(c);
          EXPECT_NEAR(centred[r * cols + c], full[i], tolerance(2e-5, 1e-12));
          EXPECT_NEAR(unbiased[r * cols + c], bare[i], tolerance(2e-5, 1e-12));
          EXPECT_NEAR(rms[r * cols + c], root[i], tolerance(2e-5, 1e-12));
        }
      }
    }
}

TEST(Norms, ConstantAndZeroRowsStayFinite) {
  const Variable x = leaf(tensor_of({2, 3}, {4, 4, 4, 0, 0, 0})), w(Tensor::full({3}, 1));
  const Variable y = add(layer_norm(x, w, {}, kEps), rms_norm(x, w, kEps));
  backward(y);
  for (Index i = 0; i < 6; ++i) EXPECT_TRUE(std::isfinite(x.grad()[i]));
  EXPECT_NEAR(y.value()[0], 1, 1e-5);  // 0 of the centred one, 1 of the other
  EXPECT_EQ(y.value()[3], 0);
}

TEST(Norms, Gradients) {
  for (const Index rows : {1, 4}) {
    const std::vector<Tensor> inputs = {randn({rows, 6}, 1), randn({6}, 2), randn({6}, 3)};
    expect_gradients([](const Variables& v) { return layer_norm(v[0], v[1], v[2], kEps); }, inputs);
    expect_gradients([](const Variables& v) { return layer_norm(v[0], v[1], {}, kEps); },
                     {inputs[0], inputs[1]});
    expect_gradients([](const Variables& v) { return rms_norm(v[0], v[1], kEps); },
                     {inputs[0], inputs[1]});
  }
}

TEST(Norms, RejectMismatchedShapes) {
  const Variable x(Tensor::zeros({2, 3})), w(Tensor::zeros({3})), wrong(Tensor::zeros({4}));
  EXPECT_THROW(layer_norm(x, wrong, {}, kEps), std::invalid_argument);
  EXPECT_THROW(layer_norm(x, w, wrong, kEps), std::invalid_argument);
  EXPECT_THROW(rms_norm(x, wrong, kEps), std::invalid_argument);
}

}  // namespace
}  // namespace focus
