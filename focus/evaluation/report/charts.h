#pragma once

#include <string>
#include <string_view>
#include <vector>

// Charts as SVG: a line chart and a points chart. Points with NaN or infinity are left out.
namespace focus {

struct Point {
  double x = 0, y = 0;
  std::string label = {};
};
struct Series {
  std::string name = {};
  std::vector<Point> points = {};
  bool connected = true;
};
/// A horizontal line across a chart, such as the dense model's perplexity.
struct ReferenceLine {
  std::string label = {};
  double y = 0;
};
struct Chart {
  std::string title = {}, x_label = {}, y_label = {};
  std::vector<Series> series = {};
  std::vector<ReferenceLine> references = {};
  bool log_x = false, log_y = false;  // leave out points that are not positive

  /// Adds to the series of that name, a new one if it is missing.
  void add(const std::string& name, Point point, bool connected = true);
};

/// Values over steps, x rising: a <figure> with an SVG. The legend says the last and the least
/// value; a long, noisy series is drawn pale under its running mean.
std::string line_chart(const Chart& chart);
/// Points with a label each where there is room, such as perplexity against density.
std::string points_chart(const Chart& chart);

/// The CSS of charts: colours for light and dark pages, lines, text.
std::string_view chart_style();
std::string escape_html(std::string_view text);

/// Round numbers (1, 2 or 5 times a power of ten) that span low..high, about `count` of them. With
/// `log` powers of ten, and 2 and 5 times these where there are few; both limits are positive then.
std::vector<double> nice_ticks(double low, double high, int count, bool log = false);
/// Rising ticks, short (0.25, 12k, 1e-06), with as many digits as tell them apart.
std::vector<std::string> tick_texts(const std::vector<double>& ticks);

}  // namespace focus
