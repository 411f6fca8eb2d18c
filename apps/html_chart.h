#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/html_report.h"

/// The charts of the report as <figure> elements with an SVG inside.
namespace focus {

std::string escape_html(std::string_view text);

/// Round numbers (1, 2 or 5 times a power of ten) that span low..high, about `count` of them. With
/// `log` powers of ten, and 2 and 5 times these where there are few; both limits are positive then.
std::vector<double> nice_ticks(double low, double high, int count, bool log = false);
/// As short as the ticks' distance allows: 0.25, 12k, 1e-06.
std::string tick_text(double value);

std::string line_chart_svg(const LineChart& chart);
std::string points_chart_svg(const PointsChart& chart);
std::string stacked_bars_svg(const StackedBars& chart);

}  // namespace focus
