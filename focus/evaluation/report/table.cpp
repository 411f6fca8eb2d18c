#include "focus/evaluation/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/base/check.h"

namespace focus {

void check_rows(const Table& table) {
  const std::size_t columns = table.header.size();
  for (const auto& row : table.rows)
    check(row.size() == columns, "report: table \"{}\" has {} columns, got a row of {}",
          table.caption, columns, row.size());
}

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

}  // namespace focus
