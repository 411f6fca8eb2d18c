#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Charts: what they show, and the SVG of it. Points with NaN or infinity are left out.
namespace focus {

struct Series {
  std::string name = {};
  std::vector<std::pair<double, double>> points = {};
};

/// A horizontal line across a chart, such as the dense model's perplexity.
struct ReferenceLine {
  std::string label = {};
  double y = 0;
};

/// Values over steps, x rising. The least and the last value of a series stand in the legend; a
/// long, noisy series is drawn pale under its running mean.
struct LineChart {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  std::vector<Series> series = {};
  bool log_y = false;  // leaves out points that are not positive
  bool log_x = false;  // likewise
  std::vector<ReferenceLine> references = {};
};

struct LabelledPoint {
  double x = 0;
  double y = 0;
  std::string label = {};
};
struct PointSeries {
  std::string name = {};
  std::vector<LabelledPoint> points = {};
  bool connected = true;
};
/// Points with a name each, such as perplexity against the share of pairs.
struct PointsChart {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  std::vector<PointSeries> series = {};
  std::vector<ReferenceLine> references = {};

  /// To the series of that name, which is made where there is none.
  void add(const std::string& name, bool connected, LabelledPoint point);
};

/// A bar per row, cut into one part per segment, such as the group sizes of each layer.
struct StackedBars {
  std::string title = {};
  std::vector<std::string> segment_names = {};
  std::vector<std::pair<std::string, std::vector<double>>> rows = {};  // parts are shown as shares
};

/// The CSS of charts: colours for light and dark, lines, text.
std::string_view chart_style();

/// A <figure> with title, legend and an SVG.
std::string line_chart_svg(const LineChart& chart);
std::string points_chart_svg(const PointsChart& chart);
/// Throws std::invalid_argument where a row has not as many parts as there are names.
std::string stacked_bars_svg(const StackedBars& chart);

/// A line chart as an SVG file of its own, for a README: title and legend inside, nothing from
/// outside, light or dark as the reader's system is.
std::string svg_file(const LineChart& chart);

}  // namespace focus
