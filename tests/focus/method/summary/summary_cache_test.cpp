#include "focus/method/summary/summary_cache.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "autograd/gemm/block_formats.h"
#include "tests/support/summary_case.h"

namespace focus {
namespace {

Tensor centroids_of(const SummaryCase& c) {
  return randn({c.kv_heads, c.groups, c.head_dim}, c.seed + 9, 0.5);
}

SummaryCache cache_of(const SummaryCase& c, const SummaryInputs& in,
                      CacheDtype dtype = CacheDtype::float32, Index undo = 0) {
  return SummaryCache(
      {.heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .groups = c.groups},
      in.options, in.summary, dtype, undo, centroids_of(c));
}

/// Tokens [t, t + count).
void append(SummaryCache& cache, const SummaryCase& c, const SummaryInputs& in, Index t,
            Index count = 1) {
  const Index heads = in.group_ids.heads;
  cache.append(in.k.data() + t * c.kv_heads * c.head_dim, in.v.data() + t * c.kv_heads * c.head_dim,
               std::span(in.group_ids.ids).subspan(t * heads, count * heads), count);
}

/// What the tokens from `first` on receive and how many keys and columns they read, token by token;
/// those before, and that one, come at once.
struct Decoded {
  Tensor out;
  Index pairs_read = 0;
};
Decoded decode(const SummaryCase& c, const SummaryInputs& in, Index first = 0,
               CacheDtype dtype = CacheDtype::float32) {
  SummaryCache cache = cache_of(c, in, dtype);
  Decoded all{.out = Tensor({1, c.seq_len, c.heads, c.head_dim})};
  for (Index t = first; t < c.seq_len; ++t) {
    if (t == first)
      append(cache, c, in, 0, first + 1);
    else
      append(cache, c, in, t);
    const Index at = t * c.heads * c.head_dim;
    cache.attend(in.q.data() + at, in.summary_bias, all.out.data() + at);
    all.pairs_read += cache.pairs_read();
  }
  return all;
}

/// The whole pass gives a token the same whether or not others follow (summary_promises_test.cpp):
/// its rows are the last rows over the tokens so far.
void expect_whole_pass(const SummaryCase& c) {
  const SummaryInputs in = summary_inputs_of(c);
  SummaryReport report;
  const Tensor whole = summary_attention(in.q, in.k, in.v, in.group_ids, in.summary_bias,
                                         in.options, in.summary, &report)
                           .value();
  const Index row = c.heads * c.head_dim;
  double largest = 0;
  for (const Real x : whole.span()) largest = std::max(largest, std::abs(static_cast<double>(x)));
  for (const Index first : {Index{0}, c.seq_len / 3, c.seq_len - 2}) {
    const Decoded decoded = decode(c, in, first);
    for (Index i = first * row; i < whole.size(); ++i)
      ASSERT_NEAR(static_cast<double>(decoded.out[i]), static_cast<double>(whole[i]),
                  kSummaryTolerance * largest)
          << "position " << i / row << " behind " << first << " of " << c.str();
    if (first > 0) continue;
    EXPECT_EQ(decoded.pairs_read, report.pairs.at(0)) << c.str();
  }
}

TEST(SummaryCache, GivesTheWholePassesRowsOverAwkwardShapes) {
  std::uint64_t seed = 1;
  for (const Index block : {1, 8, 32})
    for (const Index sinks : {0, 3})
      for (const Index m : {0, 1, 2, 5})
        for (const UnselectedGroups rest : {UnselectedGroups::summary, UnselectedGroups::drop})
          expect_whole_pass({.seq_len = 131,
                             .num_selected_groups = m,
                             .block = block,
                             .sinks = sinks,
                             .unselected_groups = rest,
                             .seed = seed += 10});
}

TEST(SummaryCache, ManyGroups) {
  expect_whole_pass(
      {.seq_len = 300, .heads = 4, .groups = 256, .num_selected_groups = 9, .block = 8});
}

TEST(SummaryCache, SharedKeyHeadsSoftCapsAndSlidingWindows) {
  const SummaryCase plain{.seq_len = 150, .heads = 4, .num_selected_groups = 2, .block = 8};
  SummaryCase gqa = plain, mqa = plain, capped = plain, sliding = plain, all = plain;
  gqa.kv_heads = 2;
  mqa.kv_heads = 1;
  mqa.head_dim = 13;
  capped.softcap = 0.8;
  sliding.sliding_window = 40;
  sliding.sinks = 3;
  all.kv_heads = 2;
  all.softcap = 1.5;
  all.sliding_window = 61;
  for (SummaryCase c : {gqa, mqa, capped, sliding, all})
    for (const Index m : {0, 2})
      for (const Index block : {1, 8, 32}) {
        c.num_selected_groups = m;
        c.block = block;
        expect_whole_pass(c);
        c.width = 1;
        expect_whole_pass(c);
        c.selection_per = SelectionPer::query_head;
        expect_whole_pass(c);
        c.summary_width = true;
        expect_whole_pass(c);
        c.selected_by_head = {m, 1, 3, m + 1};
        expect_whole_pass(c);
        c.width = 0;
        expect_whole_pass(c);
        c.summary_width = false;
      }
}

TEST(SummaryCache, GroupsThatAreEmptyOrAllAndWindowsBeyondTheEnd) {
  for (const Spread spread : {Spread::one_group, Spread::empty_group})
    expect_whole_pass({.seq_len = 140, .num_selected_groups = 2, .block = 8, .spread = spread});
  expect_whole_pass({.seq_len = 40, .window = 200});
  expect_whole_pass({.seq_len = 20, .window = 0, .block = 1, .sinks = 30});
  expect_whole_pass({.seq_len = 90, .window = 0, .block = 1, .sinks = 0});
}

TEST(SummaryCache, OwnGroupAndClassesForAllHeads) {
  expect_whole_pass(
      {.seq_len = 120, .num_selected_groups = 1, .block = 8, .selection = GroupSelection::own});
  expect_whole_pass(
      {.seq_len = 120, .heads = 4, .num_selected_groups = 2, .block = 8, .one_for_all = true});
}

TEST(SummaryCache, LongSlidingWindowsSumAnew) {
  expect_whole_pass(
      {.seq_len = 1200, .groups = 3, .num_selected_groups = 1, .block = 8, .sliding_window = 200});
}

TEST(SummaryCache, ListsOfFloat16AreThoseOfTheRoundedKeysAndValues) {
  // A window of 0: local tokens, which are kept whole, are those of a query's own block.
  const SummaryCase plain{.seq_len = 150,
                          .heads = 4,
                          .kv_heads = 2,
                          .num_selected_groups = 2,
                          .window = 0,
                          .block = 8,
                          .sinks = 0,
                          .width = 1};
  SummaryCase sliding = plain;
  sliding.sliding_window = 40;
  for (const SummaryCase& c : {plain, sliding}) {
    SummaryInputs in = summary_inputs_of(c);
    const Tensor exact = decode(c, in).out, rounded = decode(c, in, 0, CacheDtype::float16).out;
    EXPECT_LT(relative_difference(rounded, exact), 2e-3) << c.str();
    EXPECT_FALSE(same_bits(rounded, exact)) << c.str();
    in.k = through_float16(in.k);
    in.v = through_float16(in.v);
    EXPECT_TRUE(same_bits(decode(c, in, 0, CacheDtype::float16).out, decode(c, in).out)) << c.str();
  }
}

TEST(SummaryCache, ListsOfQ8AreNearThoseOfFloat32) {
  for (const Index head_dim : {20, 64})
    for (const Index sliding_window : {0, 60}) {
      const SummaryCase c{.seq_len = 250,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = head_dim,
                          .num_selected_groups = 5,
                          .window = 0,
                          .block = 8,
                          .sliding_window = sliding_window};
      const SummaryInputs in = summary_inputs_of(c);
      const double far =
          relative_difference(decode(c, in, 0, CacheDtype::q8_0).out, decode(c, in).out);
      EXPECT_LT(far, 2e-2) << c.str();
      EXPECT_GT(far, 1e-4) << c.str();
      expect_same_bits_for_any_threads(
          "cache", [&] { return std::vector{decode(c, in, 0, CacheDtype::q8_0).out}; });
    }
}

TEST(SummaryCache, ListsOfQ4AreThoseOfCentroidsAndRoundedDifferences) {
  // Rows of a head's numbers, through blocks of a format.
  const auto rounded = [](std::span<const Real> row, NumberFormat format) {
    std::vector<Real> wide(32 * ((row.size() + 31) / 32));
    std::ranges::copy(row, wide.begin());
    std::vector<std::byte> blocks(bytes_of(format, std::ssize(wide)));
    round_to_blocks(format, wide.data(), std::ssize(wide), blocks.data());
    widen_blocks(format, blocks.data(), 0, std::ssize(wide), wide.data());
    return wide;
  };
  for (const Index head_dim : {20, 64})
    for (const Index sliding_window : {0, 60}) {
      const SummaryCase c{.seq_len = 250,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = head_dim,
                          .num_selected_groups = 5,  // all
                          .window = 0,
                          .block = 1,
                          .sinks = 0,
                          .sliding_window = sliding_window};
      SummaryInputs in = summary_inputs_of(c);
      const Tensor exact = decode(c, in).out, q4 = decode(c, in, 0, CacheDtype::q4).out;
      expect_same_bits_for_any_threads(
          "cache", [&] { return std::vector{decode(c, in, 0, CacheDtype::q4).out}; });
      const Tensor centroids = centroids_of(c);
      for (Index row = 0; row < c.seq_len * c.kv_heads; ++row) {
        const auto group = in.group_ids.ids[row];
        const Real* of = centroids.data() + (row % c.kv_heads * c.groups + group) * head_dim;
        const auto key = in.k.span().subspan(row * head_dim, head_dim);
        const auto value = in.v.span().subspan(row * head_dim, head_dim);
        std::transform(key.begin(), key.end(), of, key.begin(), std::minus());
        const std::vector<Real> rest = rounded(key, NumberFormat::q4_0);
        std::transform(of, of + head_dim, rest.begin(), key.begin(), std::plus());
        std::copy_n(rounded(value, NumberFormat::q8_0).begin(), head_dim, value.begin());
      }
      // Keys and values that are rounded already stay as they are: what is left is the rounding of
      // the queries.
      const Tensor twin = decode(c, in).out;
      EXPECT_LT(relative_difference(decode(c, in, 0, CacheDtype::q4).out, twin), 1e-2) << c.str();
      EXPECT_GT(relative_difference(q4, exact), 3e-2) << c.str();
      EXPECT_LT(relative_difference(q4, exact), 0.2) << c.str();
    }
}

TEST(SummaryCache, WithoutGroupsToReadItDoesNotGrow) {
  SummaryCase c{
      .seq_len = 3000, .groups = 4, .num_selected_groups = 0, .window = 20, .block = 8, .sinks = 3};
  const auto bytes_at = [](const SummaryCase& of, std::vector<Index> lengths) {
    const SummaryInputs in = summary_inputs_of(of);
    SummaryCache cache = cache_of(of, in);
    std::vector<std::size_t> bytes;
    for (Index t = 0; t < of.seq_len; ++t) {
      append(cache, of, in, t);
      if (std::ranges::find(lengths, t + 1) != lengths.end()) bytes.push_back(cache.bytes());
    }
    EXPECT_EQ(cache.size(), of.seq_len);
    return bytes;
  };
  // Room for local tokens is reused when at least as many, and 64, have left.
  const Index held = c.window + c.block + c.sinks;
  const auto means = bytes_at(c, {held, 2 * held + 64 + c.block, 3000});
  EXPECT_EQ(means[1], means[2]);
  EXPECT_LT(means[2], 8 * means[0]);
  c.num_selected_groups = 1;
  const auto lists = bytes_at(c, {1000, 3000});
  EXPECT_GT(lists[1], 2 * lists[0]);
}

TEST(SummaryCache, AnyNumberOfThreadsGivesTheSameBits) {
  const SummaryCase c{.seq_len = 200, .heads = 6, .kv_heads = 3, .num_selected_groups = 2};
  const SummaryInputs in = summary_inputs_of(c);
  expect_same_bits_for_any_threads("cache", [&] { return std::vector{decode(c, in).out}; });
}

/// Tokens come in pieces of any size, others behind them that are taken back, and some of their
/// own: the last ones receive what they do from a cache that they entered at once or one by one.
void expect_taken_back(const SummaryCase& c, CacheDtype dtype, Index undo, std::uint64_t seed) {
  const SummaryInputs in = summary_inputs_of(c);
  SummaryCase other = c;
  other.seed = c.seed + 1;
  const SummaryInputs wrong = summary_inputs_of(other);
  const Index kept = c.seq_len - 40, row = c.heads * c.head_dim;
  SummaryCache cache = cache_of(c, in, dtype, undo);
  Rng rng(seed);
  const auto any = [&](Index most) { return static_cast<Index>(rng.below(most + 1)); };
  Index times = 0, longest = 0;
  for (Index i = 0; i < 60 || cache.size() < kept; ++i) {
    if (const Index count = std::min(any(i % 9 == 0 ? 150 : 12), kept - cache.size()); count > 0)
      append(cache, c, in, cache.size(), count);
    const Index right = cache.size(), more = any(std::min<Index>(30, c.seq_len - right));
    if (more > 0) append(cache, c, wrong, right, more);
    const Index least = std::max(cache.least_size(), right - any(8));
    longest = std::max(longest, cache.size());
    ASSERT_LE(cache.least_size(), std::max<Index>(0, longest - undo));
    ASSERT_LE(least, right) << c.str();
    times += cache.size() > least;
    cache.truncate(least);
    ASSERT_EQ(cache.size(), least);
  }
  EXPECT_GT(times, 40);
  SummaryCache at_once = cache_of(c, in, dtype), one_by_one = cache_of(c, in, dtype);
  append(at_once, c, in, 0, cache.size());
  for (Index t = 0; t < cache.size(); ++t) append(one_by_one, c, in, t);
  std::vector<Real> out(row), expected(row);
  for (Index t = cache.size(); t < c.seq_len; ++t) {
    append(cache, c, in, t);
    cache.attend(in.q.data() + t * row, in.summary_bias, out.data());
    for (SummaryCache* const fresh : {&at_once, &one_by_one}) {
      append(*fresh, c, in, t);
      fresh->attend(in.q.data() + t * row, in.summary_bias, expected.data());
      ASSERT_EQ(out, expected) << "position " << t << " of " << c.str();
      ASSERT_EQ(cache.pairs_read(), fresh->pairs_read());
    }
  }
}

TEST(SummaryCache, WhatIsTakenBackLeavesNoTrace) {
  const SummaryCase plain{.seq_len = 700, .heads = 4, .kv_heads = 2, .num_selected_groups = 2};
  SummaryCase sums = plain, sliding = plain, narrow = plain, wide = plain;
  sums.num_selected_groups = 0;
  sliding.sliding_window = 150;
  sliding.groups = 3;  // so few that they are summed again
  narrow.sliding_window = 5;
  wide.window = 100;
  std::uint64_t seed = 1;
  for (SummaryCase c : {plain, sums, sliding, narrow, wide})
    for (const Index block : {1, 8, 32})
      for (const Index sinks : {0, 3})
        for (const CacheDtype dtype :
             {CacheDtype::float32, CacheDtype::float16, CacheDtype::q8_0, CacheDtype::q4}) {
          c.block = block;
          c.sinks = sinks;
          c.width = seed % 2 == 0 ? 1 : 0;
          expect_taken_back(c, dtype, 64, ++seed);
        }
}

TEST(SummaryCache, TakesBackNoMoreThanItCan) {
  const SummaryCase c{.seq_len = 700, .num_selected_groups = 2, .window = 20, .block = 8};
  const SummaryInputs in = summary_inputs_of(c);
  SummaryCache none = cache_of(c, in), some = cache_of(c, in, CacheDtype::float32, 64);
  for (SummaryCache* const cache : {&none, &some}) append(*cache, c, in, 0, 700);
  EXPECT_EQ(none.least_size(), 697);  // those behind the last block's first
  EXPECT_EQ(some.least_size(), 576);
  for (SummaryCache* const cache : {&none, &some}) {
    EXPECT_THROW(cache->truncate(cache->least_size() - 1), std::invalid_argument);
    EXPECT_THROW(cache->truncate(701), std::invalid_argument);
    cache->truncate(cache->least_size());
  }
}

TEST(SummaryCache, RefusesWhatDoesNotFit) {
  const SummaryCase c;
  const SummaryInputs in = summary_inputs_of(c);
  SummaryCache cache = cache_of(c, in);
  std::vector<Real> out(c.heads * c.head_dim);
  EXPECT_THROW(cache.attend(in.q.data(), in.summary_bias, out.data()), std::invalid_argument);
  SummaryCase uneven;
  uneven.heads = 3;
  EXPECT_THROW(cache_of(uneven, in), std::invalid_argument);
}

}  // namespace
}  // namespace focus
