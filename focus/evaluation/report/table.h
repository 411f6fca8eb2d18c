#pragma once

#include <cstddef>
#include <optional>
#include <string>
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

/// Throws std::invalid_argument where a row is not as wide as the header.
void check_rows(const Table& table);

/// A table for a terminal under its caption: the first columns set to the left, as many as
/// `left`, the others to the right.
std::string plain_text(const Table& table, std::size_t left = 0);

/// 0.123 as "12.3 %"; "-" without a finite number.
std::string percent_text(std::optional<double> share);
/// With so many decimals; "-" without a finite number.
std::string number_text(std::optional<double> value, int digits);

}  // namespace focus
