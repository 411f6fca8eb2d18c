#pragma once

#include <string>
#include <string_view>

#include "focus/evaluation/report/table.h"

namespace focus {

/// One HTML page without scripts or anything from outside: style inside, charts as SVG, for light
/// and dark systems and for print. All text given is escaped.
class HtmlReport {
 public:
  explicit HtmlReport(std::string title);

  void heading(std::string_view text);
  void paragraph(std::string_view text);
  /// Throws std::invalid_argument where a row has not as many cells as the header.
  void table(const Table& table);
  /// HTML as it is, such as a chart, and more CSS for it.
  void figure(std::string_view html);
  void style(std::string_view css);

  std::string html() const;

 private:
  std::string title_, style_, body_;
};

}  // namespace focus
