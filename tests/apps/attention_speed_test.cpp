#include "apps/attention_speed.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "apps/report/html_chart.h"
#include "apps/report/svg_file.h"
#include "apps/terminal/machine.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

constexpr auto kSilent = [](std::string_view) {};

AttentionSpeedOptions tiny() {
  AttentionSpeedOptions options;
  options.num_groups = 4;
  options.local_window = 8;
  options.heads = 2;
  options.head_dim = 8;
  options.repeats = 1;
  return options;
}

TEST(AttentionSpeed, RandomSetsHoldTopKGroups) {
  for (const int top_k : {1, 3, 5})
    for (const std::uint64_t set : random_sets(200, 5, top_k, 7)) {
      EXPECT_EQ(std::popcount(set), top_k);
      EXPECT_LT(set, 32u);
    }
}

TEST(AttentionSpeed, IdealIsThatOfTheSetsThatWereRun) {
  AttentionSpeedOptions options = tiny();
  options.routed = false;
  options.top_k = 2;
  options.seed = 5;
  const AttentionSpeed speed = measure_attention(options, 150, kSilent);
  const auto sets = random_sets(150, 4, 2, 5);
  std::int64_t attended = 0;
  for (std::size_t i = 0; i < sets.size(); ++i)
    for (std::size_t j = 0; j <= i; ++j) attended += i - j <= 8 || (sets[i] & sets[j]) != 0;
  EXPECT_EQ(speed.pairs.all, 150 * 151 / 2);
  EXPECT_EQ(speed.pairs.attended, attended);
  EXPECT_DOUBLE_EQ(speed.ideal_speedup(),
                   static_cast<double>(150 * 151 / 2) / static_cast<double>(attended));
  EXPECT_TRUE(speed.routing.seconds.empty());
  EXPECT_TRUE(std::isnan(speed.speedup_with_routing()));
  EXPECT_GT(speed.speedup(), 0);
  EXPECT_EQ(speed.flops_per_pair, 4 * 2 * 8);
}

TEST(AttentionSpeed, RoutedGroupsAreNearlyEqual) {
  const AttentionSpeed speed = measure_attention(tiny(), 2000, kSilent);
  EXPECT_GE(speed.largest_group, 0.25);
  EXPECT_LT(speed.largest_group, 0.35);
  EXPECT_EQ(speed.routing.seconds.size(), speed.focus.seconds.size());
}

TEST(AttentionSpeed, PhasesAreThoseOfTheFastestRunAndNoLonger) {
  AttentionSpeedOptions options = tiny();
  options.backward = options.soft = true;
  options.hard_gate = HardGate::keep;
  const AttentionSpeed speed = measure_attention(options, 300, kSilent);
  EXPECT_EQ(speed.flops_per_pair, 4 * 2 * 8 * 3.5);
  double sum = 0;
  std::vector<std::string> names;
  for (const Profile::Entry& phase : speed.focus.phases) {
    sum += phase.seconds;
    names.push_back(phase.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"sort", "local band", "merge", "grouped attention",
                                             "sparse_attention", "sparse_attention backward"}));
  EXPECT_GT(sum, 0);
  EXPECT_LE(sum, speed.focus.fastest());
  EXPECT_LE(speed.focus.fastest(), speed.focus.median());
  EXPECT_TRUE(speed.dense && speed.soft);
  EXPECT_GT(speed.dense->peak_bytes, 300u * 2 * 8 * sizeof(Real));  // the output at least
}

TEST(AttentionSpeed, LongerThanDenseUpToIsNotRun) {
  AttentionSpeedOptions options = tiny();
  options.soft = true;
  options.dense_up_to = 64;
  EXPECT_TRUE(measure_attention(options, 64, kSilent).dense);
  const AttentionSpeed longer = measure_attention(options, 65, kSilent);
  EXPECT_FALSE(longer.dense || longer.soft);
  EXPECT_TRUE(std::isnan(longer.speedup()));
}

TEST(Machine, FiguresOfThisOne) {
  EXPECT_GT(peak_resident_bytes(), 1u << 20);
  EXPECT_GT(measured_peak_gflops(), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  for (int i = 0; i < simd::usable_kernels().count; ++i) {
    const simd::Kernels& kernels = *simd::usable_kernels().items[i];
    // Each chain goes to 1, so all lanes of all chains sum to their number.
    EXPECT_NEAR(kernels.multiply_add_peak(200'000),
                static_cast<double>(simd::kPeakChains * kernels.vector), 0.1)
        << kernels.name;
  }
}

TEST(SvgFile, IsAFileOfItsOwn) {
  const LineChart chart{.title = "A < B",
                        .x_label = "tokens",
                        .y_label = "times",
                        .series = {{.name = "one & two", .points = {{100, 1}, {10'000, 100}}}},
                        .log_y = true,
                        .log_x = true};
  const std::string svg = svg_file(chart);
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  for (const char* outside : {"<script", "@import", "url(", "href", "nan", "inf"})
    EXPECT_EQ(svg.find(outside), std::string::npos) << outside;
  for (const char* text : {">A &lt; B</text>", ">one &amp; two</text>", "prefers-color-scheme"})
    EXPECT_NE(svg.find(text), std::string::npos) << text;
}

TEST(SvgFile, LogarithmicXLeavesOutWhatIsNotPositiveAndSpacesByRatio) {
  const auto path = [](std::vector<std::pair<double, double>> points) {
    const std::string svg =
        draw_line_chart({.series = {{.name = "s", .points = std::move(points)}}, .log_x = true})
            .svg;
    const std::size_t start = svg.find(" d=\"M") + 5;
    std::vector<double> xs;
    for (std::size_t at = start; at < svg.find('"', start);) {
      xs.push_back(std::stod(svg.substr(at)));
      at = std::min(svg.find('L', at), svg.find('"', start)) + 1;
    }
    return xs;
  };
  const std::vector<double> xs = path({{-1, 1}, {0, 1}, {10, 1}, {100, 2}, {1000, 3}});
  ASSERT_EQ(xs.size(), 3u);
  EXPECT_NEAR(xs[1] - xs[0], xs[2] - xs[1], 0.2);
}

}  // namespace
}  // namespace focus
