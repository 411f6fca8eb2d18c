#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "focus/method/cache_numbers.h"
#include "focus/method/summary/summary_attention.h"

namespace focus {

/// The keys and values of one layer's past tokens for attention with summary tokens: local tokens
/// and sinks as they are, distant ones in a list for each group, with the sums of its keys and
/// values. A block of tokens goes from the local ones to the lists when a query's block ends. Where
/// no list is ever read (m = 0, no sliding window) none is kept: then the cache does not grow. One
/// sequence, whose bits do not depend on how append() cuts it.
class SummaryCache {
 public:
  using Sizes = CacheSizes;
  /// `dtype`: of the distant tokens' lists; all else is float32. Sums are of the numbers as kept.
  /// truncate() can take back at least the last `undo` tokens of the most there were: twice as many
  /// stay in float32 beside the lists, and two copies of the sums. `centroids` [kv_heads, groups,
  /// head_dim]: of q4, which keeps what keys differ from their group's.
  SummaryCache(const Sizes& sizes, const AttentionOptions& options, const SummarySettings& summary,
               CacheDtype dtype = CacheDtype::float32, Index undo = 0, Tensor centroids = {});

  /// Adds the next tokens.  k and v [tokens, kv_heads, head_dim], group_ids [tokens, kv_heads] or
  /// [tokens, 1]
  void append(const Real* k, const Real* v, std::span<const std::uint8_t> group_ids,
              Index tokens = 1);
  /// What the token that was appended last attends to: the last row of summary_attention() over all
  /// tokens so far.  summary_bias [kv_heads, groups]; q and out [heads, head_dim]
  void attend(const Real* q, const Tensor& summary_bias, Real* out);

  /// Takes back all tokens but the first `tokens`, as if they had never come: what follows has the
  /// same bits. append() comes next. Throws where that are fewer than least_size().
  void truncate(Index tokens);
  /// The fewest tokens that truncate() can leave.
  Index least_size() const;

  Index size() const { return size_; }
  std::size_t bytes() const;
  /// What files keep of it (CacheFiles); the constructor knows the rest.
  void visit(auto&& f) { FOCUS_MEMBERS(f, heads_, checkpoints_, size_, distant_end_); }
  /// Keys and summary tokens that the last attend() read, all query heads together, and their mean.
  Index pairs_read() const { return pairs_read_; }
  Index keys_read() const { return pairs_read_ / sizes_.heads; }

 private:
  /// Which rows are in use, counted with those that memory no longer has.
  struct Span {
    Index first = 0, end = 0;
    bool operator==(const Span&) const = default;
    void visit(auto&& f) { FOCUS_MEMBERS(f, first, end); }
  };
  /// Keys and values of some tokens, rows of padded_dim numbers. Rows before `first` have left.
  struct Rows {
    explicit Rows(CacheDtype dtype = CacheDtype::float32)
        : keys(dtype), values(dtype == CacheDtype::q4 ? CacheDtype::q8_0 : dtype) {}
    CacheNumbers keys, values;
    const Real* centroid = nullptr;  // with which all keys have to be added
    Index first = 0, end = 0;
    Index gone = 0;                                  // rows before them that memory no longer has
    Index keep = std::numeric_limits<Index>::max();  // none from here on goes, those counted
    Index count() const { return end - first; }
    void visit(auto&& f) { FOCUS_MEMBERS(f, keys, values, first, end, gone, keep); }
    Span span() const { return {gone + first, gone + end}; }
  };
  struct Sums {
    std::vector<double> of;  // keys, values and, where width counts, the keys' squares
    Index count = 0;         // tokens in them
    Index removed = 0;       // since the tokens were last summed again
    void visit(auto&& f) { FOCUS_MEMBERS(f, of, count, removed); }
  };
  /// One group of a key head.
  struct Group {
    explicit Group(CacheDtype dtype = CacheDtype::float32) : rows(dtype) {}
    Rows rows;  // where lists are kept
    Sums sums;
    std::vector<Index> positions;  // of all rows; with a sliding window alone
    void visit(auto&& f) { FOCUS_MEMBERS(f, rows, sums, positions); }
  };
  struct Head {
    Rows sinks, local;
    Rows means;                    // of the groups: their summary tokens
    std::vector<Real> variances;   // of the groups' keys, halved, like rows; where width counts
    std::vector<Real> log_counts;  // log n; -inf: no tokens
    std::vector<std::uint8_t> local_groups;  // of all local rows
    std::vector<Group> groups;
    std::uint8_t last_group = 0;
    void visit(auto&& f) {
      FOCUS_MEMBERS(f, sinks, local, means, variances, log_counts);
      FOCUS_MEMBERS(f, local_groups, groups, last_group);
    }
  };
  /// What truncate() goes back to, before it adds tokens again that local rows still have.
  struct Checkpoint {
    struct OfHead {
      Span sinks, local;
      std::vector<std::pair<Span, Sums>> groups;
      void visit(auto&& f) { FOCUS_MEMBERS(f, sinks, local, groups); }
    };
    Index size = 0, distant_end = 0;
    std::vector<OfHead> heads;
    void visit(auto&& f) { FOCUS_MEMBERS(f, size, distant_end, heads); }
  };
  /// Some rows next to each other.
  struct Run {
    const Rows* rows = nullptr;
    Index first = 0, end = 0;
    Index count() const { return end - first; }
  };
  static Run all(const Rows& rows) { return {&rows, rows.first, rows.end}; }
  /// What one query head that selects alone reads, or those of a key head together.
  struct Reading {
    Index first_head = 0, heads = 0;
    Run sinks = {}, local = {};
    std::vector<Index> groups = {};  // that are read exactly
    std::vector<Real> scores = {};   // [query heads, local tokens and then all summary tokens]
    std::vector<Real> widths = {};   // added in selection [query heads, groups]
    Index exact = 0, row = 0;        // local tokens; all numbers of a query head
    Index keys = 0;                  // keys and summary tokens that all query heads read
  };

  /// Whether each query head selects for itself.
  bool selects_alone() const {
    return options_.query_heads_select() || sizes_.heads == sizes_.kv_heads;
  }
  bool keeps_lists() const { return options_.most_selected() > 0 || options_.sliding_window > 0; }
  void add_row(Rows& rows, const Real* k, const Real* v) const;
  /// Lets rows leave; returns how many of the first memory no longer has.
  Index drop_front(Rows& rows, Index count) const;
  void append_step(const Real* k, const Real* v, std::span<const std::uint8_t> group_ids,
                   Index tokens);
  static bool is_same(Span rows, const Sums& sums, const Group& group);
  void add_checkpoint();
  void go_back(const Checkpoint& to);
  void set_rows(Rows& rows, Span span) const;
  /// Some tokens of a key head that append() adds: rows and group_ids lie `stride` and
  /// `id_stride` apart.
  struct NewTokens {
    const Real *k, *v;
    Index stride;
    const std::uint8_t* group_ids;
    Index id_stride, count;
  };
  void append(Head& head, const NewTokens& tokens) const;
  void make_room(Head& head, const NewTokens& tokens, Index first, Index end) const;
  /// Adds a token to the sums and the list of its group.
  void add_distant(Group& group, const Real* key, const Real* value, Index position) const;
  void forget(Head& head, Index before) const;
  void sum_again(Head& head) const;
  /// After a group's sums have changed.
  void set_mean(Head& head, std::size_t group) const;
  /// Adds the key and value of a row of the group's list to its sums, or with -1 takes them out.
  void add_row_to_sums(Group& group, Index row, double times) const;
  /// The same of a token's key and value.
  void add_to_sums(Group& group, const Real* key, const Real* value, double times) const;
  void read(Index first_head, Index heads, const Real* q, const Tensor& summary_bias,
            Reading& reading) const;
  void attend_query(const Head& head, const Reading& reading, Index query_head, const Real* q,
                    Real* out) const;
  void add_scores(const Run& run, const Real* q, std::vector<Real>& scores) const;
  void count_widths(const Head& head, const Real* q, Real share, Reading& reading) const;
  void select(const Head& head, Reading& reading) const;
  void masses(const Reading& reading, std::vector<double>& mass) const;

  const Sizes sizes_;
  const AttentionOptions attention_;
  const SummarySettings options_;
  const Index padded_dim_;
  const Index undo_;
  const Tensor centroids_;
  std::vector<Head> heads_;
  std::deque<Checkpoint> checkpoints_;  // at most two, `undo_` apart
  std::vector<Reading> readings_;       // of the last attend(), for their memory, as scaled_q_
  std::vector<Real> scaled_q_;
  Index size_ = 0, distant_end_ = 0, pairs_read_ = 0;
};

}  // namespace focus
