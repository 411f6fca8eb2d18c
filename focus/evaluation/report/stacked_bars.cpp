#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/base/check.h"
#include "focus/evaluation/report/plane.h"

namespace focus {
namespace {

using namespace chart;

std::string area_key(std::size_t colour, const std::string& name) {
  return fmt::format(
      "<span><svg class=\"swatch\" viewBox=\"0 0 12 10\"><rect class=\"f{}\" width=\"12\" "
      "height=\"10\" "
      "rx=\"2\"/></svg>{}</span>\n",
      colour, escape_html(name));
}

}  // namespace

std::string stacked_bars_svg(const StackedBars& chart) {
  constexpr double kRow = 26, kBar = 18, kCharacter = 6.8;
  std::size_t longest = 0;
  for (const auto& [name, parts] : chart.rows) {
    check(parts.size() == chart.segment_names.size(),
          "report: chart \"{}\" has {} segments, but row \"{}\" has {}", chart.title,
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
