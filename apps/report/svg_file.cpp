#include "apps/report/svg_file.h"

#include <fmt/format.h>

#include "apps/report/html_chart.h"

namespace focus {

std::string svg_file(const LineChart& chart) {
  constexpr double kRow = 18, kTitle = 26, kLeft = 8;
  const ChartDrawing drawing = draw_line_chart(chart);
  std::string legend;
  double y = kTitle + kRow;
  for (const ChartDrawing::Key& key : drawing.legend) {
    legend += fmt::format(
        "<path class=\"line s{}\" d=\"M{:.0f} {:.0f}h24\"/>\n"
        "<text class=\"label\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n",
        key.colour, kLeft, y - 4, kLeft + 32, y, escape_html(key.name));
    y += kRow;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" "
      "aria-label=\"{2}\">\n<style>{3}svg text.title {{ font-size: 15px; font-weight: 600; }}\n"
      "</style>\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" style=\"fill: var(--page)\"/>\n"
      "<text class=\"label title\" x=\"{4:.0f}\" y=\"20\">{2}</text>\n{5}"
      "<g transform=\"translate(0 {6:.0f})\">\n{7}</g>\n</svg>\n",
      drawing.width, y + drawing.height, escape_html(chart.title), chart_style(), kLeft, legend, y,
      drawing.svg);
}

}  // namespace focus
