#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Charts as SVG, tables, and the pages that hold them.
namespace focus {

struct Point {
  double x = 0, y = 0;
  std::string label = {};
};
struct Series {
  std::string name = {};
  std::vector<Point> points = {};
  bool connected = true;
};
/// A horizontal line across a chart, such as the dense model's perplexity.
struct ReferenceLine {
  std::string label = {};
  double y = 0;
};
/// Points with NaN or infinity are left out.
struct Chart {
  std::string title = {}, x_label = {}, y_label = {};
  std::vector<Series> series = {};
  std::vector<ReferenceLine> references = {};
  bool log_x = false, log_y = false;  // leave out points that are not positive

  /// Adds to the series of that name, a new one if it is missing.
  void add(const std::string& name, Point point, bool connected = true);
};

/// Values over steps, x rising: a <figure> with an SVG. The legend says the last and the least
/// value; a long, noisy series is drawn pale under its running mean.
std::string line_chart(const Chart& chart);
/// Points with a label each where there is room, such as perplexity against density.
std::string points_chart(const Chart& chart);

/// The CSS of charts: colours for light and dark pages, lines, text.
std::string_view chart_style();
std::string escape_html(std::string_view text);

/// Round numbers (1, 2 or 5 times a power of ten) that span low..high, about `count` of them. With
/// `log` powers of ten, and 2 and 5 times these where there are few; both limits are positive then.
std::vector<double> nice_ticks(double low, double high, int count, bool log = false);
/// Rising ticks, short (0.25, 12k, 1e-06), with as many digits as tell them apart.
std::vector<std::string> tick_texts(const std::vector<double>& ticks);

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
  explicit HtmlReport(std::string title) : title_(std::move(title)) {}

  void heading(std::string_view text) { body_ += "<h2>" + escape_html(text) + "</h2>\n"; }
  void paragraph(std::string_view text) { body_ += "<p>" + escape_html(text) + "</p>\n"; }
  void table(const Table& table);
  /// HTML as it is, such as a chart, and more CSS for it.
  void figure(std::string_view html) { body_ += html; }
  void style(std::string_view css) { style_ += css; }

  std::string html() const;

 private:
  std::string title_, style_, body_;
};

}  // namespace focus
