#include "focus/method/attention/layer_cache.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "autograd/gemm/gemm.h"
#include "focus/method/attention/focus_attention.h"
#include "focus/method/grouping/group_statistics.h"
#include "tests/support/attention_case.h"

namespace focus {
namespace {

/// Calls on_token(t, cache) after each token of the case's only sequence has been appended.
template <class F>
void decode(const Case& c, const std::vector<Tensor>& x, const GateOptions& gate, F&& on_token,
            CacheDtype dtype = CacheDtype::float32) {
  GateOptions without_sets = gate;
  without_sets.membership.clear();
  LayerCache cache({c.heads, c.kv_heads, c.head_dim, c.groups}, options_of(c), without_sets, dtype);
  for (Index t = 0; t < c.seq_len; ++t) {
    const Index key = t * c.kv_heads * c.head_dim;
    cache.append(x[1].data() + key, x[2].data() + key, x[3].data() + t * c.groups,
                 gate.membership[t]);
    on_token(t, cache);
  }
}

/// The outputs of all tokens, decoded one at a time: like q.
Tensor decoded(const Case& c, const std::vector<Tensor>& x, const GateOptions& gate,
               CacheDtype dtype = CacheDtype::float32) {
  Tensor out(x[0].shape());
  const Index width = c.heads * c.head_dim;
  decode(
      c, x, gate,
      [&](Index t, LayerCache& cache) {
        cache.attend(x[0].data() + t * width, out.data() + t * width);
      },
      dtype);
  return out;
}

double difference_from_sparse(const Case& c) {
  const std::vector<Tensor> x = inputs_of(c);
  const GateOptions gate = gate_of(c, x[3]);
  return relative_difference(decoded(c, x, gate), run(sparse_attention, c, x, gate).value());
}
void expect_as_sparse(const Case& c) {
  EXPECT_LE(difference_from_sparse(c), kTwinTolerance) << c.str();
}

TEST(LayerCache, EveryTokenAttendsAsInTheWholeSequence) {
  for (const Index seq_len : {1, 17, 150})
    for (const Gate gate : {Gate::logit, Gate::affinity})
      for (const bool gated : {false, true})
        for (const int top_k : {1, 2, 3}) {
          const Case plain{.seq_len = seq_len, .gate = gate, .gated = gated, .top_k = top_k};
          expect_as_sparse(plain);
          const auto with = [&](auto&& change) {
            Case c = plain;
            change(c);
            expect_as_sparse(c);
          };
          with([](Case& c) { c.softcap = 1.5; });
          with([](Case& c) { c.sliding_window = 40; });
          with([](Case& c) { c.sliding_window = 5; });  // narrower than the local window
          with([](Case& c) { c.sliding_window = 1; });
          with([](Case& c) { c.heads = 6; });                  // grouped queries
          with([](Case& c) { c.heads = 5, c.kv_heads = 1; });  // one key head
          with([](Case& c) { c.local_window = 0; });
          with([](Case& c) { c.local_window = 1000; });
          with([](Case& c) { c.groups = 7; });
          with([](Case& c) { c.sinks = 3; });
          with([](Case& c) { c.sinks = 20, c.sliding_window = 40; });
          with([](Case& c) { c.empty_group = true; });
        }
  expect_as_sparse({.groups = 1, .top_k = 1});
}

TEST(LayerCache, ALongClass) {
  const Case c{.seq_len = 5000, .heads = 1, .kv_heads = 1, .groups = 1, .top_k = 1};
  const std::vector<Tensor> x = inputs_of(c);
  const GateOptions gate = gate_of(c, x[3]);
  Tensor out({1, 1, 1, 4});
  decode(c, x, gate, [&](Index t, LayerCache& cache) {
    if (t + 1 == c.seq_len) cache.attend(x[0].data() + t * 4, out.data());
  });
  const Tensor all = run(sparse_attention, c, x, gate).value();
  EXPECT_LE(relative_difference(out, Tensor::from({1, 1, 1, 4}, all.span().last(4))),
            kTwinTolerance);
}

TEST(LayerCache, HeadDimensionsOfPublishedModels) {
  for (const Index head_dim : {1, 8, 12, 24, 64, 80, 128})
    expect_as_sparse({.seq_len = 130, .head_dim = head_dim, .top_k = 1});
}

TEST(LayerCache, RowsThatAttendTogetherHaveTheBitsOfEachAlone) {
  for (const CacheDtype dtype : {CacheDtype::float32, CacheDtype::float16, CacheDtype::q8_0})
    for (const double softcap : {0.0, 1.5}) {
      const Case c{.seq_len = 700, .heads = 6, .kv_heads = 2, .head_dim = 40, .softcap = softcap};
      const std::vector<Tensor> x = inputs_of(c);
      const GateOptions gate{.local_window = 0, .gated = false, .membership = {}};
      LayerCache alone({6, 2, 40, 0}, options_of(c), gate, dtype), together = alone;
      const Index row = c.heads * c.head_dim, key = c.kv_heads * c.head_dim;
      std::vector<Real> one(row), some;
      Index size = 1;
      for (Index t = 0; t < c.seq_len; t += size) {
        size = std::min(size % 17 + 1, c.seq_len - t);
        some.resize(size * row);
        for (Index i = t; i < t + size; ++i)
          together.append(x[1].data() + i * key, x[2].data() + i * key, nullptr, 1);
        ASSERT_TRUE(together.takes_rows());
        const std::uint64_t before = multiply_adds();
        together.attend(x[0].data() + t * row, some.data(), size);
        const std::uint64_t of_rows = multiply_adds() - before;
        for (Index i = 0; i < size; ++i) {
          alone.append(x[1].data() + (t + i) * key, x[2].data() + (t + i) * key, nullptr, 1);
          alone.attend(x[0].data() + (t + i) * row, one.data());
          ASSERT_TRUE(std::ranges::equal(one, std::span(some).subspan(i * row, row)))
              << "row " << i << " of " << size << " behind " << t;
        }
        ASSERT_EQ(multiply_adds() - before, 2 * of_rows);
      }
      EXPECT_THROW(together.attend(x[0].data(), some.data(), 0), std::invalid_argument);
    }
}

TEST(LayerCache, SequencesOfSeveralChunks) {
  for (const int top_k : {1, 2})
    expect_as_sparse({.seq_len = 1500,
                      .heads = 4,
                      .head_dim = 16,
                      .groups = 5,
                      .top_k = top_k,
                      .local_window = 100,
                      .sliding_window = top_k == 2 ? 1100 : 0});
}

RC_GTEST_PROP(LayerCache, AttendsAsInTheWholeSequenceForAnyOptions, ()) {
  Case c = any_case(1);
  c.batch = 1;
  c.dropout = 0;  // a cache is not trained through
  const double difference = difference_from_sparse(c);
  RC_LOG() << "differs by " << difference << " in " << c.str();
  RC_ASSERT(difference <= kTwinTolerance);
}

TEST(LayerCache, OneClassWithoutAWindowIsDenseAttention) {
  for (const Index sliding_window : {0, 20}) {
    const Case c{.seq_len = 200, .heads = 4, .head_dim = 8, .sliding_window = sliding_window};
    const std::vector<Tensor> x = inputs_of(c);
    const GateOptions gate{
        .local_window = 0, .gated = false, .membership = std::vector<std::uint64_t>(200, 1)};
    EXPECT_LE(relative_difference(decoded(c, x, gate),
                                  attention(x[0], x[1], x[2], options_of(c)).value()),
              kTwinTolerance);
  }
}

TEST(LayerCache, WithoutGroupsTheLocalWindowAloneIsLeft) {
  const Case c{.seq_len = 150, .local_window = 5};
  const std::vector<Tensor> x = inputs_of(c);
  GateOptions gate = gate_of(c, x[3]);
  gate.membership.assign(150, 0);
  AttentionOptions window = options_of(c);
  window.sliding_window = 6;
  EXPECT_LE(relative_difference(decoded(c, x, gate), attention(x[0], x[1], x[2], window).value()),
            kTwinTolerance);
}

TEST(LayerCache, ReadsThePairsOfTheMaskAndNoOthers) {
  for (const Index sliding_window : {0, 90})
    for (const auto& [top_k, sinks] : {std::pair{1, 0}, {2, 0}, {4, 0}, {1, 3}, {2, 3}}) {
      const Case c{.seq_len = 400,
                   .heads = 4,
                   .groups = 4,
                   .gated = false,
                   .top_k = top_k,
                   .local_window = 20,
                   .sliding_window = sliding_window,
                   .sinks = sinks};
      const std::vector<Tensor> x = inputs_of(c);
      const GateOptions gate = gate_of(c, x[3]);
      const PairCounts pairs =
          count_pairs(gate.membership, c.seq_len, c.local_window, c.sliding_window, sinks);
      std::int64_t read = 0;
      const std::uint64_t before = multiply_adds();
      Tensor out({c.heads, c.head_dim});
      decode(c, x, gate, [&](Index t, LayerCache& cache) {
        cache.attend(x[0].data() + t * c.heads * c.head_dim, out.data());
        read += cache.keys_read();
      });
      EXPECT_EQ(read, pairs.attended) << c.str();
      EXPECT_EQ(multiply_adds() - before,
                static_cast<std::uint64_t>(2 * pairs.attended * c.heads * c.head_dim))
          << c.str();
    }
}

TEST(LayerCache, OfFloat16IsThatOfTheRoundedKeysAndValues) {
  for (const Index head_dim : {12, 64})
    for (const bool gated : {false, true}) {
      const Case c{.seq_len = 200,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_dim = head_dim,
                   .groups = 3,
                   .gated = gated,
                   .top_k = 2};
      std::vector<Tensor> x = inputs_of(c);
      const GateOptions gate = gate_of(c, x[3]);
      const Tensor rounded = decoded(c, x, gate, CacheDtype::float16);
      const Tensor exact = decoded(c, x, gate);
      EXPECT_LT(relative_difference(rounded, exact), 2e-3) << c.str();
      EXPECT_FALSE(same_bits(rounded, exact)) << c.str();
      for (const std::size_t i : {1, 2}) x[i] = through_float16(x[i]);
      EXPECT_TRUE(same_bits(rounded, decoded(c, x, gate))) << c.str();
    }
}

TEST(LayerCache, OfFloat16TakesHalfTheMemory) {
  const Case c{.seq_len = 130, .head_dim = 64, .gated = false, .top_k = 1};
  const std::vector<Tensor> x = inputs_of(c);
  std::vector<std::size_t> bytes;
  for (const CacheDtype dtype : {CacheDtype::float32, CacheDtype::float16})
    decode(
        c, x, gate_of(c, x[3]),
        [&](Index t, LayerCache& cache) {
          if (t + 1 == c.seq_len) bytes.push_back(cache.bytes());
        },
        dtype);
  EXPECT_EQ(bytes[0] / sizeof(Real), bytes[1] / sizeof(std::uint16_t));
}

/// The rows' numbers as CacheDtype::q8_0 has them, or as queries and keys have them that meet.
Tensor through_q8_0(const Tensor& x, bool scale_of_16_bits) {
  std::vector<Real> rounded(x.span().begin(), x.span().end());
  const Index n = x.dim(3);
  for (Index row = 0; row < x.size() / n; ++row)
    for (Index first = row * n; first < (row + 1) * n; first += 32) {
      const Index end = std::min(first + 32, (row + 1) * n);
      Real largest = 0;
      for (Index i = first; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
      const auto scale = static_cast<float>(largest / 127);
      Tensor kept = Tensor::from({1}, std::vector<Real>{scale});
      if (scale_of_16_bits) kept = through_float16(kept);
      for (Index i = first; i < end; ++i)
        rounded[i] = kept[0] * std::nearbyint(x[i] / static_cast<Real>(scale));
    }
  return Tensor::from(x.shape(), rounded);
}

TEST(LayerCache, OfQ8IsThatOfTheRoundedKeysValuesAndQueries) {
  for (const Index head_dim : {12, 40, 64, 96})  // in whole blocks or not
    for (const bool gated : {false, true})
      for (const Index sliding_window : {0, 70}) {
        const Case c{.seq_len = 330,
                     .heads = 4,
                     .kv_heads = 2,
                     .head_dim = head_dim,
                     .groups = 3,
                     .gated = gated,
                     .top_k = 2,
                     .sliding_window = sliding_window};
        std::vector<Tensor> x = inputs_of(c);
        const GateOptions gate = gate_of(c, x[3]);
        const Tensor rounded = decoded(c, x, gate, CacheDtype::q8_0);
        const double from_exact = relative_difference(rounded, decoded(c, x, gate));
        EXPECT_LT(from_exact, 1e-1) << c.str();
        EXPECT_GT(from_exact, 1e-4) << c.str();
        for (const std::size_t i : {0, 1, 2}) x[i] = through_q8_0(x[i], i == 2);
        // Queries are scaled before they are rounded, so that a tie may go the other way.
        EXPECT_LT(relative_difference(rounded, decoded(c, x, gate)), 1e-4) << c.str();
      }
}

TEST(LayerCache, OfQ8TakesLittleMoreThanAQuarterOfTheMemory) {
  const Case c{.seq_len = 640, .head_dim = 64, .gated = false, .top_k = 1};
  const std::vector<Tensor> x = inputs_of(c);
  std::vector<double> bytes;
  for (const CacheDtype dtype : {CacheDtype::float32, CacheDtype::q8_0}) {
    GateOptions one_bucket = gate_of(c, x[3]);
    one_bucket.membership.assign(640, 1);
    decode(
        c, x, one_bucket,
        [&](Index t, LayerCache& cache) {
          if (t + 1 == c.seq_len) bytes.push_back(static_cast<double>(cache.bytes()));
        },
        dtype);
  }
  EXPECT_NEAR(bytes[1] / (bytes[0] / sizeof(Real)), (36 + 34) / 64.0, 0.03);
}

TEST(LayerCache, SameBitsForAnyThreads) {
  const Case c{.seq_len = 1200, .heads = 8, .head_dim = 64, .groups = 4, .top_k = 2};
  const std::vector<Tensor> x = inputs_of(c);
  for (const CacheDtype dtype : {CacheDtype::float32, CacheDtype::q8_0})
    expect_same_bits_for_any_threads(
        "cache", [&] { return std::vector<Tensor>{decoded(c, x, gate_of(c, x[3]), dtype)}; });
}

TEST(LayerCache, AllocatesForBlocksAlone) {
  const Case c{.seq_len = 64, .groups = 2, .gated = false, .top_k = 1};
  const std::vector<Tensor> x = inputs_of(c);
  GateOptions gate = gate_of(c, x[3]);
  gate.membership.assign(64, 1);
  Tensor out({c.heads, c.head_dim});
  std::vector<std::size_t> bytes;
  decode(c, x, gate, [&](Index, LayerCache& cache) {
    const std::size_t live = pool_stats().live;
    cache.attend(x[0].data(), out.data());
    EXPECT_EQ(pool_stats().live, live);
    bytes.push_back(cache.bytes());
  });
  std::size_t growths = 0;
  for (std::size_t t = 1; t < bytes.size(); ++t) growths += bytes[t] != bytes[t - 1];
  EXPECT_EQ(growths, 2u);  // blocks of 16, 16 and 32
}

TEST(LayerCache, WhatIsTakenBackLeavesNoTrace) {
  for (const Index sliding_window : {0, 90})
    for (const Index sinks : {0, 3})
      for (const int top_k : {1, 2, 3})  // of one group: dense
        for (const CacheDtype dtype :
             {CacheDtype::float32, CacheDtype::float16, CacheDtype::q8_0}) {
          Case c{.seq_len = 500,
                 .heads = 4,
                 .groups = top_k == 3 ? 1 : 4,
                 .gated = top_k == 2,
                 .top_k = std::min(top_k, 2),
                 .local_window = 20,
                 .sliding_window = sliding_window,
                 .sinks = sinks};
          if (c.groups == 1) c.top_k = 1;
          const std::vector<Tensor> x = inputs_of(c);
          const GateOptions gate = gate_of(c, x[3]);
          GateOptions without_sets = gate;
          without_sets.membership.clear();
          const auto make = [&] {
            return LayerCache({c.heads, c.kv_heads, c.head_dim, c.groups}, options_of(c),
                              without_sets, dtype);
          };
          LayerCache cache = make(), fresh = make();
          const auto append = [&](LayerCache& to, Index t) {
            const Index key = t * c.kv_heads * c.head_dim;
            to.append(x[1].data() + key, x[2].data() + key, x[3].data() + t * c.groups,
                      gate.membership[t]);
          };
          Rng rng(7);
          while (cache.size() < 450) {
            const Index right = cache.size();
            for (Index t = right; t < right + 40; ++t) append(cache, t);
            for (Index t = 0; t < 30; ++t) append(cache, 470 + t);  // others' tokens
            cache.truncate(right + 1 + static_cast<Index>(rng.below(40)));
          }
          for (Index t = 0; t < cache.size(); ++t) append(fresh, t);
          EXPECT_EQ(cache.bytes(), fresh.bytes()) << c.str();
          std::vector<Real> out(c.heads * c.head_dim), expected(out.size());
          for (Index t = cache.size(); t < c.seq_len; ++t) {
            for (LayerCache* const of : {&cache, &fresh}) {
              append(*of, t);
              of->attend(x[0].data() + t * c.heads * c.head_dim,
                         of == &cache ? out.data() : expected.data());
            }
            ASSERT_EQ(out, expected) << c.str();
            ASSERT_EQ(cache.keys_read(), fresh.keys_read());
          }
          EXPECT_THROW(cache.truncate(c.seq_len + 1), std::invalid_argument);
        }
}

TEST(LayerCache, RejectsHeadsThatDoNotFitAndAttendingToNothing) {
  EXPECT_THROW(LayerCache({.heads = 3, .kv_heads = 2}, {}, {}), std::invalid_argument);
  LayerCache cache({}, {}, {});
  Real q = 0, out = 0;
  EXPECT_THROW(cache.attend(&q, &out), std::invalid_argument);
}

}  // namespace
}  // namespace focus
