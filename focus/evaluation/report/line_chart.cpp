#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "focus/evaluation/report/plane.h"

namespace focus {
namespace {

using namespace chart;

constexpr std::size_t kNoisyPoints = 150;  // a longer line is drawn pale under its running mean
constexpr std::size_t kMarkedPoints = 24;  // a shorter line shows where its points are
constexpr std::size_t kMaxPoints = 800;    // of a line: more cannot be told apart at this width

/// A chart before it is put on a page: the elements of its plot, and what its legend says.
struct Drawing {
  struct Key {
    std::string name, detail;
  };
  std::vector<Key> legend = {};
  std::string svg = {};
};

Points drawable(const Points& points, bool log_x, bool log_y) {
  Points kept;
  for (const auto& [x, y] : points)
    if (std::isfinite(x) && std::isfinite(y) && (!log_x || x > 0) && (!log_y || y > 0))
      kept.emplace_back(x, y);
  return kept;
}

/// Of each stretch the lowest and the highest point, so that no spike is lost.
Points thinned(const Points& points) {
  if (points.size() <= kMaxPoints) return points;
  const std::size_t stretches = kMaxPoints / 2;
  Points kept = {points.front()};
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto at = [&](std::size_t k) {
      return points.begin() + static_cast<std::ptrdiff_t>(k * points.size() / stretches);
    };
    auto [low, high] =
        std::ranges::minmax_element(at(i), at(i + 1), {}, &Points::value_type::second);
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  kept.push_back(points.back());
  return kept;
}

/// The mean of each point and its neighbours, 2 % of the line to either side, fewer at the ends.
Points running_mean(const Points& points) {
  const std::size_t reach = points.size() / 50;
  std::vector<double> sums = {0};
  for (const auto& point : points) sums.push_back(sums.back() + point.second);
  Points mean;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t near = std::min({reach, i, points.size() - 1 - i});
    const double sum = sums[i + near + 1] - sums[i - near];
    mean.emplace_back(points[i].first, sum / static_cast<double>(2 * near + 1));
  }
  return mean;
}

Drawing draw(const LineChart& chart) {
  Limits x, y;
  std::vector<Points> lines;
  for (const Series& series : chart.series) {
    lines.push_back(drawable(series.points, chart.log_x, chart.log_y));
    for (const auto& [px, py] : lines.back()) {
      x.include(px);
      y.include(py);
    }
  }
  const Plane plane(x, y, chart.references, chart.log_x ? 0.03 : 0.01, chart.log_x, chart.log_y);

  Drawing drawing;
  std::string svg, dots, pale;
  Room room;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t colour = i % kColours;
    const std::string& name = chart.series[i].name;
    if (lines[i].empty()) {
      drawing.legend.push_back({name, " no values"});
      continue;
    }
    const Points points = thinned(lines[i]);
    if (lines[i].size() > kNoisyPoints) {
      pale += plane.polyline(points, colour, " pale");
      svg += plane.polyline(thinned(running_mean(lines[i])), colour);
    } else {
      svg += plane.polyline(points, colour);
    }
    for (std::size_t k = 1; k < points.size(); ++k)
      room.occupy_line(plane.at_x(points[k - 1].first), plane.at_y(points[k - 1].second),
                       plane.at_x(points[k].first), plane.at_y(points[k].second));
    const auto& least = *std::ranges::min_element(lines[i], {}, &Points::value_type::second);
    const auto& last = lines[i].back();
    if (points.size() <= kMarkedPoints)
      for (const auto& [px, py] : points) dots += mark(plane.at_x(px), plane.at_y(py), 3, i);
    dots += mark(plane.at_x(last.first), plane.at_y(last.second), 4, i);
    drawing.legend.push_back({name, fmt::format(" last {:.4g}, least {:.4g} at {}", last.second,
                                                least.second, tick_text(least.first))});
  }
  drawing.svg = plane.axes(chart.x_label, chart.y_label) + pale + svg +
                plane.references(chart.references, room) + dots;
  return drawing;
}

}  // namespace

std::string line_chart_svg(const LineChart& chart) {
  const Drawing drawing = draw(chart);
  std::string legend;
  for (std::size_t i = 0; i < drawing.legend.size(); ++i)
    legend += line_key(i, drawing.legend[i].name, drawing.legend[i].detail);
  return figure(chart.title, legend, kHeight, drawing.svg);
}

std::string svg_file(const LineChart& chart) {
  constexpr double kRow = 18, kTitle = 26, kMargin = 8;
  const Drawing drawing = draw(chart);
  std::string legend;
  double y = kTitle + kRow;
  for (std::size_t i = 0; i < drawing.legend.size(); ++i, y += kRow)
    legend += fmt::format(
        "<path class=\"line s{}\" d=\"M{:.0f} {:.0f}h24\"/>\n"
        "<text class=\"label\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n",
        i % kColours, kMargin, y - 4, kMargin + 32, y, escape_html(drawing.legend[i].name));
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" "
      "aria-label=\"{2}\">\n<style>{3}svg text.title {{ font-size: 15px; font-weight: 600; }}\n"
      "</style>\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" style=\"fill: var(--page)\"/>\n"
      "<text class=\"label title\" x=\"{4:.0f}\" y=\"20\">{2}</text>\n{5}"
      "<g transform=\"translate(0 {6:.0f})\">\n{7}</g>\n</svg>\n",
      kWidth, y + kHeight, escape_html(chart.title), chart_style(), kMargin, legend, y,
      drawing.svg);
}

}  // namespace focus
