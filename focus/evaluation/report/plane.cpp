#include "focus/evaluation/report/plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace focus {

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

std::string tick_text(double value, int digits) {
  const double size = std::abs(value);
  if (size >= 10'000) {
    const std::string scaled =
        fmt::format("{:.{}g}", value / (size >= 1e6 ? 1e6 : 1e3), std::max(digits, 6));
    return scaled + (size >= 1e6 ? "M" : "k");
  }
  return fmt::format("{:.{}g}", value, digits);
}

std::vector<std::string> tick_texts(const std::vector<double>& ticks) {
  constexpr int kMostDigits = 12;
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 0;
  const auto is_far = [&](double tick, int digits) {
    return std::abs(std::stod(fmt::format("{:.{}g}", tick, digits)) - tick) > 0.01 * step;
  };
  int digits = 5;
  while (step > 0 && digits < kMostDigits &&
         std::ranges::any_of(ticks, [&](double tick) { return is_far(tick, digits); }))
    ++digits;
  std::vector<std::string> texts;
  texts.reserve(ticks.size());
  for (const double tick : ticks) texts.push_back(tick_text(tick, digits));
  return texts;
}

namespace chart {
namespace {

/// Room on both sides, and some around a single value.
void pad(Limits& limits, double share, bool log) {
  if (limits.low > limits.high) limits = {log ? 1.0 : 0.0, log ? 10.0 : 1.0};
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

/// How far a value is from the low limit to the high one, 0 to 1.
double share(double value, const Limits& limits, bool log) {
  const auto scale = [log](double v) { return log ? std::log10(v) : v; };
  return (scale(value) - scale(limits.low)) / (scale(limits.high) - scale(limits.low));
}

}  // namespace

std::string text_at(double x, double y, std::string_view anchor, std::string_view text,
                    std::string_view classes) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, classes.empty() ? "" : fmt::format(" class=\"{}\"", classes),
                     escape_html(text));
}

std::string line_at(double x1, double y1, double x2, double y2, std::string_view classes) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2,
      y2, classes);
}

std::string figure(const std::string& title, const std::string& legend, double height,
                   const std::string& svg) {
  return fmt::format(
      "<figure>\n<figcaption>{0}</figcaption>\n<div class=\"legend\">{1}</div>\n"
      "<svg viewBox=\"0 0 {2:.0f} {3:.0f}\" role=\"img\" aria-label=\"{0}\">\n{4}</svg>\n"
      "</figure>\n",
      escape_html(title), legend, kWidth, height, svg);
}

std::string mark(double x, double y, double radius, std::size_t series, const std::string& hint) {
  const double r = radius * 1.1;
  const std::size_t shape = series / kColours % 4;
  std::string data;
  if (shape == 0)
    data = fmt::format("cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"", x, y, radius);
  else if (shape == 1)
    data = fmt::format("d=\"M{0:.1f} {1:.1f}h{2:.1f}v{2:.1f}h-{2:.1f}z\"", x - r, y - r, 2 * r);
  else if (shape == 2)
    data = fmt::format("d=\"M{:.1f} {:.1f}l{:.1f} {:.1f}h-{:.1f}z\"", x, y - 1.3 * r, 1.3 * r,
                       2.2 * r, 2.6 * r);
  else
    data = fmt::format("d=\"M{0:.1f} {1:.1f}l{2:.1f} {2:.1f}l-{2:.1f} {2:.1f}l-{2:.1f} -{2:.1f}z\"",
                       x, y - 1.4 * r, 1.4 * r);
  return fmt::format("<{0} class=\"dot f{1}\" {2}>{3}</{0}>\n", shape == 0 ? "circle" : "path",
                     series % kColours, data,
                     hint.empty() ? "" : fmt::format("<title>{}</title>", escape_html(hint)));
}

std::string line_key(std::size_t series, const std::string& name, const std::string& detail) {
  return fmt::format(
      "<span><svg viewBox=\"0 0 26 10\"><path class=\"line s{}\" d=\"M1 5H25\"/>{}</svg>{}"
      "<i>{}</i></span>\n",
      series % kColours, series < kColours ? "" : mark(13, 5, 4, series), escape_html(name),
      escape_html(detail));
}

void Room::occupy(double left, double top, double right, double bottom) {
  taken_.push_back({left, top, right, bottom});
}

void Room::occupy_line(double x1, double y1, double x2, double y2) {
  const int steps = static_cast<int>(std::hypot(x2 - x1, y2 - y1) / 5) + 1;
  for (int i = 0; i <= steps; ++i) {
    const double x = x1 + (x2 - x1) * i / steps, y = y1 + (y2 - y1) * i / steps;
    occupy(x - 2, y - 2, x + 2, y + 2);
  }
}

Room::Box Room::text_box(const Place& place, std::string_view text) {
  const double width = 6.6 * static_cast<double>(text.size());
  const double before = place.anchor == "start" ? 0 : place.anchor == "end" ? width : width / 2;
  const double left = place.x - before;
  return {left - 2, place.y - 11, left + width + 2, place.y + 4};
}

/// How much of the box is over others, or outside the plot.
double Room::crowding(const Box& box) const {
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

std::string Room::put(std::span<const Place> places, const std::string& text,
                      std::string_view classes, double most) {
  const auto crowd = [&](const Place& place) { return crowding(text_box(place, text)); };
  const Place& best = *std::ranges::min_element(places, {}, crowd);
  const Box box = text_box(best, text);
  if (crowding(box) > most * (box.right - box.left) * (box.bottom - box.top)) return "";
  taken_.push_back(box);
  return text_at(best.x, best.y, best.anchor, text, classes);
}

void Limits::include(double value) {
  low = std::min(low, value);
  high = std::max(high, value);
}

Plane::Plane(Limits x, Limits y, const std::vector<ReferenceLine>& references, double x_room,
             bool log_x, bool log_y)
    : x_(x), y_(y), log_x_(log_x), log_y_(log_y) {
  for (const ReferenceLine& line : references)
    if (shown(line)) y_.include(line.y);
  pad(x_, x.low == x.high ? 0.1 : x_room, log_x);
  pad(y_, 0.06, log_y);
}

bool Plane::shown(const ReferenceLine& line) const {
  return std::isfinite(line.y) && (!log_y_ || line.y > 0);
}

double Plane::at_x(double value) const {
  return kLeft + share(value, x_, log_x_) * (kWidth - kLeft - kRight);
}
double Plane::at_y(double value) const {
  return kHeight - kBottom - share(value, y_, log_y_) * (kHeight - kTop - kBottom);
}

std::string Plane::axes(const std::string& x_label, const std::string& y_label) const {
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  std::string svg;
  const std::vector<double> y_ticks = nice_ticks(y_.low, y_.high, 6, log_y_),
                            x_ticks = nice_ticks(x_.low, x_.high, 7, log_x_);
  const std::vector<std::string> y_texts = tick_texts(y_ticks), x_texts = tick_texts(x_ticks);
  for (std::size_t i = 0; i < y_ticks.size(); ++i) {
    const double y = at_y(y_ticks[i]);
    svg += line_at(kLeft, y, right, y, "grid") + text_at(kLeft - 8, y + 4, "end", y_texts[i]);
  }
  for (std::size_t i = 0; i < x_ticks.size(); ++i) {
    const double x = at_x(x_ticks[i]);
    svg +=
        line_at(x, bottom, x, bottom + 5, "axis") + text_at(x, bottom + 19, "middle", x_texts[i]);
  }
  svg += line_at(kLeft, bottom, right, bottom, "axis");
  svg += text_at((kLeft + right) / 2, kHeight - 8, "middle", x_label);
  // Upright above the axis: a turned label is slower to read.
  return svg + text_at(8, 14, "start", y_label);
}

std::string Plane::polyline(const Points& points, std::size_t colour,
                            std::string_view more_classes) const {
  std::string path;
  for (const auto& [x, y] : points)
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", at_x(x), at_y(y));
  return fmt::format("<path class=\"line s{}{}\" d=\"{}\"/>\n", colour, more_classes, path);
}

std::string Plane::references(const std::vector<ReferenceLine>& lines, Room& room) const {
  std::string svg;
  for (const ReferenceLine& line : lines) {
    if (!shown(line)) continue;
    const double y = at_y(line.y), right = kWidth - kRight;
    svg += line_at(kLeft, y, right, y, "reference");
    room.occupy_line(kLeft, y, right, y);
    // At the left or right end, above or below the line: wherever fewest points are.
    const std::array<Room::Place, 4> places = {{{right - 2, y - 6, "end"},
                                                {right - 2, y + 15, "end"},
                                                {kLeft + 6, y - 6, "start"},
                                                {kLeft + 6, y + 15, "start"}}};
    svg += room.put(places, line.label, "halo");
  }
  return svg;
}

}  // namespace chart
}  // namespace focus
