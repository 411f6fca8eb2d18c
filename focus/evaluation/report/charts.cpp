#include "focus/evaluation/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

namespace focus {
namespace {

// Eight hues that also differ for readers with red-green blindness, after the set of Okabe and Ito;
// lines differ by their dashes, too. Dark pages get lighter hues.
constexpr std::string_view kChartStyle = R"(
:root {
  color-scheme: light dark;
  --page: #ffffff; --ink: #1b1f24; --soft: #5b6570; --rule: #d9dee3; --grid: #e9ecef;
  --c0: #0072b2; --c1: #d55e00; --c2: #00856a; --c3: #b8578f;
  --c4: #b97a00; --c5: #3a9bd6; --c6: #6a51a3; --c7: #4d4d4d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15181c; --ink: #e8eaed; --soft: #a2abb5; --rule: #363c44; --grid: #272c32;
    --c0: #58a6e8; --c1: #ff8f4d; --c2: #3ecfa5; --c3: #e79ac8;
    --c4: #f0b429; --c5: #8fd0f7; --c6: #b3a0e6; --c7: #c4c9cf;
  }
}
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--soft); }
svg text.label { fill: var(--ink); } svg tspan { fill: var(--soft); }
.grid { stroke: var(--grid); } .axis { stroke: var(--soft); }
.reference { stroke: var(--soft); stroke-dasharray: 2 3; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.halo { paint-order: stroke; stroke: var(--page); stroke-width: 4px; stroke-linejoin: round; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); stroke-dasharray: 7 3; }
.s2 { stroke: var(--c2); stroke-dasharray: 2 3; }
.s3 { stroke: var(--c3); stroke-dasharray: 9 3 2 3; }
.s4 { stroke: var(--c4); } .s5 { stroke: var(--c5); stroke-dasharray: 7 3; }
.s6 { stroke: var(--c6); stroke-dasharray: 2 3; }
.s7 { stroke: var(--c7); stroke-dasharray: 9 3 2 3; }
.pale { opacity: .28; stroke-width: 1; stroke-dasharray: none; }
.f0 { fill: var(--c0); } .f1 { fill: var(--c1); } .f2 { fill: var(--c2); } .f3 { fill: var(--c3); }
.f4 { fill: var(--c4); } .f5 { fill: var(--c5); } .f6 { fill: var(--c6); } .f7 { fill: var(--c7); }
.dot { stroke: var(--page); stroke-width: 1.5; stroke-dasharray: none; }
)";

using Points = std::vector<Point>;

constexpr double kWidth = 780, kHeight = 380;
constexpr double kLeft = 62, kRight = 20, kTop = 30, kBottom = 48;
constexpr double kLetter = 6.6;            // mean width of a letter
constexpr std::size_t kColours = 8;        // of the style's classes s0 and f0, s1 and f1, ...
constexpr std::size_t kNoisyPoints = 150;  // a longer line is drawn pale under its running mean
constexpr std::size_t kMarkedPoints = 24;  // a shorter line shows where its points are
constexpr std::size_t kMaxPoints = 800;    // points of a line: more are not visible at this width

double text_width(std::string_view text) { return kLetter * static_cast<double>(text.size()); }

std::string text_at(double x, double y, std::string_view anchor, std::string_view text,
                    std::string_view classes = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n",
                     x, y, anchor, classes, escape_html(text));
}

std::string line_at(double x1, double y1, double x2, double y2, std::string_view classes) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2,
      y2, classes);
}

/// A circle, or a square where the colours repeat. `hint` is shown under the pointer.
std::string mark(double x, double y, double radius, std::size_t series, std::string_view hint) {
  const bool circle = series / kColours % 2 == 0;
  const std::string shape = circle
                                ? fmt::format("cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"", x, y, radius)
                                : fmt::format("d=\"M{0:.1f} {1:.1f}h{2:.1f}v{2:.1f}h-{2:.1f}z\"",
                                              x - radius, y - radius, 2 * radius);
  return fmt::format("<{0} class=\"dot f{1}\" {2}>{3}</{0}>\n", circle ? "circle" : "path",
                     series % kColours, shape,
                     hint.empty() ? "" : fmt::format("<title>{}</title>", escape_html(hint)));
}

std::string tick_text(double value, int digits) {
  const double size = std::abs(value);
  if (size < 10'000) return fmt::format("{:.{}g}", value, digits);
  return fmt::format("{:.{}g}{}", value / (size >= 1e6 ? 1e6 : 1e3), std::max(digits, 6),
                     size >= 1e6 ? 'M' : 'k');
}

/// One direction of the plot: which values it spans, and where they lie in the picture.
class Axis {
 public:
  Axis(double from, double to, bool log) : from_(from), to_(to), log_(log) {}

  bool shows(double value) const { return std::isfinite(value) && (!log_ || value > 0); }
  void include(double value) {
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
  }
  /// Room on both sides, and some around a single value.
  void pad(double share) {
    if (low_ > high_) low_ = log_ ? 1 : 0, high_ = log_ ? 10 : 1;
    if (log_) {
      const double factor = high_ > low_ ? std::pow(high_ / low_, share) : 2;
      low_ /= factor;
      high_ *= factor;
      return;
    }
    const double room =
        high_ > low_ ? (high_ - low_) * share : std::max(std::abs(low_) * 0.1, 1e-6);
    low_ -= room;
    high_ += room;
  }
  double at(double value) const {
    const auto scale = [this](double v) { return log_ ? std::log10(v) : v; };
    return from_ + (scale(value) - scale(low_)) / (scale(high_) - scale(low_)) * (to_ - from_);
  }
  std::vector<double> ticks(int count) const { return nice_ticks(low_, high_, count, log_); }

 private:
  double from_, to_;
  bool log_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

/// What has been drawn where, so that labels find a free place.
class Room {
 public:
  struct Place {
    double x, y;
    std::string_view anchor;
  };

  void occupy(double left, double top, double right, double bottom) {
    taken_.push_back({left, top, right, bottom});
  }
  void occupy_line(double x1, double y1, double x2, double y2) {
    const int steps = static_cast<int>(std::hypot(x2 - x1, y2 - y1) / 5) + 1;
    for (int i = 0; i <= steps; ++i) {
      const double x = x1 + (x2 - x1) * i / steps, y = y1 + (y2 - y1) * i / steps;
      occupy(x - 2, y - 2, x + 2, y + 2);
    }
  }
  /// The text at the least crowded of the places; empty where more than `most` of its area would
  /// cover something or lie outside the plot.
  std::string put(std::span<const Place> places, const std::string& text, std::string_view classes,
                  double most) {
    const auto crowd = [&](const Place& place) { return crowding(box_of(place, text)); };
    const Place& best = *std::ranges::min_element(places, {}, crowd);
    const Box box = box_of(best, text);
    if (crowding(box) > most * (box.right - box.left) * (box.bottom - box.top)) return "";
    taken_.push_back(box);
    return text_at(best.x, best.y, best.anchor, text, classes);
  }

 private:
  struct Box {
    double left, top, right, bottom;
  };
  static Box box_of(const Place& place, std::string_view text) {
    const double width = text_width(text);
    const double before = place.anchor == "start" ? 0 : place.anchor == "end" ? width : width / 2;
    return {place.x - before - 2, place.y - 11, place.x - before + width + 2, place.y + 4};
  }
  double crowding(const Box& box) const {
    double area = 0;
    for (const Box& other : taken_) {
      const double width = std::min(box.right, other.right) - std::max(box.left, other.left);
      const double height = std::min(box.bottom, other.bottom) - std::max(box.top, other.top);
      if (width > 0 && height > 0) area += width * height;
    }
    const double outside =
        std::max(0.0, kLeft - box.left) + std::max(0.0, box.right - (kWidth - kRight + 12)) +
        std::max(0.0, kTop - 12 - box.top) + std::max(0.0, box.bottom - (kHeight - kBottom));
    return area + 100 * outside;
  }

  std::vector<Box> taken_;
};

/// The lowest and the highest point of each stretch, so that no spike is lost.
Points thinned(const Points& points) {
  if (points.size() <= kMaxPoints) return points;
  const std::size_t stretches = kMaxPoints / 2;
  Points kept = {points.front()};
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto at = [&](std::size_t k) {
      return points.begin() + static_cast<std::ptrdiff_t>(k * points.size() / stretches);
    };
    auto [low, high] = std::ranges::minmax_element(at(i), at(i + 1), {}, &Point::y);
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
  for (const Point& point : points) sums.push_back(sums.back() + point.y);
  Points mean;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t near = std::min({reach, i, points.size() - 1 - i});
    mean.push_back(
        {points[i].x, (sums[i + near + 1] - sums[i - near]) / static_cast<double>(2 * near + 1)});
  }
  return mean;
}

/// The drawing of a chart: its plot under its legend.
class Drawing {
 public:
  Drawing(const Chart& chart, bool labelled)
      : chart_(chart),
        labelled_(labelled),
        x_(kLeft, kWidth - kRight, chart.log_x),
        y_(kHeight - kBottom, kTop, chart.log_y) {
    for (const Series& series : chart.series) {
      Points& kept = lines_.emplace_back();
      for (const Point& point : series.points) {
        if (!x_.shows(point.x) || !y_.shows(point.y)) continue;
        kept.push_back(point);
        x_.include(point.x);
        y_.include(point.y);
      }
    }
    for (const ReferenceLine& line : chart.references)
      if (y_.shows(line.y)) y_.include(line.y);
    x_.pad(labelled ? 0.06 : chart.log_x ? 0.03 : 0.01);
    y_.pad(0.06);
    legend();
    for (std::size_t i = 0; i < lines_.size(); ++i) draw_series(i);
    references();
    if (labelled) labels();
  }

  double height() const { return legend_height_ + kHeight; }
  std::string svg() const {
    return fmt::format("{}<g transform=\"translate(0 {:.0f})\">\n{}{}{}{}</g>\n", legend_,
                       legend_height_, axes(), lines_svg_, marks_svg_, labels_svg_);
  }

 private:
  /// A key for each series, in rows as wide as the picture.
  void legend() {
    constexpr double kRow = 18, kKey = 32, kGap = 20;
    double x = 8, y = kRow - 4;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const std::string& name = chart_.series[i].name;
      const std::string detail = labelled_ ? "" : detail_of(lines_[i]);
      const double width = kKey + text_width(name + detail);
      if (x > 8 && x + width > kWidth) x = 8, y += kRow;
      if (chart_.series[i].connected)
        legend_ += fmt::format("<path class=\"line s{}\" d=\"M{:.1f} {:.1f}h24\"/>\n", i % kColours,
                               x, y - 4);
      if (!chart_.series[i].connected || i >= kColours) legend_ += mark(x + 12, y - 4, 4.5, i, "");
      legend_ += fmt::format(
          "<text class=\"label\" x=\"{:.1f}\" y=\"{:.1f}\">{}<tspan>{}</tspan></text>\n", x + kKey,
          y, escape_html(name), escape_html(detail));
      x += width + kGap;
    }
    legend_height_ = lines_.empty() ? 0 : y + 10;
  }

  static std::string detail_of(const Points& line) {
    if (line.empty()) return " no values";
    const Point& least = *std::ranges::min_element(line, {}, &Point::y);
    return fmt::format(" last {:.4g}, least {:.4g} at {}", line.back().y, least.y,
                       tick_text(least.x, 5));
  }

  std::string axes() const {
    const double bottom = kHeight - kBottom, right = kWidth - kRight;
    std::string svg;
    const std::vector<double> y_ticks = y_.ticks(6), x_ticks = x_.ticks(7);
    const std::vector<std::string> y_texts = tick_texts(y_ticks), x_texts = tick_texts(x_ticks);
    for (std::size_t i = 0; i < y_ticks.size(); ++i) {
      const double y = y_.at(y_ticks[i]);
      svg += line_at(kLeft, y, right, y, "grid") + text_at(kLeft - 8, y + 4, "end", y_texts[i]);
    }
    for (std::size_t i = 0; i < x_ticks.size(); ++i) {
      const double x = x_.at(x_ticks[i]);
      svg +=
          line_at(x, bottom, x, bottom + 5, "axis") + text_at(x, bottom + 19, "middle", x_texts[i]);
    }
    // The label of y lies above its axis: a turned one is slower to read.
    return svg + line_at(kLeft, bottom, right, bottom, "axis") +
           text_at((kLeft + right) / 2, kHeight - 8, "middle", chart_.x_label) +
           text_at(8, 14, "start", chart_.y_label);
  }

  void polyline(const Points& points, std::size_t series, std::string_view more_classes) {
    std::string path;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double x = x_.at(points[i].x), y = y_.at(points[i].y);
      path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", x, y);
      if (i > 0) room_.occupy_line(x_.at(points[i - 1].x), y_.at(points[i - 1].y), x, y);
    }
    lines_svg_ += fmt::format("<path class=\"line s{}{}\" d=\"{}\"/>\n", series % kColours,
                              more_classes, path);
  }

  void draw_series(std::size_t i) {
    const Points& line = lines_[i];
    if (chart_.series[i].connected && line.size() > 1) {
      const bool noisy = !labelled_ && line.size() > kNoisyPoints;
      polyline(thinned(line), i, noisy ? " pale" : "");
      if (noisy) polyline(thinned(running_mean(line)), i, "");
    }
    for (std::size_t k = 0; k < line.size(); ++k) {
      const bool last = k + 1 == line.size();
      if (!labelled_ && !last && line.size() > kMarkedPoints) continue;
      const double x = x_.at(line[k].x), y = y_.at(line[k].y);
      std::string hint = chart_.series[i].name;
      if (!line[k].label.empty()) hint += (hint.empty() ? "" : ", ") + line[k].label;
      marks_svg_ += mark(x, y,
                         labelled_ ? 5
                         : last    ? 4
                                   : 3,
                         i, fmt::format("{}: {:.5g}, {:.5g}", hint, line[k].x, line[k].y));
      if (labelled_) room_.occupy(x - 6, y - 6, x + 6, y + 6);
    }
  }

  void references() {
    const double right = kWidth - kRight;
    for (const ReferenceLine& line : chart_.references) {
      if (!y_.shows(line.y)) continue;
      const double y = y_.at(line.y);
      lines_svg_ += line_at(kLeft, y, right, y, "reference");
      room_.occupy_line(kLeft, y, right, y);
      const std::array<Room::Place, 4> places = {{{right - 2, y - 6, "end"},
                                                  {right - 2, y + 15, "end"},
                                                  {kLeft + 6, y - 6, "start"},
                                                  {kLeft + 6, y + 15, "start"}}};
      labels_svg_ += room_.put(places, line.label, "halo", std::numeric_limits<double>::infinity());
    }
  }

  /// Beside their points, where they cover little.
  void labels() {
    constexpr std::array<Room::Place, 10> kAround = {{{9, 4, "start"},
                                                      {-9, 4, "end"},
                                                      {0, -10, "middle"},
                                                      {0, 19, "middle"},
                                                      {8, -8, "start"},
                                                      {8, 16, "start"},
                                                      {-8, -8, "end"},
                                                      {-8, 16, "end"},
                                                      {0, -24, "middle"},
                                                      {0, 33, "middle"}}};
    for (const Points& line : lines_)
      for (const Point& point : line) {
        if (point.label.empty()) continue;
        std::array<Room::Place, 10> places = kAround;
        for (Room::Place& place : places) {
          place.x += x_.at(point.x);
          place.y += y_.at(point.y);
        }
        labels_svg_ += room_.put(places, point.label, "label halo", 0.25);
      }
  }

  const Chart& chart_;
  const bool labelled_;
  Axis x_, y_;
  std::vector<Points> lines_;  // the points of each series that can be drawn
  Room room_;
  double legend_height_ = 0;
  std::string legend_, lines_svg_, marks_svg_, labels_svg_;
};

std::string figure(const Chart& chart, bool labelled) {
  const Drawing drawing(chart, labelled);
  return fmt::format(
      "<figure>\n<figcaption>{0}</figcaption>\n<svg viewBox=\"0 0 {1:.0f} {2:.0f}\" role=\"img\" "
      "aria-label=\"{0}\">\n{3}</svg>\n</figure>\n",
      escape_html(chart.title), kWidth, drawing.height(), drawing.svg());
}

}  // namespace

void Chart::add(const std::string& name, Point point, bool connected) {
  auto at = std::ranges::find(series, name, &Series::name);
  if (at == series.end())
    at = series.insert(at, {.name = name, .points = {}, .connected = connected});
  at->points.push_back(std::move(point));
}

std::string line_chart(const Chart& chart) { return figure(chart, false); }
std::string points_chart(const Chart& chart) { return figure(chart, true); }

std::string_view chart_style() { return kChartStyle; }

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    constexpr std::string_view kSpecial = "&<>\"'";
    constexpr std::array<std::string_view, 5> kNames = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    const std::size_t at = kSpecial.find(c);
    escaped += at == std::string_view::npos ? std::string_view(&c, 1) : kNames[at];
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

std::vector<std::string> tick_texts(const std::vector<double>& ticks) {
  constexpr int kMostDigits = 12;
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 0;
  const auto is_off = [&](double tick, int digits) {
    return std::abs(std::stod(fmt::format("{:.{}g}", tick, digits)) - tick) > 0.01 * step;
  };
  int digits = 5;
  while (step > 0 && digits < kMostDigits &&
         std::ranges::any_of(ticks, [&](double tick) { return is_off(tick, digits); }))
    ++digits;
  std::vector<std::string> texts;
  texts.reserve(ticks.size());
  for (const double tick : ticks) texts.push_back(tick_text(tick, digits));
  return texts;
}

}  // namespace focus
