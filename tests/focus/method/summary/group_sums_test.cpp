#include "focus/method/summary/group_sums.h"

#include <gtest/gtest.h>

#include "tests/support/compare.h"

namespace focus {
namespace {

struct SumsCase {
  SummarySettings settings;
  Index seq_len = 700, id_heads = 2;
};

/// Whether a query reads a key by its group, from the definition.
bool is_distant(const SummarySettings& settings, Index i, Index j) {
  if (j > i || j < settings.sinks) return false;
  if (settings.sliding_window > 0 && i - j >= settings.sliding_window) return false;
  return j < i / settings.block * settings.block - settings.local_window;
}

/// Goes through the queries of every run and compares with plain sums.
void expect_plain_sums(const SumsCase& of) {
  constexpr Index kBatch = 2, kHeads = 2, kDim = 5, kGroups = 4;
  const Tensor k = randn({kBatch, of.seq_len, kHeads, kDim}, 1),
               v = randn({kBatch, of.seq_len, kHeads, kDim}, 2);
  Rng rng(3);
  std::vector<std::uint8_t> group_ids(kBatch * of.seq_len * of.id_heads);
  for (auto& c : group_ids) c = static_cast<std::uint8_t>(rng.below(kGroups - 1));  // one is empty
  const GroupSums sums(k, v, group_ids, of.id_heads, kGroups, of.settings);
  for (Index b = 0; b < kBatch; ++b)
    for (Index h = 0; h < kHeads; ++h) {
      GroupSums::Walker walker(sums, b, h);
      for (Index r = sums.runs() - 1; r >= 0; --r) {
        walker.start(r);
        for (Index i = r * GroupSums::kRun; i < std::min(of.seq_len, (r + 1) * GroupSums::kRun);
             ++i) {
          const Index first = walker.tokens().first, last = walker.tokens().last;
          const bool changed = walker.go_to(i);
          EXPECT_EQ(changed, first != walker.tokens().first || last != walker.tokens().last);
          std::vector<double> expected(kGroups * 2 * kDim, 0.0);
          std::vector<Index> counts(kGroups, 0);
          for (Index j = 0; j < of.seq_len; ++j) {
            const bool distant = is_distant(of.settings, i, j);
            ASSERT_EQ(distant, j >= walker.tokens().first && j < walker.tokens().last)
                << "query " << i << " key " << j;
            if (!distant) continue;
            const auto group = static_cast<std::size_t>(sums.group_of(b, h, j));
            ++counts[group];
            for (Index d = 0; d < kDim; ++d) {
              const Index from = ((b * of.seq_len + j) * kHeads + h) * kDim + d;
              const std::size_t to = group * 2 * kDim + static_cast<std::size_t>(d);
              expected[to] += static_cast<double>(k[from]);
              expected[to + kDim] += static_cast<double>(v[from]);
            }
          }
          for (Index c = 0; c < kGroups; ++c) {
            ASSERT_EQ(walker.count(c), counts[c]) << "group " << c << " query " << i;
            for (Index d = 0; d < 2 * kDim; ++d)
              ASSERT_NEAR(static_cast<double>(walker.sum(c)[d]), expected[c * 2 * kDim + d],
                          tolerance(1e-4, 1e-11))
                  << "group " << c << " query " << i;
          }
        }
      }
    }
}

TEST(GroupSums, AreThePlainSumsForEveryQuery) {
  for (const Index sliding_window : {0, 13, 300, 600, 5000})
    for (const Index block : {1, 32, 300})
      expect_plain_sums({.settings = {.local_window = 33,
                                      .block = block,
                                      .sinks = block % 7,
                                      .sliding_window = sliding_window},
                         .id_heads = block == 32 ? 1 : 2});
}

TEST(SummarySettings, TakeEveryTokenThatIsSeenOnce) {
  for (const Index sliding_window : {0, 1, 7, 30, 200})
    for (const Index window : {0, 1, 10, 50, 500})
      for (const Index block : {1, 3, 16, 100})
        for (const Index sinks : {0, 1, 4, 60}) {
          const SummarySettings settings{.local_window = window,
                                         .block = block,
                                         .sinks = sinks,
                                         .sliding_window = sliding_window};
          for (Index i = 0; i < 130; ++i)
            for (Index j = 0; j < 130; ++j) {
              const bool seen = j <= i && (sliding_window == 0 || i - j < sliding_window);
              const bool distant = j >= settings.distant_begin(i) && j < settings.distant_end(i);
              const bool local = j >= settings.local_begin(i) && j <= i;
              const bool sink = j >= settings.first_sink(i) && j < sinks;
              ASSERT_EQ(distant, is_distant(settings, i, j)) << i << " " << j;
              ASSERT_EQ(distant + local + sink, seen)
                  << "query " << i << " key " << j << " w " << window << " block " << block
                  << " sinks " << sinks << " sliding " << sliding_window;
            }
        }
}

}  // namespace
}  // namespace focus
