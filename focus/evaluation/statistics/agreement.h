#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "autograd/tensor.h"

// How far two groupings of the same tokens are the same. None of it asks which number a group has.
namespace focus {

/// Tokens that are in group a of one grouping and in group b of another.
struct Contingency {
  Index rows = 0, cols = 0;          // groups of the one, of the other
  std::vector<std::int64_t> counts;  // [rows, cols]
  std::int64_t tokens = 0;

  std::span<const std::int64_t> row(Index a) const {
    return std::span(counts).subspan(static_cast<std::size_t>(a * cols),
                                     static_cast<std::size_t>(cols));
  }
  std::vector<std::int64_t> row_sums() const;
  std::vector<std::int64_t> col_sums() const;
};

/// a and b: the group of each token, below `rows` and `cols`. Throws std::invalid_argument where
/// they are not equally long, or a group is out of range.
Contingency contingency(std::span<const std::uint8_t> a, Index rows,
                        std::span<const std::uint8_t> b, Index cols);

/// The entropy of counts as shares, in nats: 0 where one has all, log K where all have the same.
double entropy_of_counts(std::span<const std::int64_t> counts);

/// Hubert and Arabie 1985: the share of pairs of tokens on which both agree (together or apart),
/// less what chance gives, so that 1 is the same grouping and 0 is chance. 1 where neither tells
/// any two tokens apart, or both tell all apart.
double adjusted_rand_index(const Contingency& table);

/// I(a; b) / ((H(a) + H(b)) / 2), in [0, 1]. 1 where both have one group alone.
double normalised_mutual_information(const Contingency& table);

/// The one-to-one matching of groups that keeps most tokens together (Kuhn 1955): for each group
/// of the rows its group of the columns, or -1 where there are more rows than columns.
std::vector<Index> match_groups(const Contingency& table);
/// The share of the tokens that are in matched groups: that "keep their group".
double kept_share(const Contingency& table);

/// The three of two groupings of the same tokens.
struct Agreement {
  double rand = 0, information = 0, kept = 0;

  void visit(auto&& f) {
    f("adjusted_rand_index", rand);
    f("normalised_mutual_information", information);
    f("kept_share", kept);
  }
};
Agreement agreement(const Contingency& table);

}  // namespace focus
