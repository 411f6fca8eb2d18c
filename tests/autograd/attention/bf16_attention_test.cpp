// Attention whose products are of numbers rounded to bf16: every kernel that this machine can run,
// held against the same attention in Real.
#include <gtest/gtest.h>

#include "autograd/attention/tiled_attention.h"
#include "autograd/simd/bf16_kernels.h"
#include "tests/support/bf16_products.h"
#include "tests/support/compare.h"
#include "tests/support/dense_attention_case.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

using Case = DenseCase;

// Odd lengths and widths, more than a panel of columns, windows whose spans of keys begin and end
// at odd places, short ones, dropout.
const std::vector<Case> kCases = {{1, 1, 2, 1, 4},
                                  {1, 2, 2, 1, 5},
                                  {2, 63, 2, 2, 7},
                                  {1, 65, 4, 1, 64},
                                  {1, 130, 4, 2, 33},
                                  {2, 129, 2, 1, 80},
                                  {1, 300, 2, 1, 128, 1.5},
                                  {1, 200, 2, 2, 16, 0, 3},
                                  {1, 203, 2, 1, 8, 0, 65},
                                  {2, 700, 2, 1, 16, 0, 90},
                                  {1, 150, 2, 2, 12, 2, 70, 0.3}};

AttentionOptions options_of(const Case& c, const simd::Bf16Kernels* bf16) {
  AttentionOptions options = focus::options_of(c);
  options.bf16 = bf16;
  return options;
}

/// Output and gradients.
std::vector<Tensor> results(const Case& c, const simd::Bf16Kernels* bf16) {
  const Variables x = leaves(inputs_of(c));
  const Variable out = attention(x[0], x[1], x[2], options_of(c, bf16));
  backward(multiply(out, Variable(randn(out.shape(), 4))));
  return {out.value(), x[0].grad(), x[1].grad(), x[2].grad()};
}

/// Whether this machine's vectors let these kernels take part in attention at all.
bool takes_part(const simd::Bf16Kernels& kernels) {
  return simd::kernels().vector % kernels.vector == 0;
}

TEST(Bf16Attention, IsAttentionOfRoundedNumbers) {
  for (const simd::Bf16Kernels* kernels : simd::usable_bf16_kernels())
    for (const Case& c : kCases) {
      SCOPED_TRACE(kernels->name + (": " + c.str()));
      const std::vector<Tensor> rounded = results(c, kernels), exact = results(c, nullptr);
      // bf16 has eight bits, and scores of several are exponents. Beside 1: the softmax over a
      // single key is constant.
      for (std::size_t i = 0; i < exact.size(); ++i)
        EXPECT_LE(relative_difference(rounded[i], exact[i], 1), 2e-2) << "of result " << i;
      if (takes_part(*kernels)) {
        EXPECT_FALSE(same_bits(rounded[0], exact[0])) << "nothing was rounded";
      }
    }
}

TEST(Bf16Attention, LaterTokensDoNotMatter) {
  for (const simd::Bf16Kernels* kernels : simd::usable_bf16_kernels())
    for (const Index window : {0, 37}) {
      const Case c{1, 200, 2, 2, 6, 0, window};
      const Variables x = leaves(inputs_of(c));
      const auto run = [&] { return attention(x[0], x[1], x[2], options_of(c, kernels)).value(); };
      const Tensor before = run();
      for (const Index changed : {101, 130}) {
        const Index width = c.heads * c.head_dim;
        for (const Variable& v : x) {
          Real* row = Variable(v).mutable_value().data() + changed * width;
          for (Index i = 0; i < width; ++i) row[i] += 1000;
        }
        const Tensor after = run();
        for (Index i = 0; i < 101 * width; ++i)
          ASSERT_EQ(after[i], before[i]) << kernels->name << ' ' << window << ' ' << i;
      }
    }
}

TEST(Bf16Attention, BitsDoNotDependOnThreads) {
  const Case c{2, 300, 4, 2, 24};
  for (const simd::Bf16Kernels* kernels : simd::usable_bf16_kernels()) {
    std::vector<Tensor> one, three;
    with_threads(1, [&] { one = results(c, kernels); });
    with_threads(3, [&] { three = results(c, kernels); });
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(same_bits(one[i], three[i])) << i;
  }
}

}  // namespace
}  // namespace focus
