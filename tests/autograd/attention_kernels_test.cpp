// The kernels around a softmax over keys, of every instruction set that this machine has, against
// plain loops.
#include <cmath>
#include <limits>

#include "autograd/simd/kernels.h"
#include "tests/support/compare.h"
#include "tests/support/kernels.h"

namespace focus {
namespace {

using simd::Kernels;

TEST(AttentionKernels, TheLargestRowOfEachColumnIsTheFirstOfEquals) {
  for_kernels([](const Kernels& kernels) {
    for (const Index rows : {1, 2, 5, 33})
      for (const Index vectors : {1, 2, 4}) {
        const Index n = vectors * kernels.vector, stride = n + 3;
        Tensor x = randn({rows, stride}, static_cast<std::uint64_t>(rows * 10 + vectors));
        for (Real& value : x.span()) value = std::round(2 * value);  // many are equal
        if (rows > 2) x.data()[2 * stride] = -std::numeric_limits<Real>::infinity();
        std::vector<simd::Lane> place(n + 1, 77);
        kernels.largest_rows(rows, n, x.data(), stride, place.data());
        for (Index column = 0; column < n; ++column) {
          Index best = 0;
          for (Index row = 1; row < rows; ++row)
            if (x[row * stride + column] > x[best * stride + column]) best = row;
          ASSERT_EQ(place[column], best) << "column " << column;
        }
        EXPECT_EQ(place.back(), 77);
      }
  });
}

TEST(AttentionKernels, BiasesOfRowsGoIntoBothMatrices) {
  for_kernels([](const Kernels& kernels) {
    const Index rows = 5, n = 2 * kernels.vector, stride = n + 3;
    const Tensor x = randn({rows, stride}, 1), y = randn({rows, stride}, 2),
                 bias = randn({rows}, 3);
    for (const bool both : {false, true}) {
      Tensor new_x = x.clone(), new_y = y.clone();
      kernels.bias_rows(rows, n, bias.data(), new_x.data(), both ? new_y.data() : nullptr, stride);
      for (Index i = 0; i < x.size(); ++i) {
        const bool inside = i % stride < n;
        const Real b = inside ? bias[i / stride] : 0;
        ASSERT_EQ(new_x[i], x[i] + b) << "at " << i;
        ASSERT_EQ(new_y[i], both && inside ? y[i] + x[i] + b : y[i]) << "at " << i;
      }
    }
  });
}

TEST(AttentionKernels, SumsOfTwoSoftmaxesMerge) {
  constexpr Real kNone = -std::numeric_limits<Real>::infinity();
  for_kernels([&](const Kernels& kernels) {
    const Index n = 2 * kernels.vector, dim = kernels.vector + 3;
    Tensor max = randn({n}, 1), sum = Tensor::full({n}, 3), lse = randn({n}, 2);
    Tensor y = randn({n, dim}, 3), x = randn({n, dim}, 4);
    // Keys on one side alone, on none, and so much heavier ones that the others do not count.
    max.data()[0] = lse.data()[1] = max.data()[2] = lse.data()[2] = kNone;
    sum.data()[0] = sum.data()[2] = 0;
    max.data()[3] = 200;
    lse.data()[3] = -200;
    std::fill_n(x.data(), dim, std::numeric_limits<Real>::quiet_NaN());  // nothing was summed there
    Tensor all = lse.clone(), keep({n}), add({n}), merged = y.clone();
    kernels.merge_sums(n, max.data(), sum.data(), all.data(), keep.data(), add.data());
    kernels.blend_rows(n, dim, x.data(), dim, keep.data(), add.data(), 1, merged.data(), dim);
    for (Index i = 0; i < n; ++i) {
      const double before = std::exp(double{lse[i]}), gained = std::exp(double{max[i]});
      const double total = before + gained * double{sum[i]};
      if (total == 0)
        ASSERT_EQ(all[i], kNone);
      else
        ASSERT_NEAR(all[i], std::log(total), tolerance(2e-6, 1e-12) * (1 + std::abs(all[i])));
      for (Index d = 0; d < dim; ++d) {
        const double of_y = double{y[i * dim + d]};
        const double expected =
            sum[i] == 0 ? of_y : (before * of_y + gained * double{x[i * dim + d]}) / total;
        ASSERT_NEAR(merged[i * dim + d], expected, tolerance(4e-6, 1e-12)) << i << ", " << d;
      }
    }
  });
}

TEST(AttentionKernels, RowsInAnyOrderArePackedAsTheirTranspose) {
  for_kernels([](const Kernels& kernels) {
    for (const Index columns : {Index{1}, kernels.vector, kernels.panel + 3})
      for (const Index rows : {Index{3}, 2 * kernels.vector}) {
        const Index ld = rows + 5, padded = simd::padded(kernels, columns);
        const Tensor source = randn({2 * columns, ld}, 1);
        std::vector<Index> rows_of;
        for (Index j = 0; j < columns; ++j) rows_of.push_back((7 * j + 1) % (2 * columns));
        Tensor gathered({columns, ld}), expected({rows, padded}), packed({rows, padded});
        for (Index j = 0; j < columns; ++j)
          std::copy_n(source.data() + rows_of[j] * ld, ld, gathered.data() + j * ld);
        kernels.pack_transposed(gathered.data(), ld, columns, rows, Real(0.5), expected.data());
        kernels.pack_gathered(source.data(), ld, rows_of.data(), columns, rows, Real(0.5),
                              packed.data());
        for (Index i = 0; i < packed.size(); ++i) ASSERT_EQ(packed[i], expected[i]) << "at " << i;
      }
  });
}

}  // namespace
}  // namespace focus
