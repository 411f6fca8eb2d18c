#include "focus/evaluation/statistics/agreement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/base/check.h"

namespace focus {
namespace {

double pairs_of(std::int64_t n) {
  return 0.5 * static_cast<double>(n) * static_cast<double>(n - 1);
}

double sum_of_pairs(std::span<const std::int64_t> counts) {
  double sum = 0;
  for (const std::int64_t n : counts) sum += pairs_of(n);
  return sum;
}

}  // namespace

std::vector<std::int64_t> Contingency::row_sums() const {
  std::vector<std::int64_t> sums;
  for (Index a = 0; a < rows; ++a)
    sums.push_back(std::accumulate(row(a).begin(), row(a).end(), std::int64_t{0}));
  return sums;
}

std::vector<std::int64_t> Contingency::col_sums() const {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(cols), 0);
  for (std::size_t i = 0; i < counts.size(); ++i) sums[i % sums.size()] += counts[i];
  return sums;
}

Contingency contingency(std::span<const std::uint8_t> a, Index rows,
                        std::span<const std::uint8_t> b, Index cols) {
  check(a.size() == b.size(), "agreement: {} tokens in one grouping, {} in the other", a.size(),
        b.size());
  Contingency table{.rows = rows,
                    .cols = cols,
                    .counts = std::vector<std::int64_t>(static_cast<std::size_t>(rows * cols), 0),
                    .tokens = static_cast<std::int64_t>(a.size())};
  for (std::size_t t = 0; t < a.size(); ++t) {
    check(a[t] < rows && b[t] < cols, "agreement: token {} is in groups {} and {} of {} and {}", t,
          a[t], b[t], rows, cols);
    ++table.counts[static_cast<std::size_t>(a[t] * cols + b[t])];
  }
  return table;
}

double adjusted_rand_index(const Contingency& table) {
  const double both = sum_of_pairs(table.counts);
  const double in_rows = sum_of_pairs(table.row_sums()), in_cols = sum_of_pairs(table.col_sums());
  const double all = pairs_of(table.tokens);
  if (all == 0) return 1;
  const double chance = in_rows * in_cols / all, most = (in_rows + in_cols) / 2;
  return most == chance ? 1 : (both - chance) / (most - chance);
}

double entropy_of_counts(std::span<const std::int64_t> counts) {
  const auto all =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  double entropy = 0;
  for (const std::int64_t n : counts)
    if (n > 0) entropy -= static_cast<double>(n) / all * std::log(static_cast<double>(n) / all);
  return entropy;
}

double normalised_mutual_information(const Contingency& table) {
  const double rows = entropy_of_counts(table.row_sums());
  const double cols = entropy_of_counts(table.col_sums());
  if (rows + cols == 0) return 1;
  const double information = rows + cols - entropy_of_counts(table.counts);
  return std::clamp(2 * information / (rows + cols), 0.0, 1.0);
}

std::vector<Index> match_groups(const Contingency& table) {
  // Kuhn's method with potentials on a square matrix of costs. Rows and columns are counted from 1;
  // column 0 holds the row that is being placed.
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto rows = static_cast<std::size_t>(table.rows),
             cols = static_cast<std::size_t>(table.cols);
  const std::size_t n = std::max(rows, cols);
  std::vector<double> row_price(n + 1, 0.0), col_price(n + 1, 0.0);
  std::vector<std::size_t> row_of(n + 1, 0);
  const auto reduced = [&](std::size_t row, std::size_t col) {
    const bool real = row <= rows && col <= cols;
    const double kept = real ? static_cast<double>(table.counts[(row - 1) * cols + col - 1]) : 0;
    return -kept - row_price[row] - col_price[col];
  };
  for (std::size_t row = 1; row <= n; ++row) {
    std::vector<double> least(n + 1, kInfinity);
    std::vector<std::size_t> from(n + 1, 0);
    std::vector<bool> used(n + 1, false);
    row_of[0] = row;
    std::size_t col = 0;
    while (row_of[col] != 0) {
      used[col] = true;
      std::size_t next = 0;
      for (std::size_t c = 1; c <= n; ++c) {
        if (used[c]) continue;
        if (const double cost = reduced(row_of[col], c); cost < least[c]) {
          least[c] = cost;
          from[c] = col;
        }
        if (next == 0 || least[c] < least[next]) next = c;
      }
      const double step = least[next];
      for (std::size_t c = 0; c <= n; ++c) {
        if (used[c]) {
          row_price[row_of[c]] += step;
          col_price[c] -= step;
        } else {
          least[c] -= step;
        }
      }
      col = next;
    }
    for (; col != 0; col = from[col]) row_of[col] = row_of[from[col]];
  }
  std::vector<Index> matched(rows, -1);
  for (std::size_t c = 1; c <= cols; ++c)
    if (row_of[c] <= rows) matched[row_of[c] - 1] = static_cast<Index>(c) - 1;
  return matched;
}

double kept_share(const Contingency& table) {
  if (table.tokens == 0) return 1;
  const std::vector<Index> matched = match_groups(table);
  std::int64_t kept = 0;
  for (Index a = 0; a < table.rows; ++a)
    if (const Index b = matched[static_cast<std::size_t>(a)]; b >= 0)
      kept += table.row(a)[static_cast<std::size_t>(b)];
  return static_cast<double>(kept) / static_cast<double>(table.tokens);
}

Agreement agreement(const Contingency& table) {
  return {.rand = adjusted_rand_index(table),
          .information = normalised_mutual_information(table),
          .kept = kept_share(table)};
}

}  // namespace focus
