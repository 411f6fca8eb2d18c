#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/report/html_report.h"

/// The charts of the report as <figure> elements with an SVG inside.
namespace focus {

std::string escape_html(std::string_view text);

/// Round numbers (1, 2 or 5 times a power of ten) that span low..high, about `count` of them. With
/// `log` powers of ten, and 2 and 5 times these where there are few; both limits are positive then.
std::vector<double> nice_ticks(double low, double high, int count, bool log = false);
/// As short as the ticks' distance allows: 0.25, 12k, 1e-06.
std::string tick_text(double value);

/// A chart before it is put on a page: the SVG elements of its plot, and what its legend says.
struct ChartDrawing {
  struct Key {
    std::size_t colour = 0;  // of the style's classes s0, s1, ...
    std::string name, detail;
  };
  std::vector<Key> legend = {};
  std::string svg = {};
  double width = 0, height = 0;
};
ChartDrawing draw_line_chart(const LineChart& chart);

/// The CSS of charts: colours for light and dark, lines, text.
std::string_view chart_style();

std::string line_chart_svg(const LineChart& chart);
std::string points_chart_svg(const PointsChart& chart);
std::string stacked_bars_svg(const StackedBars& chart);

}  // namespace focus
