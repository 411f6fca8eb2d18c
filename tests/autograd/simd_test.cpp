// Every kernel of every instruction set that this machine has, against plain loops in double.
#include <cmath>
#include <limits>
#include <numbers>

#include "autograd/simd/kernels.h"
#include "tests/support/compare.h"
#include "tests/support/kernels.h"

namespace focus {
namespace {

using simd::ElementwiseKernels;
using simd::Kernels;
using Numbers = std::vector<double>;

/// Around the widths of all vectors, and more than one.
const std::vector<Index> kLengths = {0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 67, 200, 1031};
constexpr Real kUntouched = 77;

template <class F>
void for_lengths(F&& f) {
  for_kernels([&](const Kernels& kernels) {
    for (const Index n : kLengths) {
      SCOPED_TRACE(n);
      f(kernels.elementwise, n);
    }
  });
}

/// n numbers, and one behind them that no kernel may write.
Tensor output(Index n) { return Tensor::full({n + 1}, kUntouched); }

/// Each of the first numbers of `actual` within a tolerance relative to its magnitude, or to
/// `floor` where that is smaller; the one behind them untouched.
void expect_numbers(const Tensor& actual, const Numbers& expected, double tolerance,
                    double floor = 1e-3) {
  ASSERT_EQ(actual.size(), static_cast<Index>(expected.size()) + 1);
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual[static_cast<Index>(i)], expected[i],
                tolerance * std::max(floor, std::abs(expected[i])))
        << "at " << i;
  EXPECT_EQ(actual[actual.size() - 1], kUntouched);
}

template <class F>
Numbers each(Index n, F&& f) {
  Numbers numbers;
  for (Index i = 0; i < n; ++i) numbers.push_back(f(i));
  return numbers;
}

double logistic_of_kernel(double x) { return 1 / (1 + std::exp(-x)); }
double cdf(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
double gelu_angle(double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }

struct FunctionCase {
  const char* name;
  ElementwiseKernels::Function ElementwiseKernels::*kernel;
  double (*value)(double);
  double (*gradient)(double);
  bool positive = false;
};
const std::vector<FunctionCase> kFunctions = {
    {"sigmoid", &ElementwiseKernels::sigmoid, logistic_of_kernel,
     [](double x) { return logistic_of_kernel(x) * logistic_of_kernel(-x); }},
    {"tanh", &ElementwiseKernels::tanh, [](double x) { return std::tanh(x); },
     [](double x) { return 1 - std::tanh(x) * std::tanh(x); }},
    {"log", &ElementwiseKernels::log, [](double x) { return std::log(x); },
     [](double x) { return 1 / x; }, true},
    {"silu", &ElementwiseKernels::silu, [](double x) { return x * logistic_of_kernel(x); },
     [](double x) { return logistic_of_kernel(x) * (1 + x * logistic_of_kernel(-x)); }},
    {"gelu", &ElementwiseKernels::gelu, [](double x) { return x * cdf(x); },
     [](double x) { return cdf(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }},
    {"gelu_tanh", &ElementwiseKernels::gelu_tanh,
     [](double x) { return x * logistic_of_kernel(2 * gelu_angle(x)); },
     [](double x) {
       const double s = logistic_of_kernel(2 * gelu_angle(x)),
                    t = logistic_of_kernel(-2 * gelu_angle(x));
       return s + 2 * x * s * t * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
     }},
};

TEST(Simd, FunctionsAndTheirGradients) {
  for_lengths([](const ElementwiseKernels& kernels, Index n) {
    for (const FunctionCase& c : kFunctions) {
      SCOPED_TRACE(c.name);
      const Tensor x = c.positive ? uniform({n + 1}, 1, 1e-4, 30) : randn({n + 1}, 1, 3);
      const Tensor dy = randn({n + 1}, 2);
      Tensor y = output(n), dx = output(n);
      (kernels.*c.kernel).value(x.data(), y.data(), n);
      (kernels.*c.kernel).gradient(x.data(), dy.data(), dx.data(), n);
      expect_numbers(y, each(n, [&](Index i) { return c.value(x[i]); }), tolerance(1e-6, 1e-14));
      expect_numbers(dx, each(n, [&](Index i) { return c.gradient(x[i]) * dy[i]; }),
                     tolerance(2e-6, 1e-13), 1);
    }
  });
}

TEST(Simd, FunctionsKeepTheirDigitsEverywhere) {
  // Steps of 1/512 over [-9, 9], each value relative to itself.
  constexpr Index kCount = 18 * 512 + 1;
  Tensor x({kCount});
  for (Index i = 0; i < kCount; ++i)
    x.data()[i] = static_cast<Real>(-9.0 + static_cast<double>(i) / 512);
  for_kernels([&](const Kernels& kernels) {
    for (const FunctionCase& c : kFunctions) {
      if (c.positive) continue;
      SCOPED_TRACE(c.name);
      // The exponent's rounding grows with its size: 40 for gelu at -9, over 60 for gelu_tanh.
      Tensor y = output(kCount);
      (kernels.elementwise.*c.kernel).value(x.data(), y.data(), kCount);
      expect_numbers(y, each(kCount, [&](Index i) { return c.value(x[i]); }),
                     tolerance(1e-5, 1e-13), 1e-30);
      expect_numbers(y, each(kCount, [&](Index i) { return c.value(x[i]); }),
                     tolerance(6e-7, 1e-14), 0.1);
    }
  });
}

TEST(Simd, FunctionsOfSpecialNumbers) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const Tensor x = tensor_of({4}, {inf, nan, 0, 1e4});
  for_kernels([&](const Kernels& kernels) {
    for (const FunctionCase& c : kFunctions) {
      SCOPED_TRACE(c.name);
      Tensor y({4}), dx({4});
      (kernels.elementwise.*c.kernel).value(x.data(), y.data(), 4);
      (kernels.elementwise.*c.kernel).gradient(x.data(), x.data(), dx.data(), 4);
      EXPECT_EQ(y[0], c.value(inf));
      EXPECT_TRUE(std::isnan(y[1])) << y[1];
      EXPECT_TRUE(std::isnan(dx[1])) << dx[1];
      EXPECT_EQ(y[2], c.value(0));
      EXPECT_NEAR(y[3], c.value(1e4), 1e-3);
    }
    const Tensor wide = tensor_of({4}, {inf, -1, 1e-40, 1e-300});
    Tensor y({4});
    kernels.elementwise.log.value(wide.data(), y.data(), 4);
    EXPECT_EQ(y[0], inf);
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_NEAR(y[2], std::log(double(wide[2])), tolerance(1e-5, 1e-13));
    EXPECT_EQ(y[3], std::log(double(wide[3])));  // in float, 1e-300 is 0
  });
}

TEST(Simd, Arithmetic) {
  for_lengths([](const ElementwiseKernels& kernels, Index n) {
    const Tensor a = randn({n + 1}, 1), b = randn({n + 1}, 2), c = randn({n + 1}, 3);
    const auto sum = [&](Index i) { return double(a[i]) + b[i]; };
    const auto expect_op = [&](auto op, const auto& wanted, double error) {
      Tensor y = output(n);
      op(a.data(), b.data(), y.data(), n);
      expect_numbers(y, each(n, wanted), error);
    };
    const double exact = tolerance(2e-7, 1e-15);
    expect_op(kernels.add, sum, exact);
    expect_op(
        kernels.multiply, [&](Index i) { return double(a[i]) * b[i]; }, exact);
    expect_op(
        kernels.swiglu, [&](Index i) { return a[i] * logistic_of_kernel(a[i]) * b[i]; },
        tolerance(1e-6, 1e-14));
    Tensor affine = output(n);
    kernels.affine(a.data(), Real(-2.5), 3, affine.data(), n);
    expect_numbers(affine, each(n, [&](Index i) { return -2.5 * a[i] + 3; }),
                   tolerance(1e-6, 1e-15), 1);

    Tensor onto = output(n);  // an output may be an input
    std::copy_n(a.data(), n, onto.data());
    kernels.add(onto.data(), b.data(), onto.data(), n);
    expect_numbers(onto, each(n, sum), exact);

    for (const int which : {1, 2, 3}) {
      Tensor dgate = output(n), dup = output(n);
      kernels.swiglu_gradient(a.data(), b.data(), c.data(), which & 1 ? dgate.data() : nullptr,
                              which & 2 ? dup.data() : nullptr, n);
      if (which & 1)
        expect_numbers(dgate,
                       each(n,
                            [&](Index i) {
                              const double s = logistic_of_kernel(a[i]);
                              return c[i] * b[i] * s * (1 + a[i] * (1 - s));
                            }),
                       tolerance(2e-6, 1e-13), 0.1);
      if (which & 2)
        expect_numbers(dup,
                       each(n, [&](Index i) { return c[i] * a[i] * logistic_of_kernel(a[i]); }),
                       tolerance(2e-6, 1e-13));
    }
  });
}

TEST(Simd, SoftmaxOfRows) {
  for_lengths([](const ElementwiseKernels& kernels, Index n) {
    if (n == 0) return;
    const Tensor x = randn({n}, 1, 4), dy = randn({n}, 2);
    const double top = *std::ranges::max_element(x.span());
    const Numbers e = each(n, [&](Index i) { return std::exp(x[i] - top); });
    double sum = 0;
    for (const double value : e) sum += value;
    Real max = 0;
    Tensor y = output(n);
    EXPECT_NEAR(kernels.exp_sum(x.data(), y.data(), n, max), sum, sum * tolerance(3e-7, 1e-14));
    EXPECT_EQ(max, top);
    expect_numbers(y, e, tolerance(2e-6, 1e-14), 1e-30);  // of x - max
    EXPECT_NEAR(kernels.exp_sum(x.data(), nullptr, n, max), sum, sum * tolerance(3e-7, 1e-14));

    Tensor shifted = output(n);
    kernels.exp_shifted(x.data(), Real(0.5), -2, shifted.data(), n);
    expect_numbers(shifted, each(n, [&](Index i) { return -2 * std::exp(x[i] - 0.5); }),
                   tolerance(2e-6, 1e-14));

    double along = 0;
    for (Index i = 0; i < n; ++i) along += double(y[i]) * dy[i];
    Tensor dx = output(n);
    kernels.softmax_gradient(y.data(), dy.data(), dx.data(), n);
    expect_numbers(dx, each(n, [&](Index i) { return y[i] * (dy[i] - along); }),
                   tolerance(1e-6, 1e-13), std::max(1.0, std::abs(along)));

    const Tensor nothing = Tensor::full({n}, -std::numeric_limits<Real>::infinity());
    EXPECT_EQ(kernels.exp_sum(nothing.data(), y.data(), n, max), 0);
    expect_numbers(y, Numbers(static_cast<std::size_t>(n)), 0);
    const Tensor wrong = Tensor::full({n}, static_cast<Real>(std::nan("")));
    Tensor one = x.clone();
    one.data()[n - 1] = wrong[0];
    EXPECT_TRUE(std::isnan(kernels.exp_sum(one.data(), nullptr, n, max)) || n == 1);
  });
}

TEST(Simd, Norms) {
  for_lengths([](const ElementwiseKernels& kernels, Index n) {
    if (n == 0) return;
    const Tensor w = randn({n}, 2), b = randn({n}, 3), dy = randn({n}, 4);
    Tensor x = randn({n}, 1);
    for (Real& value : x.span()) value += 20;  // a mean far from 0 costs no digits
    for (const bool centred : {true, false}) {
      constexpr double kNormEps = 1e-3;
      double sum = 0, squares = 0;
      for (const Real value : x.span()) sum += value;
      const double mu = centred ? sum / static_cast<double>(n) : 0;
      for (const Real value : x.span()) squares += (value - mu) * (value - mu);
      const double s = 1 / std::sqrt(squares / static_cast<double>(n) + kNormEps);
      const auto x_hat = [&](Index i) { return (x[i] - mu) * s; };

      Real mean = 0, inverse_std = 0;
      for (const Real* bias : {b.data(), static_cast<const Real*>(nullptr)}) {
        Tensor y = output(n);
        kernels.norm(x.data(), w.data(), bias, centred, Real(kNormEps), y.data(), n, mean,
                     inverse_std);
        // (x - mean) has the rounding of the mean, times 1/std.
        expect_numbers(
            y, each(n, [&](Index i) { return x_hat(i) * w[i] + (bias ? bias[i] : Real(0)); }),
            tolerance(3e-6, 1e-13) * std::max(1.0, s), 1);
      }
      EXPECT_NEAR(mean, mu, tolerance(2e-6, 1e-13));
      EXPECT_NEAR(inverse_std, s, s * tolerance(2e-7, 1e-12));

      double a = 0, h = 0;
      for (Index i = 0; i < n; ++i) {
        a += centred ? double(dy[i]) * w[i] / static_cast<double>(n) : 0;
        h += double(dy[i]) * w[i] * x_hat(i) / static_cast<double>(n);
      }
      for (const int which : {1, 2, 4, 7}) {
        Tensor dx = output(n), dw = output(n), db = output(n);
        dw.fill(1);
        db.fill(2);
        dw.data()[n] = db.data()[n] = kUntouched;
        const auto wanted = [&](int bit, Tensor& t) { return which & bit ? t.data() : nullptr; };
        kernels.norm_gradient(x.data(), w.data(), dy.data(), centred, mean, inverse_std,
                              wanted(1, dx), wanted(2, dw), wanted(4, db), n);
        const double error = tolerance(3e-6, 1e-13) * std::max(1.0, s * s);
        if (which & 1)
          expect_numbers(dx,
                         each(n, [&](Index i) { return s * (dy[i] * w[i] - a - x_hat(i) * h); }),
                         error, 1);
        if (which & 2)
          expect_numbers(dw, each(n, [&](Index i) { return 1 + dy[i] * x_hat(i); }), error, 1);
        if (which & 4) expect_numbers(db, each(n, [&](Index i) { return 2.0 + dy[i]; }), error, 1);
      }
    }
  });
}

TEST(Simd, Rope) {
  for_lengths([](const ElementwiseKernels& kernels, Index half) {
    const Index heads = 2, head_dim = 2 * half + 3, n = heads * head_dim;
    const Tensor x = randn({n}, 1), cos = uniform({half + 1}, 2, -1, 1),
                 sin = uniform({half + 1}, 3, -1, 1);
    for (const Real direction : {1, -1}) {
      Tensor y = output(n);
      kernels.rope(x.data(), cos.data(), sin.data(), direction, heads, head_dim, half, y.data());
      const auto expected = [&](Index at) {
        const Index i = at % head_dim, first = at - i;
        if (i >= 2 * half) return double(x[at]);
        const Index pair = i % half;
        const double low = x[first + pair], high = x[first + half + pair];
        return i < half ? low * cos[pair] - high * sin[pair] * direction
                        : high * cos[pair] + low * sin[pair] * direction;
      };
      expect_numbers(y, each(n, expected), tolerance(1e-6, 1e-14), 1);
    }
  });
}

TEST(Simd, Sums) {
  for_lengths([](const ElementwiseKernels& kernels, Index n) {
    const Tensor x = randn({n + 1}, 1);
    double squares = 0;
    for (Index i = 0; i < n; ++i) squares += double(x[i]) * x[i];
    EXPECT_NEAR(kernels.sum_of_squares(x.data(), n), squares, 1e-13 * squares);
    for (const Index rows : {1, 5, 32}) {
      const Tensor matrix = randn({rows, n}, 2);
      Tensor sum = output(n);
      kernels.sum_rows(matrix.data(), rows, n, sum.data());
      const auto expected = [&](Index c) {
        double total = 0;
        for (Index r = 0; r < rows; ++r) total += matrix[r * n + c];
        return total;
      };
      expect_numbers(sum, each(n, expected), tolerance(1e-6, 1e-14), 10);
    }
  });
}

TEST(Simd, ProductsOfPackedAndOfPlainRows) {
  const auto number = [](Index i) { return std::sin(static_cast<double>(i)); };
  for_kernels([&](const Kernels& kernels) {
    // More rows than one micro-kernel has, a last panel that is not full, depths of several steps.
    for (const auto& [m, first_vector] : {std::pair{1, 1}, {6, 1}, {16, 1}, {23, 1}, {29, 2}})
      for (const Index depth : {1, 5, 64, 130}) {
        SCOPED_TRACE(fmt::format("m {}, depth {}", m, depth));
        const Index skipped = 2, rows = depth + skipped;
        const Index b_columns = kernels.panel + 2 * kernels.vector;
        const Index first_column = first_vector * kernels.vector;
        const Index columns = b_columns - first_column - kernels.vector;
        const Index a_row = depth + 3, b_row = b_columns + kernels.vector, ldc = columns + 5;
        Tensor a({m * a_row}), b({rows * b_row}), packed({rows * b_columns}), factor({m});
        for (Index i = 0; i < a.size(); ++i) a.data()[i] = static_cast<Real>(number(i));
        for (Index i = 0; i < b.size(); ++i) b.data()[i] = static_cast<Real>(number(7 * i));
        for (Index i = 0; i < m; ++i) factor.data()[i] = static_cast<Real>(number(i + 2));
        kernels.pack(b.data(), b_row, rows, b_columns, 1, packed.data());
        const simd::Panels forms[] = {
            {packed.data(), rows, b_columns, first_column},
            {b.data(), rows, b_columns, first_column, b_row},
        };
        Tensor start({columns});
        for (Index j = 0; j < columns; ++j) start.data()[j] = static_cast<Real>(number(3 * j + 1));
        enum class Keep { nothing, all, scaled, row };
        for (const simd::Panels& form : forms)
          for (const Keep keep : {Keep::nothing, Keep::all, Keep::scaled, Keep::row}) {
            Tensor c = Tensor::full({m * ldc}, kUntouched);
            kernels.product(m, columns, depth, a.data(), a_row, 1, form, skipped, c.data(), ldc,
                            {.any = keep == Keep::all || keep == Keep::scaled,
                             .factor = keep == Keep::scaled ? factor.data() : nullptr,
                             .row = keep == Keep::row ? start.data() : nullptr});
            for (Index i = 0; i < m; ++i)
              for (Index j = 0; j < ldc; ++j) {
                double expected = 0;
                for (Index p = 0; p < depth; ++p)
                  expected += double{a[i * a_row + p]} *
                              double{b[(p + skipped) * b_row + first_column + j]};
                if (j >= columns) expected = 0;
                const double kept = keep == Keep::scaled ? double{factor[i]} : keep == Keep::all;
                expected += (j < columns ? kept : 1) * double{kUntouched};
                if (keep == Keep::row && j < columns) expected += double{start[j]};
                ASSERT_NEAR(c[i * ldc + j], expected, tolerance(2e-4, 1e-11)) << i << ", " << j;
              }
          }
      }
  });
}

// What is read once and fetched ahead, and what is widened on the way, has product()'s bits.
TEST(Simd, ProductsOfWhatIsReadOnce) {
  for_kernels([&](const Kernels& kernels) {
    for (const Index m : {1, 3, 4, 9, 13})
      for (const Index depth : {1, 64, 131}) {
        SCOPED_TRACE(fmt::format("m {}, depth {}", m, depth));
        const Index skipped = 2, rows = depth + skipped, columns = kernels.panel + kernels.vector;
        const Tensor a = randn({m, depth}, 1), panels = randn({rows, columns}, 2);
        std::vector<std::uint16_t> half(panels.size());
        kernels.round_f16(panels.data(), panels.size(), half.data());
        Tensor wide(panels.shape());
        kernels.widen_f16(half.data(), panels.size(), wide.data());
        for (const bool add : {false, true}) {
          const auto start = [&] { return randn({m, columns}, 3); };
          Tensor once = start(), once_f16 = start();
          kernels.product_once(m, columns, depth, a.data(), depth, 1,
                               {panels.data(), rows, columns}, skipped, once.data(), columns,
                               {.any = add});
          kernels.product_once_f16(m, columns, depth, a.data(), depth, 1,
                                   {half.data(), rows, columns}, skipped, once_f16.data(), columns,
                                   {.any = add});
          for (const auto& [b, c] : {std::pair{&panels, &once}, {&wide, &once_f16}}) {
            Tensor expected = start();
            kernels.product(m, columns, depth, a.data(), depth, 1, {b->data(), rows, columns},
                            skipped, expected.data(), columns, {.any = add});
            ASSERT_TRUE(std::ranges::equal(c->span(), expected.span()));
          }
        }
      }
  });
}

TEST(Simd, SumsOfProductsWithManyRows) {
  for_kernels([&](const Kernels& kernels) {
    for (const Index count : {0, 1, 4, 16, 37})
      for (const Index n : {1, 16, 67, 128}) {
        SCOPED_TRACE(fmt::format("{} rows of {}", count, n));
        const Index stride = n + 3;
        const Tensor a = randn({n}, 1), rows = randn({count + 1, stride}, 2);
        std::vector<std::uint16_t> half(rows.size());
        kernels.round_f16(rows.data(), rows.size(), half.data());
        Tensor wide(rows.shape());
        kernels.widen_f16(half.data(), rows.size(), wide.data());
        Tensor sums = Tensor::full({2, count + 1}, kUntouched);
        kernels.dot_rows(a.data(), count, rows.data(), stride, n, sums.data());
        kernels.dot_rows_f16(a.data(), count, half.data(), stride, n, sums.data() + count + 1);
        for (Index i = 0; i <= count; ++i) {
          const auto sum = [&](const Tensor& of) {
            return i < count ? kernels.dot_row(a.data(), of.data() + i * stride, n) : kUntouched;
          };
          ASSERT_EQ(sums[i], sum(rows));
          ASSERT_EQ(sums[count + 1 + i], sum(wide));
        }
      }
  });
}

TEST(Simd, ProductInDouble) {
  const auto numbers = [](Index n, std::uint64_t seed) {
    Rng rng(seed);
    return each(n, [&](Index) { return rng.normal(); });
  };
  for_kernels([&](const Kernels& kernels) {
    for (const Index m : {1, 4, 7})
      for (const Index n : {1, 3, 8, 16, 37})
        for (const Index k : {0, 1, 33})
          for (const bool transposed : {false, true}) {
            const Numbers a = numbers(m * k, 1), b = numbers(k * n, 2);
            Numbers c(static_cast<std::size_t>(m * n + 1), kUntouched);
            const Index a_row = transposed ? 1 : k, a_column = transposed ? m : 1;
            kernels.elementwise.product_in_double(m, n, k, a.data(), a_row, a_column, b.data(),
                                                  c.data());
            for (Index i = 0; i < m; ++i)
              for (Index j = 0; j < n; ++j) {
                double sum = 0;
                for (Index p = 0; p < k; ++p)
                  sum += a.data()[i * a_row + p * a_column] * b.data()[p * n + j];
                ASSERT_NEAR(c.data()[i * n + j], sum, 1e-13) << m << "x" << n << "x" << k;
              }
            EXPECT_EQ(c.back(), kUntouched);
          }
  });
}

TEST(Simd, AdamW) {
  const simd::AdamWFactors f{.gradient_scale = Real(0.5),
                             .beta1 = Real(0.9),
                             .one_minus_beta1 = Real(0.1),
                             .beta2 = Real(0.95),
                             .one_minus_beta2 = Real(0.05),
                             .keep = Real(0.99),
                             .step_size = Real(0.2),
                             .root_correction = Real(0.6),
                             .eps = Real(1e-6)};
  for_lengths([&](const ElementwiseKernels& kernels, Index n) {
    Tensor value = randn({n + 1}, 1), m = randn({n + 1}, 2), v = uniform({n + 1}, 3, 0, 2);
    const Tensor g = randn({n}, 4), old_value = value.clone(), old_m = m.clone(), old_v = v.clone();
    value.data()[n] = m.data()[n] = v.data()[n] = kUntouched;
    kernels.adamw(value.data(), m.data(), v.data(), g.data(), n, f);
    const auto new_m = [&](Index i) { return 0.9 * old_m[i] + 0.1 * 0.5 * g[i]; };
    const auto new_v = [&](Index i) { return 0.95 * old_v[i] + 0.05 * 0.25 * g[i] * g[i]; };
    const auto expected = [&](Index i) {
      return 0.99 * old_value[i] - 0.2 * new_m(i) / (std::sqrt(new_v(i)) / 0.6 + 1e-6);
    };
    const double error = tolerance(2e-6, 1e-7);  // the factors are Real(0.9) and so on
    expect_numbers(m, each(n, new_m), error, 1);
    expect_numbers(v, each(n, new_v), error, 1);
    expect_numbers(value, each(n, expected), error, 1);
  });
}

}  // namespace
}  // namespace focus
