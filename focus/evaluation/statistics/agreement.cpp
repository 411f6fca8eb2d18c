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

/// Kuhn's method with potentials on a square matrix of costs [n, n], row by row: for each column
/// its row. The columns' and rows' numbers begin with 1 here; 0 is the row that is being placed.
class Assignment {
 public:
  Assignment(Index n, std::vector<double> cost)
      : n_(n), cost_(std::move(cost)), row_price_(size()), col_price_(size()), row_of_(size(), 0) {}

  std::vector<Index> solve() {
    for (Index row = 1; row <= n_; ++row) place(row);
    std::vector<Index> columns(static_cast<std::size_t>(n_));
    for (Index c = 1; c <= n_; ++c) columns[at(row_of_[at(c)] - 1)] = c - 1;
    return columns;
  }

 private:
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  std::size_t size() const { return at(n_ + 1); }
  double reduced(Index row, Index col) const {
    return cost_[at((row - 1) * n_ + col - 1)] - row_price_[at(row)] - col_price_[at(col)];
  }

  void place(Index row) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    std::vector<double> least(size(), kInfinity);
    std::vector<Index> from(size(), 0);
    std::vector<bool> used(size(), false);
    row_of_[0] = row;
    Index col = 0;
    while (row_of_[at(col)] != 0) {
      used[at(col)] = true;
      double step = kInfinity;
      Index next = 0;
      for (Index c = 1; c <= n_; ++c) {
        if (used[at(c)]) continue;
        const double cost = reduced(row_of_[at(col)], c);
        if (cost < least[at(c)]) {
          least[at(c)] = cost;
          from[at(c)] = col;
        }
        if (least[at(c)] < step) {
          step = least[at(c)];
          next = c;
        }
      }
      for (Index c = 0; c <= n_; ++c) {
        if (used[at(c)]) {
          row_price_[at(row_of_[at(c)])] += step;
          col_price_[at(c)] -= step;
        } else {
          least[at(c)] -= step;
        }
      }
      col = next;
    }
    for (; col != 0; col = from[at(col)]) row_of_[at(col)] = row_of_[at(from[at(col)])];
  }

  Index n_;
  std::vector<double> cost_, row_price_, col_price_;
  std::vector<Index> row_of_;  // of each column
};

}  // namespace

std::vector<std::int64_t> Contingency::row_sums() const {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(rows), 0);
  for (Index a = 0; a < rows; ++a)
    for (Index b = 0; b < cols; ++b) sums[static_cast<std::size_t>(a)] += at(a, b);
  return sums;
}

std::vector<std::int64_t> Contingency::col_sums() const {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(cols), 0);
  for (Index a = 0; a < rows; ++a)
    for (Index b = 0; b < cols; ++b) sums[static_cast<std::size_t>(b)] += at(a, b);
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
  const Index n = std::max(table.rows, table.cols);
  std::vector<double> cost(static_cast<std::size_t>(n * n), 0.0);
  for (Index a = 0; a < table.rows; ++a)
    for (Index b = 0; b < table.cols; ++b)
      cost[static_cast<std::size_t>(a * n + b)] = -static_cast<double>(table.at(a, b));
  std::vector<Index> matched = Assignment(n, std::move(cost)).solve();
  matched.resize(static_cast<std::size_t>(table.rows));
  for (Index& b : matched)
    if (b >= table.cols) b = -1;
  return matched;
}

double kept_share(const Contingency& table) {
  if (table.tokens == 0) return 1;
  const std::vector<Index> matched = match_groups(table);
  std::int64_t kept = 0;
  for (Index a = 0; a < table.rows; ++a)
    if (const Index b = matched[static_cast<std::size_t>(a)]; b >= 0) kept += table.at(a, b);
  return static_cast<double>(kept) / static_cast<double>(table.tokens);
}

Agreement agreement(const Contingency& table) {
  return {.rand = adjusted_rand_index(table),
          .information = normalised_mutual_information(table),
          .kept = kept_share(table)};
}

}  // namespace focus
