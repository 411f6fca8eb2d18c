#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "tests/support/random.h"

namespace focus {

inline constexpr bool kRealIsDouble = sizeof(Real) == 8;
/// A bound for each build: what rounding allows in float, and what only a wrong formula exceeds in
/// double.
inline constexpr double tolerance(double in_float, double in_double) {
  return kRealIsDouble ? in_double : in_float;
}

inline Tensor tensor_of(const Shape& shape, std::initializer_list<double> values) {
  return Tensor::from(shape, std::vector<Real>(values.begin(), values.end()));
}

/// A variable of its own that wants a gradient.
inline Variable leaf(const Tensor& value) {
  Variable variable(value.clone());
  variable.set_requires_grad(true);
  return variable;
}
inline Variables leaves(const std::vector<Tensor>& values) {
  Variables all;
  for (const Tensor& value : values) all.push_back(leaf(value));
  return all;
}

/// The largest difference, relative to the largest expected magnitude or to `floor` where that is
/// smaller (numbers that are zero but for rounding have no scale of their own); infinite for a NaN
/// or another size.
template <class Numbers = std::vector<double>>
double relative_error(std::span<const Real> actual, const Numbers& expected, double floor = 1e-30) {
  if (actual.size() != expected.size()) return INFINITY;
  double worst = 0, largest = floor;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto wanted = static_cast<double>(expected[i]);
    const double error = std::abs(static_cast<double>(actual[i]) - wanted);
    if (std::isnan(error)) return INFINITY;
    worst = std::max(worst, error);
    largest = std::max(largest, std::abs(wanted));
  }
  return worst / largest;
}
inline double relative_difference(const Tensor& actual, const Tensor& expected,
                                  double floor = 1e-30) {
  if (!actual.defined() || actual.shape() != expected.shape()) return INFINITY;
  return relative_error(actual.span(), expected.span(), floor);
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(Real)) == 0;
}

inline void expect_same_bits(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected,
                             const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_TRUE(same_bits(actual[i], expected[i])) << what << ", result " << i;
}

/// What op gives for leaves of these inputs, and their gradients through some projection of it.
inline std::vector<Tensor> value_and_gradients(const std::vector<Tensor>& inputs,
                                               const std::function<Variable(const Variables&)>& op,
                                               std::uint64_t seed = 9) {
  const Variables x = leaves(inputs);
  const Variable y = op(x);
  backward(multiply(y, Variable(randn(y.shape(), seed))));
  std::vector<Tensor> results{y.value()};
  for (const Variable& v : x) results.push_back(v.grad());
  return results;
}

/// Runs with so many threads and puts the number back afterwards.
template <class Action>
auto with_threads(int threads, Action&& action) {
  struct Restore {
    int before = omp_get_max_threads();
    ~Restore() { omp_set_num_threads(before); }
  } restore;
  omp_set_num_threads(threads);
  return action();
}

/// All of `action`'s tensors must have the same bits with 1, 2 and 3 threads.
inline void expect_same_bits_for_any_threads(const std::string& what,
                                             const std::function<std::vector<Tensor>()>& action) {
  const std::vector<Tensor> one = with_threads(1, action);
  for (const int threads : {2, 3})
    expect_same_bits(with_threads(threads, action), one,
                     fmt::format("{}: {} threads give other bits than one", what, threads));
}

}  // namespace focus
