#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "data/files/utf8.h"
#include "focus/evaluation/report/html_report.h"

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
constexpr double kLeft = 62, kRight = kWidth - 20, kTop = 30, kBottom = kHeight - 48;  // the plot
constexpr std::size_t kColours = 8;        // of the style's classes s0 and f0, s1 and f1, ...
constexpr std::size_t kNoisyPoints = 150;  // a longer line is drawn pale under its running mean
constexpr std::size_t kMarkedPoints = 24;  // a shorter line shows where its points are
constexpr std::size_t kMaxPoints = 800;    // points of a line: more are not visible at this width

double text_width(std::string_view text) { return 6.6 * static_cast<double>(text.size()); }

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
struct Axis {
  double from, to;
  bool log;
  double low = std::numeric_limits<double>::infinity(), high = -low;  // scaled

  double scaled(double value) const { return log ? std::log10(value) : value; }
  bool shows(double value) const { return std::isfinite(scaled(value)); }
  void include(double value) {
    low = std::min(low, scaled(value));
    high = std::max(high, scaled(value));
  }
  /// Room on both sides, and some around a single value.
  void pad(double share) {
    if (low > high) {
      low = 0;
      high = 1;
    }
    const double single = log ? 0.3 : std::max(std::abs(low) * 0.1, 1e-6);
    const double room = high > low ? (high - low) * share : single;
    low -= room;
    high += room;
  }
  double at(double value) const {
    return from + (scaled(value) - low) / (high - low) * (to - from);
  }
  std::vector<double> ticks(int count) const {
    if (log) return nice_ticks(std::pow(10, low), std::pow(10, high), count, true);
    return nice_ticks(low, high, count);
  }
};

/// What points and labels cover, so that a label finds a free place.
class Room {
 public:
  void occupy(double left, double top, double right, double bottom) {
    taken_.push_back({left, top, right, bottom});
  }
  /// The text around a point where it covers nothing, inside the plot; empty where there is no
  /// room.
  std::string put(double x, double y, const std::string& text) {
    struct Place {
      double right, down, before;  // the last: the share of the text that is left of its anchor
    };
    static constexpr Place kAround[] = {{9, 4, 0},     {-9, 4, 1},  {0, -10, 0.5}, {0, 19, 0.5},
                                        {8, -8, 0},    {8, 16, 0},  {-8, -8, 1},   {-8, 16, 1},
                                        {0, -24, 0.5}, {0, 33, 0.5}};
    const double width = text_width(text);
    for (const Place& place : kAround) {
      const double left = x + place.right - place.before * width, below = y + place.down;
      const Box box = {left - 2, below - 11, left + width + 2, below + 4};
      if (box.left < kLeft || box.right > kRight + 12 || box.top < kTop - 12 ||
          box.bottom > kBottom || std::ranges::any_of(taken_, [&](const Box& other) {
            return box.left < other.right && other.left < box.right && box.top < other.bottom &&
                   other.top < box.bottom;
          }))
        continue;
      taken_.push_back(box);
      const char* anchor = place.before == 0 ? "start" : place.before == 1 ? "end" : "middle";
      return text_at(x + place.right, below, anchor, text, "label halo");
    }
    return "";
  }

 private:
  struct Box {
    double left, top, right, bottom;
  };
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
    const auto [low, high] = std::ranges::minmax_element(at(i), at(i + 1), {}, &Point::y);
    kept.push_back(*std::min(low, high));
    kept.push_back(*std::max(low, high));
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
        x_{kLeft, kRight, chart.log_x},
        y_{kBottom, kTop, chart.log_y} {
    for (const Series& series : chart.series) {
      Points& kept = lines_.emplace_back(series.points);
      std::erase_if(kept, [&](const Point& p) { return !x_.shows(p.x) || !y_.shows(p.y); });
      if (series.connected) std::ranges::stable_sort(kept, {}, &Point::x);
      for (const Point& point : kept) {
        x_.include(point.x);
        y_.include(point.y);
      }
    }
    for (const ReferenceLine& line : chart.references)
      if (y_.shows(line.y)) y_.include(line.y);
    x_.pad(labelled ? 0.06 : chart.log_x ? 0.03 : 0.01);
    y_.pad(0.06);
  }

  /// A <figure> under the chart's title.
  std::string figure() {
    const double top = legend();
    svg_ += fmt::format("<g transform=\"translate(0 {:.0f})\">\n", top);
    axes();
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (!chart_.series[i].connected || lines_[i].size() < 2) continue;
      const bool noisy = !labelled_ && lines_[i].size() > kNoisyPoints;
      polyline(thinned(lines_[i]), i, noisy ? " pale" : "");
      if (noisy) polyline(thinned(running_mean(lines_[i])), i, "");
    }
    references();
    for (std::size_t i = 0; i < lines_.size(); ++i) marks(i);
    for (const Points& line : lines_)
      for (const Point& point : line)
        if (labelled_ && !point.label.empty())
          svg_ += room_.put(x_.at(point.x), y_.at(point.y), point.label);
    return fmt::format(
        "<figure>\n<figcaption>{0}</figcaption>\n<svg viewBox=\"0 0 {1:.0f} {2:.0f}\" "
        "role=\"img\" aria-label=\"{0}\">\n{3}</g>\n</svg>\n</figure>\n",
        escape_html(chart_.title), kWidth, top + kHeight, svg_);
  }

 private:
  /// A key for each series, in rows as wide as the picture. Returns the height of all.
  double legend() {
    constexpr double kRow = 18, kKey = 32, kGap = 20;
    double x = 8, y = kRow - 4;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const auto& [name, points, connected] = chart_.series[i];
      const std::string detail = labelled_ ? "" : detail_of(lines_[i]);
      const double width = kKey + text_width(name + detail);
      if (x > 8 && x + width > kWidth) {
        x = 8;
        y += kRow;
      }
      if (connected)
        svg_ += fmt::format("<path class=\"line s{}\" d=\"M{:.1f} {:.1f}h24\"/>\n", i % kColours, x,
                            y - 4);
      if (!connected || i >= kColours) svg_ += mark(x + 12, y - 4, 4.5, i, "");
      svg_ += fmt::format(
          "<text class=\"label\" x=\"{:.1f}\" y=\"{:.1f}\">{}<tspan>{}</tspan></text>\n", x + kKey,
          y, escape_html(name), escape_html(detail));
      x += width + kGap;
    }
    return lines_.empty() ? 0 : y + 10;
  }

  static std::string detail_of(const Points& line) {
    if (line.empty()) return " no values";
    const Point& least = *std::ranges::min_element(line, {}, &Point::y);
    return fmt::format(" last {:.4g}, least {:.4g} at {}", line.back().y, least.y,
                       tick_text(least.x, 5));
  }

  void axes() {
    const std::vector<double> y_ticks = y_.ticks(6), x_ticks = x_.ticks(7);
    const std::vector<std::string> y_texts = tick_texts(y_ticks), x_texts = tick_texts(x_ticks);
    for (std::size_t i = 0; i < y_ticks.size(); ++i) {
      const double y = y_.at(y_ticks[i]);
      svg_ += line_at(kLeft, y, kRight, y, "grid") + text_at(kLeft - 8, y + 4, "end", y_texts[i]);
    }
    for (std::size_t i = 0; i < x_ticks.size(); ++i) {
      const double x = x_.at(x_ticks[i]);
      svg_ += line_at(x, kBottom, x, kBottom + 5, "axis") +
              text_at(x, kBottom + 19, "middle", x_texts[i]);
    }
    // The label of y lies above its axis: a turned one is slower to read.
    svg_ += line_at(kLeft, kBottom, kRight, kBottom, "axis") +
            text_at((kLeft + kRight) / 2, kHeight - 8, "middle", chart_.x_label) +
            text_at(8, 14, "start", chart_.y_label);
  }

  void polyline(const Points& points, std::size_t series, std::string_view more_classes) {
    svg_ += fmt::format("<path class=\"line s{}{}\" d=\"", series % kColours, more_classes);
    char step = 'M';
    for (const Point& point : points) {
      svg_ += fmt::format("{}{:.1f} {:.1f}", step, x_.at(point.x), y_.at(point.y));
      step = 'L';
    }
    svg_ += "\"/>\n";
  }

  void references() {
    for (const auto& [label, value] : chart_.references) {
      if (!y_.shows(value)) continue;
      const double y = y_.at(value), left = kRight - 2 - text_width(label);
      svg_ += line_at(kLeft, y, kRight, y, "reference");
      svg_ += text_at(kRight - 2, y - 6, "end", label, "halo");
      room_.occupy(left, y - 17, kRight, y);
    }
  }

  void marks(std::size_t i) {
    for (const Point& point : lines_[i]) {
      const bool last = &point == &lines_[i].back();
      if (!labelled_ && !last && lines_[i].size() > kMarkedPoints) continue;
      const double x = x_.at(point.x), y = y_.at(point.y);
      std::string hint = chart_.series[i].name;
      if (!point.label.empty()) hint += (hint.empty() ? "" : ", ") + point.label;
      svg_ += mark(x, y,
                   labelled_ ? 5
                   : last    ? 4
                             : 3,
                   i, fmt::format("{}: {:.5g}, {:.5g}", hint, point.x, point.y));
      room_.occupy(x - 6, y - 6, x + 6, y + 6);
    }
  }

  const Chart& chart_;
  const bool labelled_;
  Axis x_, y_;
  std::vector<Points> lines_;  // the points of each series that can be drawn
  Room room_;
  std::string svg_;
};

}  // namespace

void Chart::add(const std::string& name, Point point, bool connected) {
  auto at = std::ranges::find(series, name, &Series::name);
  if (at == series.end())
    at = series.insert(at, {.name = name, .points = {}, .connected = connected});
  at->points.push_back(std::move(point));
}

std::string line_chart(const Chart& chart) { return Drawing(chart, false).figure(); }
std::string points_chart(const Chart& chart) { return Drawing(chart, true).figure(); }

std::string_view chart_style() { return kChartStyle; }

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : replace_invalid_utf8(text)) {
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
