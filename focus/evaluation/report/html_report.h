#pragma once

#include <string>
#include <string_view>

#include "focus/evaluation/report/table.h"

namespace focus {

/// One HTML page without scripts or anything from outside: style inside, charts as SVG, light or
/// dark as the reader's system is, fit for print. All text given is escaped.
class HtmlReport {
 public:
  explicit HtmlReport(std::string title);

  void heading(std::string_view text);
  void paragraph(std::string_view text);
  /// Throws std::invalid_argument where a row has not as many cells as the header.
  void table(const Table& table);
  /// What line_chart_svg() and its like return, or other HTML as it is.
  void figure(std::string_view figure);
  /// More CSS for such HTML.
  void style(std::string_view css);

  std::string html() const;

 private:
  std::string title_;
  std::string style_;
  std::string body_;
};

}  // namespace focus
