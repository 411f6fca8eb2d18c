#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "focus/evaluation/evaluation.h"

// The groups of the tokens of some texts: what one grouping is like, held against the tokens'
// categories, and how far two are the same, whichever numbers their groups have.
namespace focus {

/// Tokens that are in group a of one grouping and in group b of another.
struct Contingency {
  Index rows = 0, cols = 0;          // groups of the one, of the other
  std::vector<std::int64_t> counts;  // [rows, cols]
  std::int64_t tokens = 0;

  std::span<const std::int64_t> row(Index a) const {
    return std::span(counts).subspan(a * cols, cols);
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

/// Both of two groupings of the same tokens.
struct Agreement {
  double rand = 0, information = 0;
};
Agreement agreement(const Contingency& table);

/// Documents' tokens, one after the other, cut into windows that a model can run.
struct TextWindows {
  std::vector<std::int32_t> ids;
  std::vector<Index> windows = {0};  // the first token of each, and the end
  std::vector<std::string> names;    // of the documents

  Index tokens() const { return static_cast<Index>(ids.size()); }
  Index num_windows() const { return static_cast<Index>(windows.size()) - 1; }
  std::span<const std::int32_t> window(Index w) const {
    const Index first = windows[w];
    return std::span(ids).subspan(first, windows[w + 1] - first);
  }
};
/// Windows of `context` tokens, what the text has before each window among them; the last one of a
/// text is what is left, and none crosses texts. Throws std::invalid_argument where a window has no
/// room for a token.
TextWindows cut_windows(std::span<const EvalText> texts, Index context);

/// One grouping of all tokens: a layer's, or where keys are grouped that of one key head in it.
struct GroupAssignments {
  Index layer = 0, head = 0;
  Index groups = 0;
  std::vector<std::uint8_t> group_of_token;
  std::vector<float> confidence;  // [tokens]: the share of the token in its group
  double entropy = 0;             // of the shares, mean over tokens, in nats

  Index tokens() const { return static_cast<Index>(group_of_token.size()); }
};

/// Runs the decoder over the windows, with whatever attention it has, and notes for each layer the
/// groups of `focus`, which need not be attached: groups of tokens with the balance of focus.mode,
/// a token's shares g; groups of keys with softmax(z / tau) as shares. The groupings of a layer
/// follow each other head by head. The same for any number of threads. Throws std::invalid_argument
/// where the layers do not fit.
std::vector<GroupAssignments> collect_groupings(Decoder& decoder, FocusModel& focus,
                                                const TextWindows& text,
                                                const ShareDone& progress = {});

/// What kind of thing a token is in English text, by its letters only: closed lists of function
/// words, no model.
enum class TokenCategory : std::uint8_t {
  special,       // marks something, such as the start of a document
  white_space,   // blanks and line breaks alone
  punctuation,   // signs without a letter or digit
  digits,        // digits without a letter
  determiner,    // a whole word of the closed list: the, every, my
  pronoun,       // I, they, who
  auxiliary,     // is, had, would, not
  preposition,   // of, through
  connective,    // and, because, when
  capitalised,   // another word or its beginning that starts with a capital
  word,          // any other word or its beginning
  continuation,  // continues a word
};
constexpr auto enum_names(TokenCategory) {
  return std::array<std::string_view, 12>{
      "special",   "white space", "punctuation", "digits",      "determiner", "pronoun",
      "auxiliary", "preposition", "connective",  "capitalised", "word",       "continuation"};
}
constexpr Index kNumCategories = enum_names(TokenCategory{}).size();
inline std::string_view name_of(TokenCategory c) {
  return enum_names(c)[static_cast<std::size_t>(c)];
}

/// Category of a token between its neighbours' texts; each is well-formed UTF-8 with leading blank,
/// empty where there is no neighbour. A function word is one only where the next token does not
/// continue it.
TokenCategory category_of(std::string_view before, std::string_view token, std::string_view after);

/// The categories of consecutive tokens; where `special` says so that is one.
std::vector<TokenCategory> categorise(std::span<const std::string> texts,
                                      const std::vector<bool>& special);

/// True where a word begins with the token: its category is one of those of words but continuation.
inline bool begins_word(TokenCategory category) {
  return category >= TokenCategory::determiner && category <= TokenCategory::word;
}
/// The text of an id after another word, its leading blank included, ill-formed bytes
/// as U+FFFD.
std::string token_text(const Tokenizer& tokenizer, std::int32_t id);

/// A vocabulary item as a member of a group.
struct TypicalToken {
  std::int32_t id = 0;
  std::string text = {};   // what it reads as
  std::int64_t count = 0;  // of its tokens in the group
  double confidence = 0;   // their mean share in it
  double lift = 0;         // its share of the group's tokens over its share of all tokens

  void visit(auto&& f) { FOCUS_MEMBERS(f, id, text, count, confidence, lift); }
};

/// How far groups are of one category: the share of all tokens that are of their group's largest
/// category, and what one group of all tokens would have.
struct Purity {
  double categories = 0, categories_base = 0;
  double information = 0;  // normalised mutual information of groups and categories
  /// The same two of one question: does a word begin with the token?
  double word_beginnings = 0, word_beginnings_base = 0;

  void visit(auto&& f) {
    FOCUS_MEMBERS(f, categories, categories_base);
    f("normalised_mutual_information", information);
    FOCUS_MEMBERS(f, word_beginnings, word_beginnings_base);
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
      FOCUS_MEMBERS(f, size, confidence, category, categories, by_confidence, by_lift);
    }
  };
  Index layer = 0;
  std::optional<Index> head = {};  // where each key head has groups of its own
  // Shares of the largest and the smallest group; the entropy of the sizes over log K, which is 1
  // where all are of the same size; entropy and confidence of the assignments, means over tokens.
  double largest_group = 0, smallest_group = 0, size_entropy = 0, assignment_entropy = 0;
  double confidence = 0;
  Purity purity = {};
  std::vector<Group> groups = {};

  void visit(auto&& f) {
    FOCUS_MEMBERS(f, layer, head, largest_group, smallest_group, size_entropy, assignment_entropy,
                  confidence, purity, groups);
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
