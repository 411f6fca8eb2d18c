// Attention over rows of several documents: each as if it were alone.
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

AttentionOptions options_of(const std::vector<Index>& documents, Index window, Real softcap) {
  return {.scale = Real(0.4),
          .softcap = softcap,
          .sliding_window = window,
          .documents = std::make_shared<const std::vector<Index>>(documents)};
}

/// The same, each document a row of its own.
Variable one_by_one(const Variables& v, const AttentionOptions& options) {
  AttentionOptions alone = options;
  alone.documents = nullptr;
  std::vector<Variable> parts;
  for (std::size_t i = 0; i + 1 < options.documents->size(); ++i) {
    const Index begin = (*options.documents)[i], end = (*options.documents)[i + 1];
    parts.push_back(attention(slice(v[0], begin, end), slice(v[1], begin, end),
                              slice(v[2], begin, end), alone));
  }
  return concatenate(parts);
}

std::vector<Tensor> inputs_of(Index tokens) {
  return {randn({1, tokens, 4, 6}, 1), randn({1, tokens, 2, 6}, 2), randn({1, tokens, 2, 6}, 3)};
}

TEST(DocumentAttention, EachIsAloneInItsRow) {
  for (const std::vector<Index>& documents :
       {std::vector<Index>{0, 9}, {0, 1, 2, 40}, {0, 64, 128, 129, 400}, {0, 200, 263, 500}})
    for (const Index window : {0, 7, 100}) {
      const AttentionOptions options = options_of(documents, window, window == 7 ? 2 : 0);
      const Variables packed = leaves(inputs_of(documents.back()));
      const Variables alone = leaves(inputs_of(documents.back()));
      const Variable out = attention(packed[0], packed[1], packed[2], options);
      const Variable expected = one_by_one(alone, options);
      EXPECT_LE(relative_difference(out.value(), expected.value()), tolerance(1e-5, 1e-12));
      const Variable d_out(randn(out.shape(), 4));
      backward(multiply(out, d_out));
      backward(multiply(expected, d_out));
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_LE(relative_difference(packed[i].grad(), alone[i].grad(), 1),
                  tolerance(1e-5, 1e-12));
    }
}

TEST(DocumentAttention, Gradient) {
  const AttentionOptions options = options_of({0, 2, 3, 8}, 0, 0);
  expect_gradients([&](const Variables& v) { return attention(v[0], v[1], v[2], options); },
                   {randn({1, 8, 2, 3}, 1), randn({1, 8, 1, 3}, 2), randn({1, 8, 1, 3}, 3)});
}

TEST(DocumentAttention, SameBitsForAnyThreads) {
  const AttentionOptions options = options_of({0, 70, 75, 290}, 0, 0);
  expect_same_bits_for_any_threads("documents", [&] {
    const Variables v = leaves(inputs_of(290));
    const Variable out = attention(v[0], v[1], v[2], options);
    backward(multiply(out, Variable(randn(out.shape(), 4))));
    return std::vector<Tensor>{out.value(), v[0].grad(), v[1].grad(), v[2].grad()};
  });
}

TEST(DocumentAttention, RejectsStartsThatDoNotFit) {
  const std::vector<Tensor> x = inputs_of(8);
  for (const std::vector<Index>& wrong :
       {std::vector<Index>{}, {0}, {0, 7}, {1, 8}, {0, 4, 4, 8}, {0, 5, 3, 8}})
    EXPECT_THROW(attention(x[0], x[1], x[2], options_of(wrong, 0, 0)), std::invalid_argument);
  const Tensor two = randn({2, 4, 2, 3}, 1);
  EXPECT_THROW(attention(two, two, two, options_of({0, 4}, 0, 0)), std::invalid_argument);
}

}  // namespace
}  // namespace focus
