#include "apps/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "apps/html_chart.h"
#include "autograd/check.h"

namespace focus {
namespace {

// Eight hues that stay apart for readers who do not see red and green as others do, after the set
// of Okabe and Ito; lines also differ by their dashes. Dark pages get lighter ones.
constexpr std::string_view kStyle = R"(
:root {
  color-scheme: light dark;
  --page: #ffffff; --ink: #1b1f24; --soft: #5b6570; --rule: #d9dee3; --grid: #e9ecef;
  --mark: #fff4d6;
  --c0: #0072b2; --c1: #d55e00; --c2: #00856a; --c3: #b8578f;
  --c4: #b97a00; --c5: #3a9bd6; --c6: #6a51a3; --c7: #4d4d4d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15181c; --ink: #e8eaed; --soft: #a2abb5; --rule: #363c44; --grid: #272c32;
    --mark: #3a3216;
    --c0: #58a6e8; --c1: #ff8f4d; --c2: #3ecfa5; --c3: #e79ac8;
    --c4: #f0b429; --c5: #8fd0f7; --c6: #b3a0e6; --c7: #c4c9cf;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 52rem;
  background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 1.2rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; }
p { margin: .6rem 0; max-width: 44rem; }
figure { margin: 2rem 0; break-inside: avoid; }
figcaption, caption { font-weight: 600; text-align: left; margin-bottom: .4rem; }
.scroll { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
caption { padding-bottom: .4rem; }
th, td { padding: .35rem .9rem .35rem 0; text-align: left; border-bottom: 1px solid var(--rule); }
th:not(:first-child), td:not(:first-child) { padding-left: .9rem; }
th { color: var(--soft); font-weight: 600; border-bottom-width: 2px; }
.number { text-align: right; }
tr.marked td { background: var(--mark); font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; font-size: .85rem; margin: .2rem 0; }
.legend span { white-space: nowrap; }
.legend svg { width: 26px; height: 10px; margin-right: .4rem; }
.legend .swatch { width: 12px; }
.legend i { font-style: normal; color: var(--soft); }
figure > svg { display: block; width: 100%; height: auto; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--soft); }
svg text.label { fill: var(--ink); }
svg text.on { fill: var(--page); }
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
@media print {
  :root { --page: #fff; --ink: #000; --soft: #444; --rule: #bbb; --grid: #ddd; --mark: #eee; }
  body { padding: 0; max-width: none; font-size: 11pt; }
  .scroll { overflow: visible; }
}
)";

/// "3.25", "-", "41 %", "1.2k" and "" belong into a column of numbers; "3 layers" does not.
bool looks_numeric(const std::string& cell) {
  if (cell.empty() || cell == "-") return true;
  char* end = nullptr;
  std::strtod(cell.c_str(), &end);
  if (end == cell.c_str()) return false;
  static constexpr std::string_view kUnitCharacters = " %+-.,0123456789kMGTxs";
  return std::string_view(end).find_first_not_of(kUnitCharacters) == std::string_view::npos;
}

}  // namespace

HtmlReport::HtmlReport(std::string title) : title_(std::move(title)) {}

void HtmlReport::heading(std::string_view text) {
  body_ += fmt::format("<h2>{}</h2>\n", escape_html(text));
}

void HtmlReport::paragraph(std::string_view text) {
  body_ += fmt::format("<p>{}</p>\n", escape_html(text));
}

void HtmlReport::table(const Table& table) {
  const std::size_t columns = table.header.size();
  for (const auto& row : table.rows)
    check(row.size() == columns, "report: table \"{}\" has {} columns, came a row of {}",
          table.caption, columns, row.size());

  std::vector<std::string> cell_class(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    const bool numeric =
        !table.rows.empty() &&
        std::ranges::all_of(table.rows, [c](const auto& row) { return looks_numeric(row[c]); });
    if (numeric) cell_class[c] = " class=\"number\"";
  }

  body_ += "<div class=\"scroll\"><table>\n";
  if (!table.caption.empty())
    body_ += fmt::format("<caption>{}</caption>\n", escape_html(table.caption));
  body_ += "<thead><tr>";
  for (std::size_t c = 0; c < columns; ++c)
    body_ +=
        fmt::format("<th scope=\"col\"{}>{}</th>", cell_class[c], escape_html(table.header[c]));
  body_ += "</tr></thead>\n<tbody>\n";
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    body_ += table.highlighted_row == r ? "<tr class=\"marked\">" : "<tr>";
    for (std::size_t c = 0; c < columns; ++c)
      body_ += fmt::format("<td{}>{}</td>", cell_class[c], escape_html(table.rows[r][c]));
    body_ += "</tr>\n";
  }
  body_ += "</tbody>\n</table></div>\n";
}

void HtmlReport::line_chart(const LineChart& chart) { body_ += line_chart_svg(chart); }
void HtmlReport::points_chart(const PointsChart& chart) { body_ += points_chart_svg(chart); }
void HtmlReport::stacked_bars(const StackedBars& chart) { body_ += stacked_bars_svg(chart); }

std::string HtmlReport::html() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n{2}</body>\n"
      "</html>\n",
      escape_html(title_), kStyle, body_);
}

}  // namespace focus
