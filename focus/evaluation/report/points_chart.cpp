#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "focus/evaluation/report/plane.h"

namespace focus {
namespace {

using namespace chart;

std::string point_key(std::size_t series, const std::string& name) {
  return fmt::format("<span><svg viewBox=\"0 0 26 10\">{}</svg>{}</span>\n",
                     mark(13, 5, 4.5, series), escape_html(name));
}

/// A label at one of the places around a point.
std::string label_beside(double x, double y, const std::string& text, Room& room) {
  std::array<Room::Place, 10> places = {{{9, 4, "start"},
                                         {-9, 4, "end"},
                                         {0, -10, "middle"},
                                         {0, 19, "middle"},
                                         {8, -8, "start"},
                                         {8, 16, "start"},
                                         {-8, -8, "end"},
                                         {-8, 16, "end"},
                                         {0, -24, "middle"},
                                         {0, 33, "middle"}}};
  for (Room::Place& place : places) {
    place.x += x;
    place.y += y;
  }
  return room.put(places, text, "label halo", 0.25);
}

}  // namespace

void PointsChart::add(const std::string& name, bool connected, LabelledPoint point) {
  auto it = std::ranges::find(series, name, &PointSeries::name);
  if (it == series.end()) it = series.insert(it, {.name = name, .connected = connected});
  it->points.push_back(std::move(point));
}

std::string points_chart_svg(const PointsChart& chart) {
  std::vector<PointSeries> all = chart.series;
  Limits x, y;
  for (PointSeries& series : all) {
    std::erase_if(series.points, [](const LabelledPoint& point) {
      return !std::isfinite(point.x) || !std::isfinite(point.y);
    });
    for (const LabelledPoint& point : series.points) {
      x.include(point.x);
      y.include(point.y);
    }
  }
  const Plane plane(x, y, chart.references, 0.06);

  std::string svg = plane.axes(chart.x_label, chart.y_label), legend, dots;
  Room room;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [name, points, connected] = all[i];
    Points line;
    for (const LabelledPoint& point : points) {
      const double px = plane.at_x(point.x), py = plane.at_y(point.y);
      if (connected && !line.empty())
        room.occupy_line(plane.at_x(line.back().first), plane.at_y(line.back().second), px, py);
      line.emplace_back(point.x, point.y);
      room.occupy(px - 6, py - 6, px + 6, py + 6);
      dots += mark(px, py, 5, i,
                   fmt::format("{}{}{}: {:.5g}, {:.5g}", name,
                               name.empty() || point.label.empty() ? "" : ", ", point.label,
                               point.x, point.y));
    }
    if (connected && line.size() > 1) svg += plane.polyline(line, i % kColours);
    legend += connected ? line_key(i, name) : point_key(i, name);
  }
  svg += plane.references(chart.references, room) + dots;
  for (const PointSeries& series : all)
    for (const LabelledPoint& point : series.points)
      if (!point.label.empty())
        svg += label_beside(plane.at_x(point.x), plane.at_y(point.y), point.label, room);
  return figure(chart.title, legend, kHeight, svg);
}

}  // namespace focus
