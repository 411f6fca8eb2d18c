#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace focus {

struct Table {
  std::string caption = {};
  std::vector<std::string> header = {};
  std::vector<std::vector<std::string>> rows = {};  // columns of numbers are set to the right
};

/// Throws std::invalid_argument where a row is not as wide as the header.
void check_rows(const Table& table);

/// A table for a terminal under its caption: the first columns set to the left, as many as
/// `left`, the others to the right.
std::string plain_text(const Table& table, std::size_t left = 0);

/// "12.3 %" of 0.123; "-" of what is no number.
std::string percent_text(double share);
/// So many digits behind the point; "-" of what is no number.
std::string number_text(double value, int digits);

}  // namespace focus
