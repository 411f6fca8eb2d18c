#include "focus/evaluation/report/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "autograd/base/check.h"

namespace focus {
namespace {

constexpr std::string_view kPageStyle = R"(
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
/* A table with many columns is wider than the text, up to the window. */
.scroll {
  overflow-x: auto; margin: 1.5rem 0; position: relative; left: 50%; transform: translateX(-50%);
  width: max-content; min-width: 100%; max-width: calc(100vw - 3rem);
}
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
table.wide { font-size: .85rem; line-height: 1.4; }
table.wide :is(th, td):is(:first-child, :not(:first-child)) { padding: .25rem .45rem; }
caption { padding-bottom: .4rem; }
th, td { padding: .35rem .9rem .35rem 0; text-align: left; border-bottom: 1px solid var(--rule); }
th:not(:first-child), td:not(:first-child) { padding-left: .9rem; }
th { color: var(--soft); font-weight: 600; border-bottom-width: 2px; }
.number { text-align: right; }
td.number { white-space: nowrap; }
figure > svg { display: block; width: 100%; height: auto; }
/* On a narrow window a chart keeps a size at which its words can be read. */
@media screen and (max-width: 40rem) {
  figure { overflow-x: auto; }
  figure > svg { width: 38rem; }
}
.shares td { text-align: right; background: rgb(0 130 190 / calc(var(--h, 0) * .6)); }
.shares td:first-child { text-align: left; }
.shares th { font-size: .78rem; }
table.shares :is(th, td):is(:first-child, :not(:first-child)) { padding: .2rem .3rem; }
@media print {
  :root { --page: #fff; --ink: #000; --soft: #444; --rule: #bbb; --grid: #ddd; }
  body { padding: 0; max-width: none; font-size: 11pt; }
  .scroll { overflow: visible; max-width: none; font-size: .8em; }
}
)";

/// "3.25", "-", "41 %", "1.2k" and "" belong into a column of numbers; "3 layers" does not.
bool looks_numeric(const std::string& cell) {
  if (cell.empty() || cell == "-") return true;
  char* end = nullptr;
  std::strtod(cell.c_str(), &end);
  if (end == cell.c_str()) return false;
  static constexpr std::string_view kUnitCharacters = " %+-.,0123456789kKMGTiBxs";
  return std::string_view(end).find_first_not_of(kUnitCharacters) == std::string_view::npos;
}

/// Throws std::invalid_argument where a row is not as wide as the header.
void check_rows(const Table& table) {
  const std::size_t columns = table.header.size();
  for (const auto& row : table.rows)
    check(row.size() == columns, "report: table \"{}\" has {} columns, got a row of {}",
          table.caption, columns, row.size());
}

}  // namespace

std::string plain_text(const Table& table, std::size_t left) {
  check_rows(table);
  std::vector<std::vector<std::string>> lines = {table.header};
  lines.insert(lines.end(), table.rows.begin(), table.rows.end());
  std::vector<std::size_t> widths(table.header.size());
  for (const auto& line : lines)
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  std::string text = table.caption + "\n";
  for (const auto& line : lines) {
    for (std::size_t c = 0; c < line.size(); ++c)
      text += c < left ? fmt::format("{:<{}}  ", line[c], widths[c])
                       : fmt::format("{:>{}}  ", line[c], widths[c]);
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

std::string percent_text(std::optional<double> share) {
  return share && std::isfinite(*share) ? fmt::format("{:.1f} %", 100 * *share) : "-";
}

std::string number_text(std::optional<double> value, int digits) {
  return value && std::isfinite(*value) ? fmt::format("{:.{}f}", *value, digits) : "-";
}

void HtmlReport::table(const Table& table) {
  constexpr std::size_t kWide = 10;
  check_rows(table);
  const bool shares = table.whole > 0;
  body_ += fmt::format("<div class=\"scroll\"><table class=\"{}\">\n", shares ? "wide shares"
                                                                       : table.header.size() > kWide
                                                                           ? "wide"
                                                                           : "");
  if (!table.caption.empty())
    body_ += fmt::format("<caption>{}</caption>\n", escape_html(table.caption));
  body_ += "<thead><tr>";
  std::vector<std::string_view> classes;
  for (std::size_t c = 0; c < table.header.size(); ++c) {
    const bool is_number =
        !shares && !table.rows.empty() &&
        std::ranges::all_of(table.rows, [c](const auto& row) { return looks_numeric(row[c]); });
    classes.push_back(is_number ? " class=\"number\"" : "");
    body_ += fmt::format("<th scope=\"col\"{}>{}</th>", classes[c], escape_html(table.header[c]));
  }
  body_ += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    body_ += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c) {
      const double share = shares ? std::strtod(row[c].c_str(), nullptr) / table.whole : 0;
      const std::string style =
          shares && c > 0 ? fmt::format(" style=\"--h:{:.2f}\"", std::clamp(share, 0.0, 1.0)) : "";
      body_ += fmt::format("<td{}{}>{}</td>", classes[c], style, escape_html(row[c]));
    }
    body_ += "</tr>\n";
  }
  body_ += "</tbody>\n</table></div>\n";
}

std::string HtmlReport::html() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n{2}</body>\n"
      "</html>\n",
      escape_html(title_), fmt::format("{}{}{}", chart_style(), kPageStyle, style_), body_);
}

}  // namespace focus
