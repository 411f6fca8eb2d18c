#include "autograd/gemm/bf16.h"
#include "autograd/gemm/frozen_matrix.h"
#include "autograd/ops.h"
#include "autograd/simd/bf16_kernels.h"
#include "tests/support/compare.h"
#include "tests/support/stored_matrix.h"
#include "tests/support/temp_folder.h"

// Weights that are frozen, in each precision: what they answer, what they take and what they
// refuse.
namespace focus {
namespace {

TEST(FrozenWeight, EmbeddingAndTiedHeadAreOneMatrix) {
  const Index vocab = 36, hidden = 32, count = 300;  // more rows than are scored at a time
  const Tensor w = randn({vocab, hidden}, 1), x = randn({count, hidden}, 2);
  const auto ids = random_ids(count, vocab, 1);
  Tensor one_hot = Tensor::zeros({vocab, vocab});
  for (Index i = 0; i < vocab; ++i) one_hot.data()[i * vocab + i] = 1;
  const Stored view =
      stored(vocab, hidden, NumberFormat::bf16, {.transposed = true, .run = 4, .runs = 3}, 5);
  for (const FrozenMatrix& matrix :
       {FrozenMatrix(w, Precision::float32), FrozenMatrix(w, Precision::bf16),
        FrozenMatrix(w, Precision::q8), FrozenMatrix(view.view, nullptr)}) {
    SCOPED_TRACE(name_of(matrix->precision()));
    const Weight tied = matrix;
    const Tensor rows = all_rows(matrix);
    EXPECT_TRUE(
        same_bits(embedding(tied, ids, {count}).value(), embedding(rows, ids, {count}).value()));
    const Variable input = leaf(x), logits = leaf(linear(x, tied, {}).value());
    const Variable loss = linear_cross_entropy(input, tied, ids);
    const Variable expected = linear_cross_entropy(logits, one_hot, ids);
    backward(loss);
    backward(expected);
    EXPECT_NEAR(loss.value()[0], expected.value()[0], tolerance(1e-6, 1e-12));
    double sum = 0;
    for (const double nats : linear_cross_entropy_rows(x, tied, ids)) sum += nats;
    EXPECT_NEAR(sum / static_cast<double>(count), loss.value()[0], 1e-5);
    // Fast products of bf16 round the logits' gradient before it goes back; a number at the edge
    // between two bf16 may fall to either side.
    const bool rounds =
        matrix->precision() == Precision::bf16 && simd::fast_bf16_kernels() != nullptr;
    const Tensor sent =
        rounds ? all_rows(FrozenMatrix(logits.grad(), Precision::bf16)) : logits.grad();
    const Tensor back = matmul(sent.reshape({1, count, vocab}), rows.reshape({1, vocab, hidden}))
                            .value()
                            .reshape({count, hidden});
    EXPECT_LE(relative_difference(input.grad(), back), rounds ? 1e-3 : tolerance(1e-6, 1e-12));
    if (matrix->precision() != Precision::float32) continue;
    const Variable again = leaf(x), dense = linear_cross_entropy(again, rows, ids);
    backward(dense);
    EXPECT_TRUE(same_bits(loss.value(), dense.value()));
    EXPECT_TRUE(same_bits(input.grad(), again.grad()));
  }
}

TEST(FrozenWeight, TakesTheBytesOfItsPrecisionAndIsFrozen) {
  const std::size_t numbers = 512u * 256;
  for (const auto& [precision, bytes] : {std::pair(Precision::float32, numbers * sizeof(Real)),
                                         {Precision::bf16, numbers * 2},
                                         {Precision::q8, numbers / 32 * 34}}) {
    SCOPED_TRACE(name_of(precision));
    const std::size_t before = pool_stats().live;
    Weight w(randn({512, 256}, 1));
    EXPECT_EQ(w.bytes(), pool_stats().live - before);
    w.freeze(precision);
    EXPECT_EQ(w.precision(), precision);
    EXPECT_EQ(w.bytes(), bytes);
    // The pool rounds up.
    EXPECT_LE(pool_stats().live - before, precision == Precision::q8 ? bytes * 5 / 4 : bytes);
    EXPECT_EQ(w.shape(), (Shape{512, 256}));
    EXPECT_TRUE(w.defined());
    w.freeze(precision);  // stays as it is
    EXPECT_EQ(w.precision(), precision);
    if (precision == Precision::float32) continue;
    EXPECT_THROW(w.set_requires_grad(true), std::invalid_argument);
    EXPECT_NO_THROW(w.set_requires_grad(false));
    EXPECT_THROW(w.value(), std::invalid_argument);
    EXPECT_THROW(w.mutable_value(), std::invalid_argument);
    EXPECT_THROW(tanh(w.variable()), std::invalid_argument);
    EXPECT_THROW(linear(randn({2, 5}, 1), w, {}), std::invalid_argument);
    EXPECT_THROW(Weight(leaf(randn({4, 4}, 1))).freeze(precision), std::invalid_argument);
    EXPECT_THROW(Weight(randn({4}, 1)).freeze(precision), std::invalid_argument);
    EXPECT_THROW(w.multiply_in_bf16(), std::invalid_argument);
    EXPECT_THROW(w.freeze(precision == Precision::q8 ? Precision::bf16 : Precision::q8),
                 std::invalid_argument);
  }
}

TEST(FrozenWeight, ErrorsSayWhatIsStoredHow) {
  const Weight w = FrozenMatrix(randn({4, 4}, 1), Precision::bf16);
  EXPECT_EQ(error_of([&] { w.variable("layers.0.mlp.up_proj.weight"); }),
            "value: the weight layers.0.mlp.up_proj.weight [4, 4] is frozen, as it is stored in "
            "bf16; load the model with its weights trainable");
}

}  // namespace
}  // namespace focus
