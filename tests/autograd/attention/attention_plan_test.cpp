#include "autograd/attention/attention_plan.h"

#include <gtest/gtest.h>

#include <tuple>

namespace focus {
namespace {

// The pictures at the top of attention_plan.h.

TEST(AttentionPlan, SegmentsAreThoseOfThePicture) {
  const AttentionPlan plan = causal_plan(1, 512, 256);
  std::vector<std::pair<Index, Index>> segments(8);
  for (const auto& tile : plan.query_tiles) {
    ASSERT_EQ(tile.end_segment - tile.first_segment, 1);
    const auto& segment = plan.segments[static_cast<std::size_t>(tile.first_segment)];
    segments[static_cast<std::size_t>(tile.begin / 64)] = {segment.begin, segment.end};
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

}  // namespace
}  // namespace focus
