#include "focus/evaluation/report/html_report.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "tests/support/html.h"

namespace focus {
namespace {

using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// The places of the last line's points.
std::vector<std::pair<double, double>> drawn(const std::string& svg) {
  std::vector<std::pair<double, double>> places;
  const std::size_t start = svg.find(" d=\"M", svg.rfind("<path class=\"line s0")) + 5;
  std::istringstream path(svg.substr(start, svg.find('"', start) - start));
  double x = 0, y = 0;
  for (char step = 'L'; path >> x >> y; path >> step) places.emplace_back(x, y);
  return places;
}

HtmlReport full_report() {
  HtmlReport report("A & B");
  report.heading("Results <1>");
  report.paragraph("It's \"fine\" & <b>bold</b>");
  report.table({.caption = "t",
                .header = {"model", "loss", "note"},
                .rows = {{"dense", "3.5", "3 layers"}, {"<focus>", "-", ""}}});
  report.table({.caption = "shares",
                .header = {"group", "a"},
                .rows = {{"<0>", "25.0"}, {"1", "150.0"}},
                .whole = 100});
  Series noisy{.name = "noisy"};
  for (int i = 0; i < 5000; ++i) noisy.points.push_back({1.0 * i, 3 + std::sin(i)});
  report.figure(
      line_chart({.title = "loss",
                  .x_label = "step",
                  .y_label = "nats",
                  .series = {noisy, {.name = "short", .points = {{0, 1}, {9, kNan}, {20, 2}}}},
                  .references = {{"dense", 2.5}}}));
  report.figure(
      points_chart({.title = "pairs",
                    .x_label = "x",
                    .y_label = "y",
                    .series = {{.name = "s", .points = {{1, 2, "one"}, {kInf, 3, "gone"}}}}}));
  return report;
}

TEST(HtmlReport, IsOneWellFormedPageWithoutAnythingFromOutside) {
  const std::string html = full_report().html();
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>"));
  EXPECT_LT(html.size(), 100'000u);
  expect_well_formed(html);
  for (const char* part :
       {"prefers-color-scheme: dark", "@media print",
        // Text is escaped.
        "<title>A &amp; B</title>", "&lt;b&gt;bold", "<tr><td>&lt;focus&gt;</td>",
        // Columns of numbers are set to the right.
        "<td class=\"number\">3.5</td>", "<td>dense</td>", "<td>3 layers</td>",
        // Shares are the darker the larger they are.
        "<td>&lt;0&gt;</td><td style=\"--h:0.25\">25.0</td>", "<td style=\"--h:1.00\">150.0</td>",
        ">one</text>"})
    EXPECT_THAT(html, HasSubstr(part));
  // Nothing is from outside; charts leave out what is not finite.
  for (const char* part :
       {"<script", "http:", "https:", "@import", "url(", "src=", "<focus>", "nan", "inf", "gone"})
    EXPECT_THAT(html, Not(HasSubstr(part)));
  EXPECT_EQ(escape_html("<a href='x'>\"&\""), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;&quot;");
  EXPECT_THROW(HtmlReport("x").table({.header = {"a"}, .rows = {{"1", "2"}}}),
               std::invalid_argument);
}

TEST(HtmlReport, ATableForATerminalHasStraightColumns) {
  EXPECT_EQ(plain_text({.caption = "t", .header = {"model", "n"}, .rows = {{"a", "10"}}}, 1),
            "t\nmodel   n\na      10\n");
  EXPECT_EQ(plain_text({.header = {"n", "model"}, .rows = {{"10", ""}}}), "\n n  model\n10\n");
}

TEST(HtmlReport, LongLinesAreThinnedButKeepTheirExtremes) {
  Series series{.name = "s"};
  for (int i = 0; i < 100'000; ++i) series.points.push_back({1.0 * i, i == 31'415 ? 50.0 : 1.0});
  const std::string svg = line_chart({.series = {series}});
  EXPECT_LT(svg.size(), 50'000u);
  EXPECT_THAT(svg, HasSubstr("last 1, least 1 at 0"));
  // The spike is at the top of the plot: the smallest y of the pale path.
  double top = 1e9;
  for (const auto& [x, y] : drawn(svg.substr(0, svg.find("/>", svg.find("pale")))))
    top = std::min(top, y);
  EXPECT_LT(top, 60);
}

TEST(HtmlReport, EmptyAndSinglePointChartsAreDrawn) {
  for (const Chart& chart :
       {Chart{}, Chart{.series = {{.name = "none"}}},
        Chart{.series = {{.name = "one", .points = {{5, 5}}}}},
        Chart{.series = {{.name = "zero", .points = {{0, 0}}}}, .log_y = true},
        Chart{.series = {{.name = "flat", .points = {{1, 1e300}, {2, 1e300}}}}}}) {
    const std::string svg = line_chart(chart);
    EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
    expect_well_formed(svg);
  }
  expect_well_formed(points_chart({}));
}

TEST(HtmlReport, LabelsOfNeighbouringPointsKeepApart) {
  const std::string svg = points_chart(
      {.series = {{.name = "s",
                   .points = {{10, 10, "first"}, {10.2, 10.05, "second"}, {50, 50, "far"}}}}});
  const auto place = [&](const std::string& label) {
    const std::size_t end = svg.find(">" + label + "<");
    const std::string tag = svg.substr(svg.rfind("<text", end), 200);
    return std::pair(std::stod(tag.substr(tag.find("x=\"") + 3)),
                     std::stod(tag.substr(tag.find("y=\"") + 3)));
  };
  const auto [x1, y1] = place("first");
  const auto [x2, y2] = place("second");
  EXPECT_TRUE(std::abs(y1 - y2) > 10 || std::abs(x1 - x2) > 40);
}

TEST(HtmlReport, LabelsWithoutRoomAreLeftOutAndEveryPointSaysWhatItIs) {
  Chart chart{.series = {{.name = "s", .points = {}, .connected = false}}};
  for (int i = 0; i < 60; ++i)
    chart.series[0].points.push_back({i * 1e-3, 1, "label " + std::to_string(i)});
  chart.series[0].points.push_back({100, 5, "far"});
  const std::string svg = points_chart(chart);
  expect_well_formed(svg);
  EXPECT_NE(svg.find(">far<"), std::string::npos);
  int shown = 0;
  for (int i = 0; i < 60; ++i) {
    shown += svg.find(">label " + std::to_string(i) + "<") != std::string::npos;
    EXPECT_NE(svg.find("<title>s, label " + std::to_string(i) + ": "), std::string::npos);
  }
  EXPECT_GE(shown, 1);
  EXPECT_LE(shown, 20);
}

TEST(HtmlReport, ManySeriesDifferByShapeWhereColoursRepeat) {
  Chart chart;
  for (int i = 0; i < 9; ++i) chart.add(std::to_string(i), {i * 1.0, 1});
  const std::string svg = points_chart(chart);
  expect_well_formed(svg);
  EXPECT_THAT(svg, AllOf(HasSubstr("<circle class=\"dot f0\""), HasSubstr("<path class=\"dot f0\""),
                         Not(HasSubstr("<path class=\"dot f1\""))));
}

TEST(Charts, LogarithmicAxesLeaveOutWhatIsNotPositiveAndSpaceByRatio) {
  const auto x = drawn(line_chart(
      {.series = {{.name = "s", .points = {{-1, 1}, {0, 1}, {10, 1}, {100, 2}, {1000, 3}}}},
       .log_x = true}));
  ASSERT_EQ(x.size(), 3u);
  EXPECT_NEAR(x[1].first - x[0].first, x[2].first - x[1].first, 0.2);
  const auto y = drawn(line_chart(
      {.series = {{.name = "s", .points = {{0, 0}, {1, -1}, {2, 10}, {3, 100}, {4, 1000}}}},
       .log_y = true}));
  ASSERT_EQ(y.size(), 3u);
  EXPECT_NEAR(y[1].second - y[0].second, y[2].second - y[1].second, 0.2);
}

TEST(Charts, ALineGoesFromLeftToRight) {
  const std::string svg =
      line_chart({.series = {{.name = "s", .points = {{3, 1}, {1, 2}, {2, 3}}}}});
  EXPECT_EQ(svg, line_chart({.series = {{.name = "s", .points = {{1, 2}, {2, 3}, {3, 1}}}}}));
}

TEST(Ticks, AreRoundAndInside) {
  EXPECT_EQ(nice_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(nice_ticks(-0.9, 1.1, 4), (std::vector<double>{-0.5, 0, 0.5, 1}));
  EXPECT_EQ(nice_ticks(5, 500, 5, true), (std::vector<double>{5, 10, 20, 50, 100, 200, 500}));
  EXPECT_EQ(nice_ticks(3, 3, 5), std::vector<double>{3});
  for (const double low : {1e-9, 0.3, 7.0, 12345.0})
    for (const double factor : {1.001, 1.5, 30.0}) {
      const auto ticks = nice_ticks(low, low * factor, 6);
      EXPECT_GE(ticks.size(), 3u);
      EXPECT_LE(ticks.size(), 13u);
      for (const double tick : ticks) {
        EXPECT_GE(tick, low * (1 - 1e-6));
        EXPECT_LE(tick, low * factor * (1 + 1e-6));
      }
    }
}

TEST(Ticks, AreWrittenShort) {
  EXPECT_EQ(tick_texts({0, 0.1 + 0.2}), (std::vector<std::string>{"0", "0.3"}));
  EXPECT_EQ(tick_texts({2500, 12000}), (std::vector<std::string>{"2500", "12k"}));
  EXPECT_EQ(tick_texts({2.5e6}), std::vector<std::string>{"2.5M"});
  EXPECT_EQ(tick_texts({198.475, 198.48, 198.485}),
            (std::vector<std::string>{"198.475", "198.48", "198.485"}));
}

}  // namespace
}  // namespace focus
