#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

struct Table {
  std::string caption = {};
  std::vector<std::string> header = {};
  std::vector<std::vector<std::string>> rows = {};  // columns of numbers are set to the right
  /// Above 0: all cells but the first of a row are shares of it; a page draws them the darker the
  /// larger they are.
  double whole = 0;
};

/// A table for a terminal under its caption: the first columns set to the left, as many as `left`,
/// the others to the right. Throws std::invalid_argument where a row has not as many cells as the
/// header, as HtmlReport::table() does.
std::string plain_text(const Table& table, std::size_t left = 0);

/// 0.123 as "12.3 %"; "-" without a finite number.
std::string percent_text(std::optional<double> share);
/// With so many decimals; "-" without a finite number.
std::string number_text(std::optional<double> value, int digits);

/// One HTML page without scripts or anything from outside: style inside, charts as SVG, for light
/// and dark systems and for print. All text given is escaped.
class HtmlReport {
 public:
  explicit HtmlReport(std::string title);

  void heading(std::string_view text);
  void paragraph(std::string_view text);
  void table(const Table& table);
  /// HTML as it is, such as a chart, and more CSS for it.
  void figure(std::string_view html);
  void style(std::string_view css);

  std::string html() const;

 private:
  std::string title_, style_, body_;
};

}  // namespace focus
