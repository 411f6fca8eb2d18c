#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace focus {

struct Table {
  std::string caption = {};
  std::vector<std::string> header = {};
  std::vector<std::vector<std::string>> rows = {};  // columns of numbers are set to the right
  std::optional<std::size_t> highlighted_row = {};
};

struct Series {
  std::string name = {};
  std::vector<std::pair<double, double>> points = {};  // those with NaN or infinity are left out
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
};

/// A bar per row, cut into one part per segment, such as the group sizes of each layer.
struct StackedBars {
  std::string title = {};
  std::vector<std::string> segment_names = {};
  std::vector<std::pair<std::string, std::vector<double>>> rows = {};  // parts are shown as shares
};

/// One HTML page without scripts or anything from outside: style inside, charts as SVG, light or
/// dark as the reader's system is, fit for print. All text given is escaped.
class HtmlReport {
 public:
  explicit HtmlReport(std::string title);

  void heading(std::string_view text);
  void paragraph(std::string_view text);
  /// Throws std::invalid_argument where a row has not as many cells as the header.
  void table(const Table& table);
  void line_chart(const LineChart& chart);
  void points_chart(const PointsChart& chart);
  /// Throws std::invalid_argument where a row has not as many parts as there are names.
  void stacked_bars(const StackedBars& chart);

  std::string html() const;

 private:
  std::string title_;
  std::string body_;
};

}  // namespace focus
