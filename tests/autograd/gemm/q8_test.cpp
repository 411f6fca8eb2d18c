// Products with a matrix in blocks, in integers: what it multiplies is rounded to int8.
#include "autograd/gemm/q8.h"

#include <cmath>
#include <limits>

#include "autograd/gemm/block_formats.h"
#include "autograd/gemm/frozen_matrix.h"
#include "autograd/ops.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/stored_blocks.h"

namespace focus {
namespace {

/// Rounded to int8, 32 numbers with a scale, by the definition.
Tensor rounded(const Tensor& x) {
  Tensor y(x.shape());
  for (Index b = 0; b < x.size(); b += 32) {
    Real most = 0;
    for (Index i = b; i < b + 32; ++i) most = std::max(most, std::abs(x[i]));
    const Real scale = most / 127;
    for (Index i = b; i < b + 32; ++i)
      y.data()[i] = scale > 0 ? std::nearbyint(x[i] / scale) * scale : 0;
  }
  return y;
}

Tensor product(const Tensor& x, const MatrixView& w, const simd::Q8Kernels& kernels,
               Start start = {}, const Tensor& onto = {}) {
  Tensor y = onto.rank() > 0 ? onto.clone() : Tensor({x.dim(0), w.rows});
  gemm_nt_q8(x.dim(0), x.data(), x.dim(1), w, y.data(), w.rows, start, kernels);
  return y;
}

std::vector<const simd::Q8Kernels*> usable() {
  const simd::Q8KernelList list = simd::usable_q8_kernels();
  return {list.items, list.items + list.count};
}

TEST(SplitBlocks, IntegersScalesAndOffsetsAreTheNumbers) {
  const simd::BlockKernelList list = simd::usable_block_kernels();
  for (const NumberFormat format : kBlockFormats) {
    constexpr std::size_t kNumbers = 16 * 256;
    const auto bytes = random_blocks(format, kNumbers, 7);
    const auto wanted = block_numbers_of(format, bytes.data(), kNumbers);
    for (int k = 0; k < list.count; ++k) {
      std::vector<std::int8_t> q(kNumbers);
      std::vector<float> scales(kNumbers / 16), offsets(kNumbers / 16);
      split_blocks(format, bytes.data(), kNumbers, {q.data(), scales.data(), offsets.data()},
                   *list.items[k]);
      for (std::size_t i = 0; i < kNumbers; ++i)
        ASSERT_EQ(static_cast<Real>(block_value(scales[i / 16], q[i], offsets[i / 16], 1)),
                  wanted[i])
            << name_of(format) << " " << list.items[k]->name << " " << i;
      const bool zeros = std::ranges::all_of(offsets, [](float m) { return m == 0; });
      EXPECT_EQ(zeros, !has_offsets(format)) << name_of(format);
    }
  }
  EXPECT_THROW(split_blocks(NumberFormat::q8_0, nullptr, 16, {}), std::invalid_argument);
}

TEST(Q8, IsTheProductWithRoundedRows) {
  for (const NumberFormat format : kBlockFormats)
    for (const auto& [m, n, k] :
         std::vector<std::array<Index, 3>>{{1, 40, 256}, {2, 7, 512}, {5, 33, 768}}) {
      const Stored w = stored_blocks(n, k, format, {.rotary_pairs = n % 4 == 0 ? 4 : 0}, 5);
      const Tensor x = randn({m, k}, 1), y = product(x, w.view, *usable()[0]), r = rounded(x);
      for (Index i = 0; i < m; ++i)
        for (Index j = 0; j < n; ++j) {
          double sum = 0, size = 0;
          for (Index p = 0; p < k; ++p) {
            const double term = static_cast<double>(r[i * k + p]) * w.widened[j * k + p];
            sum += term;
            size += std::abs(term);
          }
          ASSERT_NEAR(y[i * n + j], sum, 1e-5 * size) << name_of(format) << " " << i << " " << j;
        }
    }
}

/// Rows [first, first + count) of x.
Tensor rows_of(const Tensor& x, Index first, Index count) {
  Tensor rows({count, x.dim(1)});
  std::copy_n(x.data() + first * x.dim(1), rows.size(), rows.data());
  return rows;
}

TEST(Q8, BitsDependNeitherOnKernelsNorOnHowManyRowsThereAre) {
  for (const NumberFormat format : kBlockFormats)
    for (const Index k : {256, 768}) {
      const Stored w = stored_blocks(37, k, format, {}, 5);
      const Tensor x = randn({21, k}, 1), many = product(x, w.view, *usable()[0]);
      const Tensor few = product(rows_of(x, 5, 1), w.view, *usable()[0]);
      for (const simd::Q8Kernels* kernels : usable()) {
        EXPECT_TRUE(same_bits(product(x, w.view, *kernels), many))
            << name_of(format) << " " << kernels->name;
        for (const Index rows : {1, 2, 3, 10}) {
          const Tensor y = product(rows_of(x, 5, rows), w.view, *kernels);
          // One or two rows are summed in another order.
          for (Index i = 0; i < (rows < 3 ? 1 : rows) * 37; ++i)
            ASSERT_EQ(y[i], rows < 3 ? few[i] : many[5 * 37 + i]) << rows << " " << i;
        }
      }
    }
  // A row that ends within a step of the kernels.
  const Stored w = stored_blocks(9, 96, NumberFormat::q5_1, {}, 5);
  for (const Index rows : {1, 4}) {
    const Tensor x = randn({rows, 96}, 1), wanted = product(x, w.view, *usable()[0]);
    for (const simd::Q8Kernels* kernels : usable())
      EXPECT_TRUE(same_bits(product(x, w.view, *kernels), wanted)) << kernels->name;
  }
}

TEST(Q8, GroupsOfManyRowsAreSummedAsIntegers) {
  // By the definition, in its order: what no rounding of a sum of four could give.
  for (const NumberFormat format : {NumberFormat::q8_0, NumberFormat::q4_1, NumberFormat::q6_k}) {
    constexpr Index kCols = 512, kRows = 3;
    const Stored w = stored_blocks(5, kCols, format, {}, 3);
    const Tensor x = randn({kRows, kCols}, 1), y = product(x, w.view, simd::q8_kernels());
    const Index group = format == NumberFormat::q6_k ? 16 : 32;
    std::vector<std::int8_t> q(kCols);
    std::vector<float> scales(kCols / 16), offsets(kCols / 16);
    for (Index j = 0; j < 5; ++j) {
      const auto row_bytes = static_cast<std::ptrdiff_t>(bytes_of(format, kCols));
      split_blocks(format, w.bytes.data() + j * row_bytes, kCols,
                   {q.data(), scales.data(), offsets.data()});
      for (Index i = 0; i < kRows; ++i) {
        float sum = 0;
        for (Index g = 0; g < kCols; g += group) {
          Real most = 0;
          for (Index p = g / 32 * 32; p < g / 32 * 32 + 32; ++p)
            most = std::max(most, std::abs(x[i * kCols + p]));
          const Real step = most / 127;
          int products = 0, integers = 0;
          for (Index p = g; p < g + group; ++p) {
            const int rounded = static_cast<int>(std::nearbyint(x[i * kCols + p] / step));
            products += rounded * q[static_cast<std::size_t>(p)];
            integers += rounded;
          }
          const auto scale = static_cast<float>(step);
          const auto at = static_cast<std::size_t>(g / 16);
          const volatile float term = static_cast<float>(products) * (scales[at] * scale);
          sum += term;
          const volatile float offset = offsets[at] * (scale * static_cast<float>(integers));
          if (has_offsets(format)) sum += offset;
        }
        ASSERT_EQ(y[i * 5 + j], static_cast<Real>(sum)) << name_of(format) << " " << i << " " << j;
      }
    }
  }
}

TEST(Q8, BitsDoNotDependOnThreads) {
  const Stored w = stored_blocks(700, 512, NumberFormat::q4_k, {}, 1);
  const Tensor x = randn({90, 512}, 1), row = randn({1, 512}, 2);
  expect_same_bits_for_any_threads("q8", [&] {
    return std::vector<Tensor>{product(x, w.view, simd::q8_kernels()),
                               product(row, w.view, simd::q8_kernels())};
  });
}

TEST(Q8, BeginsWithABiasOrWhatIsThere) {
  const Stored w = stored_blocks(40, 256, NumberFormat::q4_1, {}, 1);
  for (const Index m : {1, 6}) {
    const Tensor x = randn({m, 256}, 1), bias = randn({40}, 3), before = randn({m, 40}, 4);
    const simd::Q8Kernels& kernels = simd::q8_kernels();
    const Tensor y = product(x, w.view, kernels);
    const Tensor from = product(x, w.view, kernels, Start(bias.data()));
    const Tensor onto = product(x, w.view, kernels, Into::add, before);
    for (Index i = 0; i < m * 40; ++i) {
      ASSERT_EQ(from[i], bias[i % 40] + y[i]);
      ASSERT_EQ(onto[i], before[i] + y[i]);
    }
  }
}

TEST(Q8, ProductsThatShareTheirRowsHaveTheSameBits) {
  const Stored w[] = {stored_blocks(40, 512, NumberFormat::q4_1, {.rotary_pairs = 4}, 1),
                      stored_blocks(9, 512, NumberFormat::q6_k, {}, 2),
                      stored_blocks(70, 512, NumberFormat::q8_0, {}, 3)};
  for (const Index m : {1, 2, 7}) {
    const Tensor x = randn({m, 512}, 1), bias = randn({9}, 3);
    expect_same_bits_for_any_threads("shared", [&] {
      std::vector<Tensor> all;
      std::vector<SharedProduct> products;
      for (const Stored& matrix : w) all.emplace_back(Shape{m, matrix.view.rows});
      for (std::size_t i = 0; i < all.size(); ++i)
        products.push_back(
            {w[i].view, all[i].data(), w[i].view.rows, i == 1 ? Start(bias.data()) : Start()});
      gemm_nt_q8(m, x.data(), 512, products);
      for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_TRUE(same_bits(all[i], product(x, w[i].view, simd::q8_kernels(), products[i].start)))
            << m << " " << i;
      return all;
    });
  }
}

TEST(Q8, TheFarthestIntegersDoNotOverflow) {
  constexpr Index kCols = 256;
  for (const NumberFormat format : kBlockFormats)
    for (const int byte : {0x00, 0x7f, 0x80, 0xff}) {
      Stored w = stored_blocks(2, kCols, format, {}, 1);
      const auto size = static_cast<std::size_t>(bytes_of(format, block_numbers(format)));
      const std::vector<std::size_t> halves = half_places(format);
      for (std::size_t at = 0; at < w.bytes.size(); ++at)
        if (std::ranges::none_of(halves,
                                 [&](std::size_t half) { return at % size / 2 == half / 2; }))
          w.bytes[at] = std::byte(byte);
      const std::vector<Real> numbers = block_numbers_of(format, w.bytes.data(), 2 * kCols);
      for (const Real x : {127, -127})
        for (const simd::Q8Kernels* kernels : usable())
          for (const Index rows : {1, 7}) {
            const Tensor y = product(Tensor::full({rows, kCols}, x), w.view, *kernels);
            for (Index i = 0; i < y.size(); ++i) {
              double sum = 0, most = 0;
              for (Index p = 0; p < kCols; ++p) {
                const double term =
                    double{x} * numbers[static_cast<std::size_t>(i % 2 * kCols + p)];
                sum += term;
                most += std::abs(term);
              }
              ASSERT_NEAR(y[i], sum, 2e-6 * most)
                  << kernels->name << " " << name_of(format) << " " << byte << " " << x;
            }
          }
    }
}

TEST(Q8, WhatIsNoNumberMakesItsRowNaN) {
  const Stored w = stored_blocks(5, 256, NumberFormat::q4_k, {}, 1);
  for (const Real bad :
       {std::numeric_limits<Real>::quiet_NaN(), std::numeric_limits<Real>::infinity()}) {
    Tensor x = randn({3, 256}, 1);
    x.data()[256 + 77] = bad;
    const Tensor y = product(x, w.view, simd::q8_kernels());
    for (Index i = 0; i < 15; ++i) EXPECT_EQ(std::isnan(y[i]), i / 5 == 1) << i;
  }
}

TEST(Q8, ALinearGoesBackAsIfNothingWereRounded) {
  const Stored w = stored_blocks(40, 256, NumberFormat::q4_0, {}, 9);
  const Tensor x = randn({6, 256}, 4), dy = randn({6, 40}, 5);
  const auto gradient = [&](const Weight& weight) {
    const Variable input = leaf(x);
    backward(multiply(linear(input, weight, {}), Variable(dy)));
    return input.grad();
  };
  EXPECT_TRUE(same_bits(gradient(FrozenMatrix(w.view, nullptr, MatrixForm::q8)),
                        gradient(FrozenMatrix(w.view, nullptr, MatrixForm::real))));
}

TEST(LinearInput, ProductsThatAreMadeTogetherAreThoseOfEach) {
  using Part = LinearInput::Part;
  for (const MatrixForm form : {MatrixForm::real, MatrixForm::q8})
    for (const Index m : {1, 2, 5}) {
      const Stored stored[] = {stored_blocks(40, 256, NumberFormat::q4_0, {}, 9),
                               stored_blocks(8, 256, NumberFormat::q5_k, {}, 8)};
      const Weight first(FrozenMatrix(stored[0].view, nullptr, form)),
          second(FrozenMatrix(stored[1].view, nullptr, form));
      const Variable none, bias(randn({8}, 2)), x(randn({1, m, 256}, 4));
      const LinearInput input(x, std::array{Part{first, none}, Part{second, bias}});
      for (int time = 0; time < 2; ++time) {  // the second is computed anew
        EXPECT_TRUE(same_bits(linear(input, first, none).value(), linear(x, first, none).value()));
        EXPECT_TRUE(
            same_bits(linear(input, second, bias).value(), linear(x, second, bias).value()));
      }
      // Backward as ever.
      const auto gradient = [&](bool together) {
        const Variable h = leaf(x.value());
        const LinearInput of =
            together ? LinearInput(h, std::array{Part{first, none}, Part{second, bias}})
                     : LinearInput(h);
        const Tensor dy = randn({1, m, 8}, 5);
        backward(multiply(linear(of, second, bias), Variable(dy)));
        return h.grad();
      };
      EXPECT_TRUE(same_bits(gradient(true), gradient(false)));
      // What does not fit is refused as ever.
      const Variable wrong(randn({7}, 2));
      const LinearInput bad(x, std::array{Part{first, none}, Part{second, wrong}});
      EXPECT_THROW(linear(bad, second, wrong), std::invalid_argument);
    }
}

TEST(Q8, OtherMatricesAreMultipliedAsTheyAre) {
  const Tensor w = randn({40, 64}, 9), x = randn({6, 64}, 4);
  const FrozenMatrix q8(w, MatrixForm::q8);
  EXPECT_EQ(q8->form(), MatrixForm::q8);
  EXPECT_TRUE(same_bits(linear(Variable(x), q8, {}).value(),
                        linear(Variable(x), FrozenMatrix(w, MatrixForm::real), {}).value()));
  const MatrixView view{.data = w.data(), .rows = 40, .cols = 64, .pitch = 64};
  Tensor y({6, 40});
  EXPECT_THROW(gemm_nt_q8(6, x.data(), 64, view, y.data(), 40), std::invalid_argument);
}

}  // namespace
}  // namespace focus
