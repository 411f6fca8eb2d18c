#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "autograd/attention/tiled_steps.h"
#include "focus/method/summary/group_sums.h"
#include "focus/method/summary/summary_attention.h"

namespace focus {

/// The summary tokens of attention with summaries: of each query the groups that it does not read,
/// and the sinks that lie before its local zone. They come in sets, one for each distant zone; the
/// queries of a block share one.
struct SummaryTokens {
  const AttentionInputs& in;
  GroupSums& sums;
  const Tensor& summary_bias;  // [kv_heads, groups]
  const SummarySettings& settings() const { return sums.settings(); }

  /// Attention to local tokens, as the plan has them, sinks, and the summary tokens of
  /// the groups that are not read; those that are read are selected on the way, unless each query
  /// reads its own.  selected [m, batch, seq_len, heads that select]: where each query reads its
  /// own group, m = 1 and that is given. Adds to `pairs` [batch] what all query heads read of each
  /// sequence, the exact groups' tokens among them, and to `scored` [batch] the summary tokens that
  /// served to select alone.
  void forward(const AttentionPlan& local, AttentionResult& result,
               std::span<std::uint8_t> selected, std::span<std::int64_t> pairs,
               std::span<std::int64_t> scored) const;

  struct Gradients {
    AttentionGradients tokens;  // q, k and v: added to
    Tensor summary_bias;        // like summary_bias
    Tensor shares;  // of each token's share in each group [batch, seq_len, kv_heads, groups];
                    // undefined where not wanted
  };
  /// Gradients of out through the summary tokens, `result` being over everything.
  Gradients backward(const AttentionResult& result, const Tensor& d_out,
                     std::span<const std::uint8_t> selected, bool shares_wanted,
                     AttentionGradients onto) const;
};

/// The groups that queries read, [ranks, batch, seq_len, heads that select]: the query heads or the
/// key heads.
template <class T>
struct SelectedGroups {
  std::span<T> groups;
  Index batch, seq_len, heads;
  T& at(Index rank, Index sequence, Index query, Index head) const {
    return groups[((rank * batch + sequence) * seq_len + query) * heads + head];
  }
};

/// The summary tokens that the queries of a tile see, some sets at a time: K groups' means, then s
/// sinks.
class SummaryTokenSets {
 public:
  static constexpr Index kQueries = AttentionPlan::kQueries;

  struct Set {
    Index first_row, end_row;  // of the tile
    Index first;               // where its summary tokens begin
    Index number;              // of the run's sets
    Index filled;              // groups that have tokens
    GroupSums::Tokens distant;
  };

  SummaryTokenSets(const GroupSums& sums, Index sequence, Index kv_head, const Real* summary_bias)
      : sums_(sums),
        walker_(sums, sequence, kv_head),
        sequence_(sequence),
        kv_head_(kv_head),
        summary_bias_(summary_bias),
        capacity_(std::max<Index>(1, AttentionPlan::kKeys / width())),
        keys_({capacity_ * width(), sums.head_dim()}),
        values_(keys_.shape()),
        variances_(sums.has_squares() ? keys_.shape() : Shape{0}),
        bias_(capacity_ * width()),
        counts_(capacity_ * sums.groups(), -1) {}

  /// Columns at a time, at most.
  Index most_tokens() const { return capacity_ * width(); }
  Index width() const { return sums_.groups() + sums_.settings().sinks; }
  Index tokens() const { return std::ssize(sets_) * width(); }

  void start(Index run) {
    walker_.start(run);
    number_ = -1;
    std::ranges::fill(counts_, -1);
  }
  /// The same, on from the run before.
  const GroupSums::Walker& go_on(Index run) {
    walker_.go_to(run * GroupSums::kRun);
    number_ = -1;
    return walker_;
  }
  /// Calls f() for the sets of queries [begin, end) of a tile, as many at a time as there is room
  /// for; queries without summary tokens have none.
  template <class F>
  void for_each(Index begin, Index end, F&& f) {
    const SummarySettings& settings = sums_.settings();
    sets_.clear();
    const auto hand_over = [&] {
      if (sets_.empty()) return;
      set_visibility(end - begin);
      f();
      sets_.clear();
    };
    for (Index query = begin; query < end; ++query) {
      const bool changed = walker_.go_to(query) || number_ < 0;
      if (changed) ++number_;
      const GroupSums::Tokens distant = walker_.tokens();
      const Index first_sink = settings.first_sink(query);
      if (distant.first == distant.last && first_sink == settings.sinks) continue;
      const bool same = !changed && !sets_.empty() && sets_.back().end_row == query - begin &&
                        first_sink == first_sink_;
      if (same) {
        ++sets_.back().end_row;
        continue;
      }
      if (std::ssize(sets_) == capacity_) hand_over();
      first_sink_ = first_sink;
      sets_.push_back({query - begin, query - begin + 1, tokens(), number_, 0, distant});
      sets_.back().first = tokens() - width();
      fill(sets_.back());
    }
    hand_over();
  }

  /// Those that are there now.
  const std::vector<Set>& sets() const { return sets_; }
  /// What the tile's queries see of the summary tokens.
  const Visibility& seen() const { return seen_; }
  /// Means and sinks [tokens, head_dim].
  const Tensor& keys() const { return keys_; }
  const Tensor& values() const { return values_; }
  /// n: tokens of each group.
  const Index* counts(const Set& set) const {
    return counts_.data() + set.first / width() * sums_.groups();
  }

  /// Scores of the summary tokens by the queries, [tokens, queries]: cap(scale q . kb)
  void scores(const simd::Panels& queries, Real softcap, Real* to) const {
    products(keys_, queries, to);
    if (softcap > 0) tiled::soft_cap(seen_, softcap, to);
  }
  /// Half of the variance of the scores of a group's tokens, [tokens, queries], through the slope
  /// of the soft-cap: sum_d (scale q_d)^2 var_d / 2 (1 - (s / softcap)^2)^2; sinks 0. `squared` are
  /// the squares of what scores() takes, s is what it gives.
  void widths(const simd::Panels& squared, const Real* scores, Real softcap, Real* to) const {
    products(variances_, squared, to);
    if (softcap > 0)
      for_each_score([&](Index at) { to[at] *= square(1 - square(scores[at] / softcap)); });
  }
  /// Halved variances of the keys, like keys().
  const Tensor& variances() const { return variances_; }
  /// Calls f(place in [tokens, queries]) for what the tile's queries see.
  template <class F>
  void for_each_score(F&& f) const {
    for (const KeyBand& band : seen_.bands())
      for (Index key = band.begin; key < band.end; ++key)
        for (Index q = band.first_query; q < band.end_query; ++q) f(key * kQueries + q);
  }
  static Real square(Real x) { return x * x; }
  /// [tokens, queries]: rows, like keys(), times the queries' columns
  void products(const Tensor& rows, const simd::Panels& queries, Real* to) const {
    const auto rows_at = [&](Index column) {
      return tiled::Rows{rows.data() + column, sums_.head_dim()};
    };
    tiled::products(seen_, sums_.head_dim(), rows_at, queries, to);
  }
  /// Adds log n + summary_bias to scores, and the sum to `selection` where not null.
  void add_bias(Real* scores, Real* selection) const {
    for (const KeyBand& band : seen_.bands()) {
      const Index first = band.begin * kQueries + band.first_query;
      simd::kernels().bias_rows(band.end - band.begin, band.end_query - band.first_query,
                                bias_.data() + band.begin, scores + first,
                                selection != nullptr ? selection + first : nullptr, kQueries);
    }
  }
  /// Takes the groups out that the queries, the first of them `begin`, read by their tokens, or
  /// leave out. `head` is the one that selects, `ranks` its m.
  template <class T>
  void hide_read(const Set& set, Index begin, const SelectedGroups<T>& selected, Index head,
                 Index ranks, UnselectedGroups unselected, Real* scores) const {
    Real* of_set = scores + set.first * kQueries;
    if (unselected == UnselectedGroups::drop) {
      for (Index c = 0; c < sums_.groups(); ++c)
        std::fill(of_set + c * kQueries + set.first_row, of_set + c * kQueries + set.end_row,
                  tiled::kMasked);
      return;
    }
    for (Index q = set.first_row; q < set.end_row; ++q)
      for (Index rank = 0; rank < ranks; ++rank)
        of_set[selected.at(rank, sequence_, begin + q, head) * kQueries + q] = tiled::kMasked;
  }

 private:
  void fill(Set& set) {
    const Index dim = sums_.head_dim(), groups = sums_.groups();
    const simd::Kernels& kernels = simd::kernels();
    Real* key = keys_.data() + set.first * dim;
    Real* value = values_.data() + set.first * dim;
    // Without a sliding window as many tokens are the same ones: most groups of the place's last
    // set are those of this one.
    const bool only_grow = sums_.settings().sliding_window == 0;
    Index* counts = counts_.data() + set.first / width() * groups;
    for (Index c = 0; c < groups; ++c, key += dim, value += dim) {
      const Index n = walker_.count(c);
      Index& there = counts[c];
      set.filled += n > 0;
      if (only_grow && there == n) continue;
      there = n;
      const Real share = n > 0 ? 1 / static_cast<Real>(n) : 0;
      kernels.scale_row(walker_.sum(c), share, dim, key, false);
      kernels.scale_row(walker_.sum(c) + dim, share, dim, value, false);
      if (sums_.has_squares()) fill_variance(walker_.sum(c) + 2 * dim, share, key);
      bias_[set.first + c] =
          n > 0 ? static_cast<Real>(std::log(static_cast<double>(n))) + summary_bias_[c]
                : tiled::kMasked;
    }
    for (Index sink = 0; sink < sums_.settings().sinks; ++sink, key += dim, value += dim) {
      const bool seen = sink >= first_sink_ && sink < sums_.seq_len();
      const Index token = std::min(sink, sums_.seq_len() - 1);
      kernels.scale_row(sums_.key(sequence_, kv_head_, token), 1, dim, key, false);
      kernels.scale_row(sums_.value(sequence_, kv_head_, token), 1, dim, value, false);
      if (sums_.has_squares()) std::fill_n(variance_of(key), dim, Real(0));
      bias_[set.first + groups + sink] = seen ? Real(0) : tiled::kMasked;
    }
  }
  Real* variance_of(const Real* key) { return variances_.data() + (key - keys_.data()); }
  /// Halved; what rounding makes negative is 0.
  void fill_variance(const Real* squares, Real share, const Real* mean) {
    Real* to = variance_of(mean);
    for (Index d = 0; d < sums_.head_dim(); ++d)
      to[d] = std::max(Real(0), share * squares[d] - mean[d] * mean[d]) / 2;
  }
  void set_visibility(Index rows) {
    std::array<simd::Lane, kQueries> first{}, last{};
    Index row = 0;
    const auto see = [&](Index end_row, Index begin, Index end) {  // the next rows up to that one
      for (; row < end_row; ++row) {
        first[row] = static_cast<simd::Lane>(begin);
        last[row] = static_cast<simd::Lane>(end);
      }
    };
    for (const Set& set : sets_) {
      see(set.first_row, set.first, set.first);
      see(set.end_row, set.first, set.first + width());
    }
    see(kQueries, tokens(), tokens());
    seen_.set(rows, tokens(), first, last);
  }

  const GroupSums& sums_;
  GroupSums::Walker walker_;
  const Index sequence_, kv_head_;
  const Real* const summary_bias_;
  const Index capacity_;  // sets: as many as fit a tile of keys, at least one
  Index number_ = -1, first_sink_ = 0;
  std::vector<Set> sets_;
  Tensor keys_, values_;
  Tensor variances_;           // like keys_, halved; none without squares
  std::vector<Real> bias_;     // of each summary token: log n + summary_bias; -inf: without tokens
  std::vector<Index> counts_;  // n [sets, groups]; -1: not yet worked out
  Visibility seen_;
};

}  // namespace focus
