#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "focus/evaluation/statistics/categories.h"
#include "focus/evaluation/statistics/groupings.h"

// What one grouping of tokens is like: pure functions of it and of the tokens.
namespace focus {

/// A vocabulary item as a member of a group.
struct TypicalToken {
  std::int32_t id = 0;
  std::string text = {};   // what it reads as
  std::int64_t count = 0;  // of its tokens in the group
  double confidence = 0;   // their mean share in it
  double lift = 0;         // its share of the group's tokens over its share of all tokens

  void visit(auto&& f) {
    f("id", id);
    f("text", text);
    f("count", count);
    f("confidence", confidence);
    f("lift", lift);
  }
};

/// How far groups are of one category: the share of all tokens that are of their group's largest
/// category, and what one group of all tokens would have.
struct Purity {
  double categories = 0, categories_base = 0;
  double information = 0;  // normalised mutual information of groups and categories
  /// The same two of one question: does a word begin with the token?
  double word_beginnings = 0, word_beginnings_base = 0;

  void visit(auto&& f) {
    f("categories", categories);
    f("categories_base", categories_base);
    f("normalised_mutual_information", information);
    f("word_beginnings", word_beginnings);
    f("word_beginnings_base", word_beginnings_base);
  }
};

/// One grouping of the tokens of a text.
struct GroupingDetails {
  struct Group {
    std::int64_t size = 0;                            // tokens
    double confidence = 0;                            // mean share that they have in it; 0: empty
    TokenCategory category = TokenCategory::special;  // the largest
    std::vector<double> categories = {};              // shares of the tokens
    std::vector<TypicalToken> by_confidence = {}, by_lift = {};  // the most typical first

    void visit(auto&& f) {
      f("size", size);
      f("confidence", confidence);
      f("category", category);
      f("categories", categories);
      f("by_confidence", by_confidence);
      f("by_lift", by_lift);
    }
  };
  Index layer = 0;
  std::optional<Index> head = {};  // where each key head has groups of its own
  // Shares of the largest and the smallest group; the entropy of the sizes over log K, which is 1
  // where all are of the same size; entropy and confidence of the assignments, means over tokens.
  double largest = 0, smallest = 0, size_entropy = 0, entropy = 0, confidence = 0;
  Purity purity = {};
  std::vector<Group> groups = {};

  void visit(auto&& f) {
    f("layer", layer);
    f("head", head);
    f("largest_group", largest);
    f("smallest_group", smallest);
    f("size_entropy", size_entropy);
    f("assignment_entropy", entropy);
    f("confidence", confidence);
    f("purity", purity);
    f("groups", groups);
  }
};

/// The tokens of a text beside their ids.
struct TextTokens {
  std::map<std::int32_t, std::string> vocabulary = {};  // what ids read as
  std::vector<TokenCategory> categories = {};           // of each token
};
/// Lists in each group the `most` typical items of at least `min_count` tokens in it; of equals the
/// more frequent, then the lower id first. Throws std::invalid_argument where the grouping has not
/// as many tokens as `ids`.
GroupingDetails describe_grouping(const GroupAssignments& grouping,
                                  std::span<const std::int32_t> ids, const TextTokens& tokens,
                                  std::int64_t min_count, std::size_t most);

}  // namespace focus
