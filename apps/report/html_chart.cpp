#include "apps/report/html_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "autograd/check.h"

namespace focus {
namespace {

constexpr double kWidth = 780, kHeight = 380;
constexpr double kLeft = 62, kRight = 20, kTop = 30, kBottom = 48;
constexpr std::size_t kColours = 8;
constexpr std::size_t kNoisyPoints = 150;  // a longer line is drawn pale under its running mean
constexpr std::size_t kMarkedPoints = 24;  // a shorter line shows where its points are
constexpr std::size_t kMaxPoints = 800;    // of a line: more cannot be told apart at this width

struct Limits {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

/// The plot area: limits in data, and where a value lies in the picture.
struct Plane {
  std::vector<double> x_ticks, y_ticks;
  Limits x, y;
  bool log_x = false, log_y = false;

  double at_x(double value) const {
    return kLeft + share(value, x, log_x) * (kWidth - kLeft - kRight);
  }
  double at_y(double value) const {
    return kHeight - kBottom - share(value, y, log_y) * (kHeight - kTop - kBottom);
  }

 private:
  /// How far from the low limit to the high one, 0 to 1.
  static double share(double value, const Limits& limits, bool log) {
    const auto scale = [log](double v) { return log ? std::log10(v) : v; };
    return (scale(value) - scale(limits.low)) / (scale(limits.high) - scale(limits.low));
  }
};

/// Room on both sides, and some around a single value.
void pad(Limits& limits, double share, bool log) {
  if (limits.empty()) limits = {log ? 1.0 : 0.0, log ? 10.0 : 1.0};
  if (log) {
    const double factor = std::pow(limits.high / limits.low, share);
    limits = limits.high > limits.low ? Limits{limits.low / factor, limits.high * factor}
                                      : Limits{limits.low / 2, limits.high * 2};
    return;
  }
  double room = (limits.high - limits.low) * share;
  if (limits.high == limits.low) room = std::max(std::abs(limits.low) * 0.1, 1e-6);
  limits = {limits.low - room, limits.high + room};
}

Plane make_plane(Limits x, Limits y, double x_room, bool log_x, bool log_y) {
  Plane plane;
  pad(x, x.low == x.high ? 0.1 : x_room, log_x);
  pad(y, 0.06, log_y);
  plane.x = x;
  plane.y = y;
  plane.log_x = log_x;
  plane.log_y = log_y;
  plane.x_ticks = nice_ticks(x.low, x.high, 7, log_x);
  plane.y_ticks = nice_ticks(y.low, y.high, 6, log_y);
  return plane;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text,
                    std::string_view classes = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, classes.empty() ? "" : fmt::format(" class=\"{}\"", classes),
                     escape_html(text));
}

std::string line_at(double x1, double y1, double x2, double y2, std::string_view classes) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2,
      y2, classes);
}

std::string draw_axes(const Plane& plane, const std::string& x_label, const std::string& y_label) {
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  std::string svg;
  for (const double tick : plane.y_ticks) {
    const double y = plane.at_y(tick);
    svg += line_at(kLeft, y, right, y, "grid") + text_at(kLeft - 8, y + 4, "end", tick_text(tick));
  }
  for (const double tick : plane.x_ticks) {
    const double x = plane.at_x(tick);
    svg += line_at(x, bottom, x, bottom + 5, "axis") +
           text_at(x, bottom + 19, "middle", tick_text(tick));
  }
  svg += line_at(kLeft, bottom, right, bottom, "axis");
  svg += text_at((kLeft + right) / 2, kHeight - 8, "middle", x_label);
  // Upright above the axis: a turned label is slower to read.
  return svg + text_at(8, 14, "start", y_label);
}

std::string figure(const std::string& title, const std::string& legend, double height,
                   const std::string& svg) {
  return fmt::format(
      "<figure>\n<figcaption>{0}</figcaption>\n<div class=\"legend\">{1}</div>\n"
      "<svg viewBox=\"0 0 {2:.0f} {3:.0f}\" role=\"img\" aria-label=\"{0}\">\n{4}</svg>\n"
      "</figure>\n",
      escape_html(title), legend, kWidth, height, svg);
}

/// A point of a series: its colour, and another shape where the colours begin anew. `hint` is shown
/// under the pointer.
std::string mark(double x, double y, double radius, std::size_t series,
                 const std::string& hint = "") {
  const std::string attributes = fmt::format("class=\"dot f{}\"", series % kColours);
  const std::string inside =
      hint.empty() ? "" : fmt::format("<title>{}</title>", escape_html(hint));
  const double r = radius * 1.1;
  switch (series / kColours % 4) {
    case 0:
      return fmt::format("<circle {} cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\">{}</circle>\n",
                         attributes, x, y, radius, inside);
    case 1:
      return fmt::format("<path {} d=\"M{:.1f} {:.1f}h{:.1f}v{:.1f}h-{:.1f}z\">{}</path>\n",
                         attributes, x - r, y - r, 2 * r, 2 * r, 2 * r, inside);
    case 2:
      return fmt::format("<path {} d=\"M{:.1f} {:.1f}l{:.1f} {:.1f}h-{:.1f}z\">{}</path>\n",
                         attributes, x, y - 1.3 * r, 1.3 * r, 2.2 * r, 2.6 * r, inside);
    default:
      return fmt::format(
          "<path {0} d=\"M{1:.1f} {2:.1f}l{3:.1f} {3:.1f}l-{3:.1f} {3:.1f}l-{3:.1f} -{3:.1f}z\">"
          "{4}</path>\n",
          attributes, x, y - 1.4 * r, 1.4 * r, inside);
  }
}

std::string line_key(std::size_t series, const std::string& name, const std::string& detail) {
  return fmt::format(
      "<span><svg viewBox=\"0 0 26 10\"><path class=\"line s{}\" d=\"M1 5H25\"/>{}</svg>{}"
      "<i>{}</i></span>\n",
      series % kColours, series < kColours ? "" : mark(13, 5, 4, series), escape_html(name),
      escape_html(detail));
}

std::string point_key(std::size_t series, const std::string& name) {
  return fmt::format("<span><svg viewBox=\"0 0 26 10\">{}</svg>{}</span>\n",
                     mark(13, 5, 4.5, series), escape_html(name));
}

std::string area_key(std::size_t colour, const std::string& name) {
  return fmt::format(
      "<span><svg class=\"swatch\" viewBox=\"0 0 12 10\"><rect class=\"f{}\" width=\"12\" "
      "height=\"10\" "
      "rx=\"2\"/></svg>{}</span>\n",
      colour, escape_html(name));
}

using Points = std::vector<std::pair<double, double>>;

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
    const auto by_y = [](const auto& a, const auto& b) { return a.second < b.second; };
    auto [low, high] = std::minmax_element(at(i), at(i + 1), by_y);
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

std::string polyline(const Plane& plane, const Points& points, std::size_t colour,
                     std::string_view more_classes = "") {
  std::string path;
  for (const auto& [x, y] : points)
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", plane.at_x(x), plane.at_y(y));
  return fmt::format("<path class=\"line s{}{}\" d=\"{}\"/>\n", colour, more_classes, path);
}

/// Where something has been drawn, so that labels find a free place.
struct Box {
  double left, top, right, bottom;

  double overlap(const Box& other) const {
    const double width = std::min(right, other.right) - std::max(left, other.left);
    const double height = std::min(bottom, other.bottom) - std::max(top, other.top);
    return width > 0 && height > 0 ? width * height : 0;
  }
};

Box text_box(double x, double y, std::string_view anchor, std::string_view text) {
  const double width = 6.6 * static_cast<double>(text.size());
  const double left = anchor == "start" ? x : anchor == "end" ? x - width : x - width / 2;
  return {left - 2, y - 11, left + width + 2, y + 4};
}

/// How much of the box is over others, or outside the plot.
double crowding(const Box& box, const std::vector<Box>& taken) {
  double area = 0;
  for (const Box& other : taken) area += box.overlap(other);
  const double outside =
      std::max(0.0, kLeft - box.left) + std::max(0.0, box.right - (kWidth - kRight + 12)) +
      std::max(0.0, kTop - 12 - box.top) + std::max(0.0, box.bottom - (kHeight - kBottom));
  return area + 100 * outside;
}

/// A label at the least crowded of the places around a point; none where a quarter of it would be
/// over something else.
std::string place_label(double x, double y, const std::string& text, std::vector<Box>& taken) {
  struct Place {
    double dx, dy;
    std::string_view anchor;
  };
  static constexpr std::array<Place, 10> kPlaces = {{{9, 4, "start"},
                                                     {-9, 4, "end"},
                                                     {0, -10, "middle"},
                                                     {0, 19, "middle"},
                                                     {8, -8, "start"},
                                                     {8, 16, "start"},
                                                     {-8, -8, "end"},
                                                     {-8, 16, "end"},
                                                     {0, -24, "middle"},
                                                     {0, 33, "middle"}}};
  const Place* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Place& place : kPlaces) {
    const double area = crowding(text_box(x + place.dx, y + place.dy, place.anchor, text), taken);
    if (area < least) {
      least = area;
      best = &place;
    }
  }
  const Box box = text_box(x + best->dx, y + best->dy, best->anchor, text);
  if (least > 0.25 * (box.right - box.left) * (box.bottom - box.top)) return "";
  taken.push_back(box);
  return text_at(x + best->dx, y + best->dy, best->anchor, text, "label halo");
}

/// Small boxes along a connection, which labels keep away from.
void occupy_line(double x1, double y1, double x2, double y2, std::vector<Box>& taken) {
  const int steps = static_cast<int>(std::hypot(x2 - x1, y2 - y1) / 5) + 1;
  for (int i = 0; i <= steps; ++i) {
    const double x = x1 + (x2 - x1) * i / steps, y = y1 + (y2 - y1) * i / steps;
    taken.push_back({x - 2, y - 2, x + 2, y + 2});
  }
}

std::string draw_references(const Plane& plane, const std::vector<ReferenceLine>& references,
                            std::vector<Box>& taken) {
  std::string svg;
  for (const ReferenceLine& reference : references) {
    if (!std::isfinite(reference.y) || (plane.log_y && reference.y <= 0)) continue;
    const double y = plane.at_y(reference.y), right = kWidth - kRight;
    svg += line_at(kLeft, y, right, y, "reference");
    occupy_line(kLeft, y, right, y, taken);
    // At the left or right end, above or below the line: wherever fewest points are.
    struct Place {
      double x, y;
      std::string_view anchor;
    };
    const std::array<Place, 4> places = {{{right - 2, y - 6, "end"},
                                          {right - 2, y + 15, "end"},
                                          {kLeft + 6, y - 6, "start"},
                                          {kLeft + 6, y + 15, "start"}}};
    const auto crowd = [&](const Place& p) {
      return crowding(text_box(p.x, p.y, p.anchor, reference.label), taken);
    };
    const Place& best = *std::ranges::min_element(places, {}, crowd);
    taken.push_back(text_box(best.x, best.y, best.anchor, reference.label));
    svg += text_at(best.x, best.y, best.anchor, reference.label, "halo");
  }
  return svg;
}

void include_references(const std::vector<ReferenceLine>& references, bool log_y, Limits& y) {
  for (const ReferenceLine& reference : references)
    if (std::isfinite(reference.y) && (!log_y || reference.y > 0)) y.include(reference.y);
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::vector<double> nice_ticks(double low, double high, int count, bool log) {
  std::vector<double> ticks;
  if (log) {
    const double decades = std::log10(high / low);
    for (double power = std::floor(std::log10(low)); power <= std::log10(high); ++power)
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double tick = factor * std::pow(10, power);
        if (tick >= low && tick <= high && (factor == 1 || decades < 3)) ticks.push_back(tick);
      }
    if (ticks.size() >= 3) return ticks;
    ticks.clear();  // under one decade: even steps say more
  }
  if (!(high > low)) return {low};
  const double rough = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double factor = rough / power;
  const double step = power * (factor < 1.5 ? 1 : factor < 3.5 ? 2 : factor < 7.5 ? 5 : 10);
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= 2 * count && (first + i) * step <= high + 1e-9 * step; ++i)
    ticks.push_back(first + i == 0 ? 0 : (first + i) * step);
  return ticks;
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 10'000) {
    const std::string scaled = fmt::format("{:.6g}", value / (size >= 1e6 ? 1e6 : 1e3));
    return scaled + (size >= 1e6 ? "M" : "k");
  }
  return fmt::format("{:.5g}", value);
}

ChartDrawing draw_line_chart(const LineChart& chart) {
  Limits x, y;
  std::vector<Points> lines;
  for (const Series& series : chart.series) {
    lines.push_back(drawable(series.points, chart.log_x, chart.log_y));
    for (const auto& [px, py] : lines.back()) {
      x.include(px);
      y.include(py);
    }
  }
  include_references(chart.references, chart.log_y, y);
  const Plane plane = make_plane(x, y, chart.log_x ? 0.03 : 0.01, chart.log_x, chart.log_y);

  ChartDrawing drawing{.width = kWidth, .height = kHeight};
  std::string svg, dots, pale;
  std::vector<Box> taken;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t colour = i % kColours;
    const std::string& name = chart.series[i].name;
    if (lines[i].empty()) {
      drawing.legend.push_back({colour, name, " no values"});
      continue;
    }
    const Points points = thinned(lines[i]);
    if (lines[i].size() > kNoisyPoints) {
      pale += polyline(plane, points, colour, " pale");
      svg += polyline(plane, thinned(running_mean(lines[i])), colour);
    } else {
      svg += polyline(plane, points, colour);
    }
    for (std::size_t k = 1; k < points.size(); ++k)
      occupy_line(plane.at_x(points[k - 1].first), plane.at_y(points[k - 1].second),
                  plane.at_x(points[k].first), plane.at_y(points[k].second), taken);
    const auto by_y = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto least = *std::ranges::min_element(lines[i], by_y);
    const auto& last = lines[i].back();
    if (points.size() <= kMarkedPoints)
      for (const auto& [px, py] : points) dots += mark(plane.at_x(px), plane.at_y(py), 3, i);
    dots += mark(plane.at_x(last.first), plane.at_y(last.second), 4, i);
    drawing.legend.push_back({colour, name,
                              fmt::format(" last {:.4g}, least {:.4g} at {}", last.second,
                                          least.second, tick_text(least.first))});
  }
  drawing.svg = draw_axes(plane, chart.x_label, chart.y_label) + pale + svg +
                draw_references(plane, chart.references, taken) + dots;
  return drawing;
}

std::string line_chart_svg(const LineChart& chart) {
  const ChartDrawing drawing = draw_line_chart(chart);
  std::string legend;
  for (std::size_t i = 0; i < drawing.legend.size(); ++i)
    legend += line_key(i, drawing.legend[i].name, drawing.legend[i].detail);
  return figure(chart.title, legend, drawing.height, drawing.svg);
}

std::string points_chart_svg(const PointsChart& chart) {
  Limits x, y;
  for (const PointSeries& series : chart.series)
    for (const LabelledPoint& point : series.points)
      if (std::isfinite(point.x) && std::isfinite(point.y)) {
        x.include(point.x);
        y.include(point.y);
      }
  include_references(chart.references, false, y);
  const Plane plane = make_plane(x, y, 0.06, false, false);

  std::string svg = draw_axes(plane, chart.x_label, chart.y_label), legend, dots;
  struct Label {
    double x, y;
    std::string text;
  };
  std::vector<Label> labels;
  std::vector<Box> taken;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const PointSeries& series = chart.series[i];
    const std::size_t colour = i % kColours;
    Points line;
    for (const LabelledPoint& point : series.points) {
      if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
      const double px = plane.at_x(point.x), py = plane.at_y(point.y);
      if (series.connected && !line.empty())
        occupy_line(plane.at_x(line.back().first), plane.at_y(line.back().second), px, py, taken);
      line.emplace_back(point.x, point.y);
      taken.push_back({px - 6, py - 6, px + 6, py + 6});
      dots += mark(px, py, 5, i,
                   fmt::format("{}{}{}: {:.5g}, {:.5g}", series.name,
                               series.name.empty() || point.label.empty() ? "" : ", ", point.label,
                               point.x, point.y));
      if (!point.label.empty()) labels.push_back({px, py, point.label});
    }
    if (series.connected && line.size() > 1) svg += polyline(plane, line, colour);
    legend += series.connected ? line_key(i, series.name, "") : point_key(i, series.name);
  }
  svg += draw_references(plane, chart.references, taken) + dots;
  for (const Label& label : labels) svg += place_label(label.x, label.y, label.text, taken);
  return figure(chart.title, legend, kHeight, svg);
}

std::string stacked_bars_svg(const StackedBars& chart) {
  constexpr double kRow = 26, kBar = 18, kCharacter = 6.8;
  std::size_t longest = 0;
  for (const auto& [name, parts] : chart.rows) {
    check(parts.size() == chart.segment_names.size(),
          "report: chart \"{}\" has {} segments, row \"{}\" came with {}", chart.title,
          chart.segment_names.size(), name, parts.size());
    longest = std::max(longest, name.size());
  }
  const double left = std::min(220.0, 14 + kCharacter * static_cast<double>(longest));
  const double width = kWidth - left - kRight;
  const double bottom = kRow * static_cast<double>(chart.rows.size()) + 6;

  std::string svg, legend;
  for (std::size_t s = 0; s < chart.segment_names.size() && chart.segment_names.size() <= 16; ++s)
    legend += area_key(s % kColours, chart.segment_names[s]);
  for (const int percent : {0, 25, 50, 75, 100}) {
    const double x = left + width * percent / 100;
    svg += line_at(x, 0, x, bottom, "grid");
    svg += text_at(x, bottom + 16, "middle", fmt::format("{}%", percent));
  }
  for (std::size_t r = 0; r < chart.rows.size(); ++r) {
    const auto& [name, parts] = chart.rows[r];
    const double y = kRow * static_cast<double>(r) + 6;
    svg += text_at(left - 8, y + kBar - 5, "end", name, "label");
    const auto usable = [](double part) { return std::isfinite(part) && part > 0 ? part : 0.0; };
    double total = 0;
    for (const double part : parts) total += usable(part);
    double x = left;
    for (std::size_t s = 0; s < parts.size() && total > 0; ++s) {
      const double share = usable(parts[s]) / total;
      const double length = share * width;
      if (length <= 0) continue;
      // A gap of one unit keeps equal colours apart where there are more parts than colours.
      svg += fmt::format(
          "<rect class=\"f{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\">"
          "<title>{}: {:.1f}%</title></rect>\n",
          s % kColours, x, y, std::max(0.3, length - 1), kBar, escape_html(chart.segment_names[s]),
          100 * share);
      const std::string text = fmt::format("{:.0f}%", 100 * share);
      if (length > kCharacter * static_cast<double>(text.size()) + 8)
        svg += text_at(x + length / 2, y + kBar - 5, "middle", text, "on");
      x += length;
    }
  }
  return figure(chart.title, legend, bottom + 24, svg);
}

}  // namespace focus
