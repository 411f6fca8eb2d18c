#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "autograd/attention/attention_plan.h"
#include "autograd/attention/tiled_attention.h"
#include "autograd/gemm/gemm.h"
#include "autograd/simd/bf16_kernels.h"
#include "tests/support/composed.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

/// A case of plain causal attention.
struct Case {
  Index batch, seq_len, heads, kv_heads, head_dim;
  double softcap = 0;
  Index window = 0;
  double dropout = 0;

  std::string str() const {
    return fmt::format("T {} heads {}/{} head_dim {} softcap {} window {} dropout {}", seq_len,
                       heads, kv_heads, head_dim, softcap, window, dropout);
  }
};

std::vector<Tensor> inputs_of(const Case& c) {
  return {randn({c.batch, c.seq_len, c.heads, c.head_dim}, 1),
          randn({c.batch, c.seq_len, c.kv_heads, c.head_dim}, 2),
          randn({c.batch, c.seq_len, c.kv_heads, c.head_dim}, 3)};
}
AttentionOptions options_of(const Case& c) {
  return {.scale = Real(0.4),
          .softcap = static_cast<Real>(c.softcap),
          .sliding_window = c.window,
          .dropout = c.dropout,
          .dropout_key = 5};
}

/// Output and gradients.
std::vector<Tensor> results(const Case& c, const simd::Bf16Kernels* bf16) {
  AttentionOptions options = options_of(c);
  options.bf16 = bf16;
  return value_and_gradients(
      inputs_of(c), [&](const Variables& v) { return attention(v[0], v[1], v[2], options); }, 4);
}

void expect_near(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected,
                 double accepted) {
  EXPECT_LE(relative_difference(actual[0], expected[0]), accepted);
  // Beside 1: the softmax over a single key is constant, and q's and k's gradients are zero.
  for (const std::size_t i : {1, 2, 3})
    EXPECT_LE(relative_difference(actual[i], expected[i], 1), accepted)
        << "gradient of input " << i - 1;
}

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
    const std::vector<Tensor> x = inputs_of(c);
    Tensor expected_lse;
    const Tensor lse = tiled_attention({x[0], x[1], x[2], options_of(c)},
                                       causal_plan(c.batch, c.seq_len, c.window), nullptr)
                           .lse;
    const auto composed = [&](const Variables& v) {
      return composed_attention(v[0], v[1], v[2], {}, options_of(c), nullptr, &expected_lse);
    };
    expect_near(results(c, nullptr), value_and_gradients(x, composed, 4), tolerance(1e-5, 1e-10));
    EXPECT_LE(relative_difference(lse, expected_lse), tolerance(1e-5, 1e-10));
  }
}

TEST(Attention, Gradient) {
  for (const Case& c :
       {Case{1, 5, 2, 1, 3}, Case{2, 4, 2, 2, 2, 1.5, 2}, Case{2, 5, 2, 1, 3, 0, 0, 0.4}})
    expect_gradients([&](const Variables& v) { return attention(v[0], v[1], v[2], options_of(c)); },
                     inputs_of(c));
}

TEST(Attention, LaterTokensDoNotMatter) {
  std::vector<const simd::Bf16Kernels*> all = simd::usable_bf16_kernels();
  all.push_back(nullptr);
  for (const simd::Bf16Kernels* kernels : all)
    for (const Index window : {0, 37}) {
      const Case c{1, 200, 2, 2, 6, 0, window};
      AttentionOptions options = options_of(c);
      options.bf16 = kernels;
      const std::vector<Tensor> x = inputs_of(c);
      const auto run = [&] { return attention(x[0], x[1], x[2], options).value(); };
      const Tensor before = run();
      const Index changed = 101, width = c.heads * c.head_dim;
      for (const Tensor& t : x) {
        Tensor shared = t;
        for (const Index row : {changed, Index{130}})
          for (Index i = 0; i < width; ++i) shared.data()[row * width + i] += 1000;
      }
      const Tensor after = run();
      for (Index i = 0; i < changed * width; ++i)
        ASSERT_EQ(after[i], before[i]) << (kernels ? kernels->name : "Real") << ' ' << window;
      EXPECT_NE(after[changed * width], before[changed * width]);
    }
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

// The pictures at the top of attention_plan.h.

TEST(AttentionPlan, SegmentsAreThoseOfThePicture) {
  const AttentionPlan plan = causal_plan(1, 512, 256);
  std::vector<std::pair<Index, Index>> segments(8);
  for (const auto& tile : plan.query_tiles) {
    ASSERT_EQ(tile.end_segment - tile.first_segment, 1);
    const auto& segment = plan.segments[tile.first_segment];
    segments[tile.begin / 64] = {segment.begin, segment.end};
  }
  const std::vector<std::pair<Index, Index>> wanted = {{0, 1}, {0, 1}, {0, 2}, {0, 2},
                                                       {0, 3}, {0, 3}, {1, 4}, {1, 4}};
  EXPECT_EQ(segments, wanted);
  EXPECT_EQ(plan.average_tile_reads(), 18 / 4.0);
}

TEST(Visibility, BandsAndSpanAreThoseOfThePicture) {
  if (simd::kernels().vector != 16) GTEST_SKIP() << "the picture is of vectors of 16 numbers";
  const AttentionPlan plan = causal_plan(1, 512, 256);
  Visibility seen;
  seen.set({&plan, 0, 64, plan.key_tiles[0]});
  using Band = std::tuple<Index, Index, Index, Index>;
  std::vector<Band> bands;
  for (const KeyBand& band : seen.bands())
    bands.emplace_back(band.begin, band.end, band.first_query, band.end_query);
  EXPECT_EQ(bands, (std::vector<Band>{
                       {0, 24, 0, 64}, {24, 36, 16, 64}, {36, 48, 32, 64}, {48, 72, 48, 64}}));
  const simd::KeySpan span = seen.span(2, false);
  EXPECT_EQ(std::tuple(span.begin, span.all_begin, span.all_end, span.end),
            std::tuple(0, 0, 33, 48));
}

// Attention over rows of several documents: each as if it were alone.

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
      const std::vector<Tensor> x = inputs_of(documents.back());
      const auto packed = [&](const Variables& v) { return attention(v[0], v[1], v[2], options); };
      const auto alone = [&](const Variables& v) { return one_by_one(v, options); };
      expect_near(value_and_gradients(x, packed, 4), value_and_gradients(x, alone, 4),
                  tolerance(1e-5, 1e-12));
    }
}

TEST(DocumentAttention, Gradient) {
  const AttentionOptions options = options_of({0, 2, 3, 8}, 0, 0);
  expect_gradients([&](const Variables& v) { return attention(v[0], v[1], v[2], options); },
                   {randn({1, 8, 2, 3}, 1), randn({1, 8, 1, 3}, 2), randn({1, 8, 1, 3}, 3)});
}

TEST(DocumentAttention, RejectsStartsThatDoNotFit) {
  const std::vector<Tensor> x = inputs_of(8);
  for (const std::vector<Index>& wrong :
       {std::vector<Index>{}, {0}, {0, 7}, {1, 8}, {0, 4, 4, 8}, {0, 5, 3, 8}})
    EXPECT_THROW(attention(x[0], x[1], x[2], options_of(wrong, 0, 0)), std::invalid_argument);
  const Tensor two = randn({2, 4, 2, 3}, 1);
  EXPECT_THROW(attention(two, two, two, options_of({0, 4}, 0, 0)), std::invalid_argument);
}

// Attention whose products are of numbers rounded to bf16: every kernel that this machine can run,
// held against the same attention in Real.

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

}  // namespace
}  // namespace focus
