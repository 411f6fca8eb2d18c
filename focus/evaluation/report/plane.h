#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "focus/evaluation/report/charts.h"

// What charts are drawn with: the plane between two axes, lines, marks, and labels where there is
// room. Places are in the units of the picture.
namespace focus {

std::string escape_html(std::string_view text);

/// Round numbers (1, 2 or 5 times a power of ten) that span low..high, about `count` of them. With
/// `log` powers of ten, and 2 and 5 times these where there are few; both limits are positive then.
std::vector<double> nice_ticks(double low, double high, int count, bool log = false);
/// Short, with so many significant digits: 0.25, 12k, 1e-06.
std::string tick_text(double value, int digits = 5);
/// Of rising ticks, with as many digits as tell them apart.
std::vector<std::string> tick_texts(const std::vector<double>& ticks);

namespace chart {

inline constexpr double kWidth = 780, kHeight = 380;
inline constexpr double kLeft = 62, kRight = 20, kTop = 30, kBottom = 48;
inline constexpr std::size_t kColours = 8;  // of the style's classes s0 and f0, s1 and f1, ...

using Points = std::vector<std::pair<double, double>>;

std::string text_at(double x, double y, std::string_view anchor, std::string_view text,
                    std::string_view classes = "");
std::string line_at(double x1, double y1, double x2, double y2, std::string_view classes);
/// A point of a series: its colour, and another shape where the colours begin anew. `hint` is shown
/// under the pointer.
std::string mark(double x, double y, double radius, std::size_t series,
                 const std::string& hint = "");
/// What a legend says of a series that is drawn as a line.
std::string line_key(std::size_t series, const std::string& name, const std::string& detail = "");
std::string figure(const std::string& title, const std::string& legend, double height,
                   const std::string& svg);

/// Where something has been drawn, so that labels find a free place.
class Room {
 public:
  struct Place {
    double x, y;
    std::string_view anchor;
  };

  void occupy(double left, double top, double right, double bottom);
  void occupy_line(double x1, double y1, double x2, double y2);
  /// The text at the least crowded of the places; none where more than `most` of it would be over
  /// something else or outside the plot.
  std::string put(std::span<const Place> places, const std::string& text, std::string_view classes,
                  double most = std::numeric_limits<double>::infinity());

 private:
  struct Box {
    double left, top, right, bottom;
  };
  static Box text_box(const Place& place, std::string_view text);
  double crowding(const Box& box) const;

  std::vector<Box> taken_;
};

struct Limits {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value);
};

/// The plot area: limits in data, and where a value lies in the picture.
class Plane {
 public:
  /// Around these limits and the reference lines, with some room: `x_room` of the width on both
  /// sides.
  Plane(Limits x, Limits y, const std::vector<ReferenceLine>& references, double x_room,
        bool log_x = false, bool log_y = false);

  double at_x(double value) const;
  double at_y(double value) const;

  std::string axes(const std::string& x_label, const std::string& y_label) const;
  std::string polyline(const Points& points, std::size_t colour,
                       std::string_view more_classes = "") const;
  std::string references(const std::vector<ReferenceLine>& lines, Room& room) const;

 private:
  bool shown(const ReferenceLine& line) const;

  Limits x_, y_;
  bool log_x_, log_y_;
};

}  // namespace chart
}  // namespace focus
