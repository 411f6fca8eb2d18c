// Products with a matrix in blocks, in integers: what it multiplies is rounded to int8.
#include "autograd/gemm/q8.h"

#include <cmath>
#include <limits>

#include "autograd/gemm/block_formats.h"
#include "autograd/gemm/frozen_matrix.h"
#include "autograd/gemm/packed_product.h"
#include "autograd/ops.h"
#include "tests/support/gradcheck.h"
#include "tests/support/stored_blocks.h"
#include "tests/support/stored_matrix.h"
#include "tests/support/temp_folder.h"

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

Tensor product(const Tensor& x, const MatrixView& w, const simd::BlockKernels& kernels,
               Start start = {}, const Tensor& onto = {}) {
  Tensor y = onto.rank() > 0 ? onto.clone() : Tensor({x.dim(0), w.rows});
  gemm_nt_q8(x.dim(0), x.data(), x.dim(1), w, y.data(), w.rows, start, kernels);
  return y;
}

const std::vector<const simd::BlockKernels*>& usable() { return simd::usable_block_kernels(); }

TEST(SplitBlocks, IntegersScalesAndOffsetsAreTheNumbers) {
  for (const NumberFormat format : kBlockFormats) {
    constexpr std::size_t kNumbers = 16 * 256;
    const auto bytes = random_blocks(format, kNumbers, 7);
    const auto wanted = block_numbers_of(format, bytes.data(), kNumbers);
    for (const simd::BlockKernels* kernels : usable()) {
      std::vector<std::int8_t> q(kNumbers);
      std::vector<float> scales(kNumbers / 16), offsets(kNumbers / 16);
      split_blocks(format, bytes.data(), kNumbers, {q.data(), scales.data(), offsets.data()},
                   *kernels);
      for (std::size_t i = 0; i < kNumbers; ++i)
        ASSERT_EQ(static_cast<Real>(block_value(scales[i / 16], q[i], offsets[i / 16], 1)),
                  wanted[i])
            << name_of(format) << " " << kernels->name << " " << i;
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

/// Whether sums round a product and its sum once.
bool fuses(const simd::BlockKernels& kernels) {
  return std::string_view(kernels.name) != "baseline";
}

TEST(Q8, BitsDependNeitherOnKernelsNorOnHowManyRowsThereAre) {
  for (const NumberFormat format : kBlockFormats)
    for (const Index k : {256, 768}) {
      const Stored w = stored_blocks(37, k, format, {}, 5);
      const Tensor x = randn({21, k}, 1);
      const simd::BlockKernels& best = *usable()[0];
      for (const simd::BlockKernels* kernels : usable()) {
        const Tensor many = product(x, w.view, *kernels);
        bool same = same_bits(many, product(x, w.view, best));
        std::vector<Tensor> few;
        for (Index i = 0; i < packed::kFewRows; ++i) {
          few.push_back(product(rows_of(x, 5 + i, 1), w.view, *kernels));
          same &= same_bits(few[i], product(rows_of(x, 5 + i, 1), w.view, best));
        }
        EXPECT_TRUE(same || fuses(*kernels) != fuses(best))
            << name_of(format) << " " << kernels->name;
        for (const Index rows : {1, 2, 3, 4, 5, 8, 9, 10}) {
          const Tensor y = product(rows_of(x, 5, rows), w.view, *kernels);
          // Few rows are summed in another order.
          for (Index i = 0; i < rows * 37; ++i)
            ASSERT_EQ(y[i], rows <= packed::kFewRows ? few[i / 37][i % 37] : many[5 * 37 + i])
                << rows << " " << i;
        }
      }
    }
  // A row that ends within a step of the kernels.
  const Stored w = stored_blocks(9, 96, NumberFormat::q5_1, {}, 5);
  for (const Index rows : {1, 4, 10}) {
    const Tensor x = randn({rows, 96}, 1), wanted = product(x, w.view, *usable()[0]);
    for (const simd::BlockKernels* kernels : usable())
      EXPECT_TRUE(fuses(*kernels) != fuses(*usable()[0]) ||
                  same_bits(product(x, w.view, *kernels), wanted))
          << kernels->name;
  }
}

TEST(Q8, GroupsOfManyRowsAreSummedAsIntegers) {
  // By the definition, in its order: what no rounding of a sum of four could give.
  for (const NumberFormat format : {NumberFormat::q8_0, NumberFormat::q4_1, NumberFormat::q6_k}) {
    // More than the kernels take at a time.
    constexpr Index kCols = 1536, kRows = packed::kFewRows + 1;
    const Stored w = stored_blocks(5, kCols, format, {}, 3);
    const Tensor x = randn({kRows, kCols}, 1), y = product(x, w.view, simd::block_kernels());
    const Index group = format == NumberFormat::q6_k ? 16 : 32;
    std::vector<std::int8_t> q(kCols);
    std::vector<float> scales(kCols / 16), offsets(kCols / 16);
    for (Index j = 0; j < 5; ++j) {
      const auto row_bytes = static_cast<std::ptrdiff_t>(bytes_of(format, kCols));
      split_blocks(format, w.bytes.data() + j * row_bytes, kCols,
                   {q.data(), scales.data(), offsets.data()});
      for (Index i = 0; i < kRows; ++i) {
        float sum = 0;
        const auto add_product = [&](float a, float b) {
          const volatile float apart = a * b;
          sum = fuses(simd::block_kernels()) ? std::fma(a, b, sum) : sum + apart;
        };
        for (Index g = 0; g < kCols; g += group) {
          Real most = 0;
          for (Index p = g / 32 * 32; p < g / 32 * 32 + 32; ++p)
            most = std::max(most, std::abs(x[i * kCols + p]));
          const Real step = most / 127;
          int products = 0, integers = 0;
          for (Index p = g; p < g + group; ++p) {
            const int rounded = static_cast<int>(std::nearbyint(x[i * kCols + p] / step));
            products += rounded * q[p];
            integers += rounded;
          }
          const auto scale = static_cast<float>(step);
          const auto at = static_cast<std::size_t>(g / 16);
          add_product(static_cast<float>(products), scales[at] * scale);
          if (has_offsets(format)) add_product(offsets[at], scale * static_cast<float>(integers));
        }
        ASSERT_EQ(y[i * 5 + j], static_cast<Real>(sum)) << name_of(format) << " " << i << " " << j;
      }
    }
  }
}

TEST(Q8, BeginsWithABiasOrWhatIsThere) {
  const Stored w = stored_blocks(40, 256, NumberFormat::q4_1, {}, 1);
  for (const Index m : {1, 6, 27}) {
    const Tensor x = randn({m, 256}, 1), bias = randn({40}, 3), before = randn({m, 40}, 4);
    const simd::BlockKernels& kernels = simd::block_kernels();
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
                      stored_blocks(70, 512, NumberFormat::q8_0, {}, 3),
                      stored_blocks(33, 512, NumberFormat::q4_0, {}, 4)};
  for (const Index m : {1, 2, 7, 53}) {
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
        EXPECT_TRUE(
            same_bits(all[i], product(x, w[i].view, simd::block_kernels(), products[i].start)))
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
        for (const simd::BlockKernels* kernels : usable())
          for (const Index rows : {1, 7}) {
            const Tensor y = product(Tensor::full({rows, kCols}, x), w.view, *kernels);
            for (Index i = 0; i < y.size(); ++i) {
              double sum = 0, most = 0;
              for (Index p = 0; p < kCols; ++p) {
                const double term = double{x} * numbers[i % 2 * kCols + p];
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
    const Tensor y = product(x, w.view, simd::block_kernels());
    for (Index i = 0; i < 15; ++i) EXPECT_EQ(std::isnan(y[i]), i / 5 == 1) << i;
  }
}

Tensor input_gradient(const Tensor& x, const Weight& weight) {
  return value_and_gradients({x}, [&](const Variables& v) { return linear(v[0], weight, {}); })[1];
}

TEST(Q8, ALinearGoesBackAsIfNothingWereRounded) {
  const Stored w = stored_blocks(40, 256, NumberFormat::q4_0, {}, 9);
  const Tensor x = randn({6, 256}, 4);
  EXPECT_TRUE(same_bits(input_gradient(x, FrozenMatrix(w.view, nullptr, Precision::q8)),
                        input_gradient(x, FrozenMatrix(w.view, nullptr, Precision::float32))));
}

TEST(FrozenMatrix, FewRowsHaveTheBitsThatEachHasAlone) {
  const Stored blocks[] = {stored_blocks(37, 256, NumberFormat::q4_1, {}, 9),
                           stored_blocks(37, 256, NumberFormat::q6_k, {}, 8)};
  for (const Precision precision : {Precision::float32, Precision::bf16, Precision::q8}) {
    const Weight weights[] = {Weight(FrozenMatrix(blocks[0].view, nullptr, precision)),
                              Weight(FrozenMatrix(blocks[1].view, nullptr, precision)),
                              Weight(FrozenMatrix(randn({37, 256}, 3), precision)),
                              Weight(FrozenMatrix(randn({37, 45}, 4), precision))};
    for (const Weight& w : weights) {
      const Index cols = &w == &weights[3] ? 45 : 256;
      const Tensor x = randn({packed::kFewRows, cols}, 5);
      const Variable none;
      for (Index m = 2; m <= packed::kFewRows; ++m) {
        const Tensor y = linear(Variable(rows_of(x, 0, m)), w, none).value();
        for (Index i = 0; i < m; ++i)
          EXPECT_TRUE(
              same_bits(rows_of(y, i, 1), linear(Variable(rows_of(x, i, 1)), w, none).value()))
              << name_of(precision) << " " << &w - weights << " row " << i << " of " << m;
      }
    }
  }
}

TEST(LinearInput, ProductsThatAreMadeTogetherAreThoseOfEach) {
  using Part = LinearInput::Part;
  for (const Precision precision : {Precision::float32, Precision::q8})
    for (const Index m : {1, 2, 5}) {
      const Stored stored[] = {stored_blocks(40, 256, NumberFormat::q4_0, {}, 9),
                               stored_blocks(8, 256, NumberFormat::q5_k, {}, 8)};
      const Weight first(FrozenMatrix(stored[0].view, nullptr, precision)),
          second(FrozenMatrix(stored[1].view, nullptr, precision));
      const Variable none, bias(randn({8}, 2)), x(randn({1, m, 256}, 4));
      const LinearInput input(x, std::array{Part{first, none}, Part{second, bias}});
      for (int time = 0; time < 2; ++time) {  // the second is computed again
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

TEST(Q8, EveryKernelRoundsAlike) {
  constexpr Real kTiny = std::numeric_limits<Real>::denorm_min();
  constexpr Real kMost = std::numeric_limits<Real>::max();
  std::vector<Tensor> blocks;
  for (const Real factor : {Real(1), Real(1e-30), Real(3e30), Real(0.37)}) {
    Tensor x = randn({32}, 1);
    for (Index i = 0; i < 16; ++i) x.data()[i] = static_cast<Real>(i - 8) + Real(0.5);
    x.data()[31] = 127;  // steps of 1: halves go to the even integer
    for (Real& number : x.span()) number *= factor;
    blocks.push_back(x);
  }
  blocks.push_back(Tensor::zeros({32}));
  for (const Real number : {kTiny, Real(-0.0), kMost, -kMost}) {
    blocks.push_back(Tensor::full({32}, number));
    blocks.back().data()[3] = kTiny;
  }
  for (const Tensor& x : blocks) {
    Real most = 0;
    for (const Real number : x.span()) most = std::max(most, std::abs(number));
    Real scale = most / 127;
    if (std::isinf(scale * 127)) scale = std::nextafter(scale, Real(0));
    for (const simd::BlockKernels* kernels : usable()) {
      std::int8_t q[32];
      std::int32_t sums[2], expected[2] = {0, 0};
      EXPECT_EQ(kernels->round(x.data(), q, sums), static_cast<float>(scale)) << kernels->name;
      for (Index i = 0; i < 32; ++i) {
        const Real nearest = scale > 0 ? std::nearbyint(x[i] / scale) : Real(0);
        EXPECT_EQ(q[i], std::clamp(nearest, Real(-127), Real(127))) << kernels->name << " " << i;
        expected[i / 16] += q[i];
      }
      EXPECT_EQ(sums[0], expected[0]);
      EXPECT_EQ(sums[1], expected[1]);
    }
  }
  for (const Real bad :
       {std::numeric_limits<Real>::quiet_NaN(), std::numeric_limits<Real>::infinity()})
    for (const simd::BlockKernels* kernels : usable()) {
      Tensor x = randn({32}, 1);
      x.data()[17] = bad;
      std::int8_t q[32];
      std::int32_t sums[2];
      EXPECT_TRUE(std::isnan(kernels->round(x.data(), q, sums))) << kernels->name;
      EXPECT_TRUE(std::ranges::all_of(q, [](int integer) { return integer == 0; }));
    }
}

/// Rounded to Q8_0, by the blocks' own definition.
Tensor in_q8_0(const Tensor& w) {
  std::vector<std::byte> blocks(bytes_of(NumberFormat::q8_0, w.size()));
  round_to_blocks(NumberFormat::q8_0, w.data(), w.size(), blocks.data());
  Tensor wide(w.shape());
  widen_blocks(NumberFormat::q8_0, blocks.data(), 0, w.size(), wide.data());
  return wide;
}

TEST(Q8, OtherMatricesAreRoundedToBlocksAsTheyLie) {
  for (const NumberFormat format : kStoredFormats)
    for (const StoredLayout& layout : kStoredLayouts)
      for (const auto& [rows, cols] : {std::pair<Index, Index>{84, 96}, {12, 32}}) {
        const Stored w = stored(rows, cols, format, layout, 3);
        const FrozenMatrix matrix(w.view, nullptr, Precision::q8);
        EXPECT_EQ(matrix->precision(), Precision::q8);
        EXPECT_EQ(matrix->format(), NumberFormat::q8_0);
        EXPECT_TRUE(same_bits(all_rows(matrix), in_q8_0(w.widened))) << described(format, layout);
      }
}

TEST(Q8, ARoundedMatrixIsMultipliedAsItsBlocks) {
  const Tensor w = randn({90, 192}, 1);
  const Weight q8 = FrozenMatrix(w, Precision::q8);
  for (const Index m : {1, 30}) {
    const Tensor x = randn({m, 192}, 2);
    Tensor expected({m, 90});
    gemm_nt_q8(m, x.data(), 192, *q8.frozen_matrix()->blocks(), expected.data(), 90);
    const Tensor y = linear(x, q8, {}).value(), exact = linear(x, w, {}).value();
    EXPECT_TRUE(same_bits(y, expected));
    EXPECT_LE(relative_difference(y, exact), 1.5e-2);
    EXPECT_GE(relative_difference(y, linear(x, in_q8_0(w), {}).value()), 1e-4);
    EXPECT_TRUE(same_bits(input_gradient(x, q8), input_gradient(x, in_q8_0(w))));
  }
}

TEST(Q8, WhatNoBlockCanHoldIsRefused) {
  const auto refusal = [](Real number, Index row, const std::string& name) {
    Tensor w = randn({200, 320}, 1);
    w.data()[row * 320 + 319] = number;
    w.data()[150 * 320] = number;  // a later one: the first is reported
    return error_of([&] { FrozenMatrix(w, Precision::q8, name); });
  };
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  const Real nan = std::numeric_limits<Real>::quiet_NaN();
  EXPECT_EQ(refusal(nan, 3, ""),
            "q8: row 3 of the matrix holds NaN, infinity or a number too large for a block's "
            "scale: use float32");
  EXPECT_EQ(refusal(-kInf, 77, "a.weight"),
            "q8: row 77 of the weight a.weight holds NaN, infinity or a number too large for a "
            "block's scale: use float32");
  EXPECT_NE(refusal(Real(1e7), 0, "").find("row 0 of the matrix"), std::string::npos);
  EXPECT_EQ(refusal(Real(8e6), 0, ""), "");
}

TEST(Q8, RowsThatAreNotWholeBlocksAreMultipliedAsTheyAre) {
  const Tensor w = randn({40, 72}, 9), x = randn({6, 72}, 4);
  const FrozenMatrix q8(w, Precision::q8);
  EXPECT_EQ(q8->precision(), Precision::q8);
  EXPECT_TRUE(same_bits(linear(Variable(x), q8, {}).value(),
                        linear(Variable(x), FrozenMatrix(w, Precision::float32), {}).value()));
  Tensor y({6, 40});
  EXPECT_THROW(gemm_nt_q8(6, x.data(), 72, view_of(w), y.data(), 40), std::invalid_argument);
}

}  // namespace
}  // namespace focus
