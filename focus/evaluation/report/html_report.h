#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  /// Shares of named rows; a cell is the darker the larger its share. Shown times `factor`.
  void shares_table(const std::string& caption, const std::vector<std::string>& header,
                    const std::vector<std::pair<std::string, std::vector<double>>>& rows,
                    int digits, double factor);
  /// HTML as it is, such as a chart, and more CSS for it.
  void figure(std::string_view html);
  void style(std::string_view css);

  std::string html() const;

 private:
  void begin_table(std::string_view classes, const std::string& caption,
                   const std::vector<std::string>& header, const std::vector<bool>& is_number);

  std::string title_;
  std::string style_;
  std::string body_;
};

}  // namespace focus
