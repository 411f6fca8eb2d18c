#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "focus/method/summary/summary_attention.h"

// Attention with summary columns written out pair by pair, forward and backward, in double: what
// the fused op is compared with.
namespace focus {

struct SummaryInputs {
  Tensor q, k, v, summary_bias;
  Tensor z;  // of which the group_ids are the largest; undefined: they are constants
  double tau = 0.7;
  GroupIds group_ids;
  AttentionOptions options;
  SummarySettings summary;
};

/// As the op has them: [batch, seq_len, heads, ...]. `shares` is dO of the key heads [batch,
/// seq_len, kv_heads, groups], `dz` is like z (empty without gradients).
struct SummaryResults {
  std::vector<double> out, lse, dq, dk, dv, d_summary_bias, shares, dz;
  std::vector<std::int64_t> pairs;   // of each sequence, all query heads together
  std::vector<std::int64_t> scored;  // columns, to select alone
};

class SummaryReference {
 public:
  /// `selected` as in SummaryReport. Queries follow it where their own selection is as good to
  /// within `margin` of the mass; where it is not, `complaint` says so.
  SummaryReference(const SummaryInputs& in, std::vector<std::uint8_t> selected, const Tensor& d_out,
                   double margin)
      : in_(in), selected_(std::move(selected)), d_out_(d_out), margin_(margin) {
    const auto zeros = [](Index size) { return std::vector<double>(size, 0.0); };
    results.out = results.dq = zeros(in.q.size());
    results.dk = results.dv = zeros(in.k.size());
    results.lse = zeros(batch_ * heads_ * seq_len_);
    results.d_summary_bias = zeros(kv_heads_ * groups_);
    results.shares = zeros(batch_ * seq_len_ * kv_heads_ * groups_);
    results.pairs.assign(batch_, 0);
    results.scored = results.pairs;
    for (Index b = 0; b < batch_; ++b)
      for (Index head = 0; head < kv_heads_; ++head)
        for (Index i = 0; i < seq_len_; ++i) query(b, head, i);
    if (in.z.defined()) through_groups();
  }

  SummaryResults results;
  std::string complaint;

 private:
  struct Group {
    double n = 0;
    std::vector<double> key, value;  // means
    std::vector<double> square;      // mean of the keys' squares
    bool read = false;
  };
  /// What one query sees of one key head.
  struct View {
    std::vector<Index> local, distant;
    std::vector<Group> groups;
  };
  /// An entry of the softmax: a token, or a group's column.
  struct Entry {
    Index token, group;
    double raw, score;
  };

  static double at(const Tensor& x, Index i) { return static_cast<double>(x.data()[i]); }
  static double& at(std::vector<double>& x, Index i) { return x[i]; }
  Index key_place(Index b, Index j, Index head) const {
    return ((b * seq_len_ + j) * kv_heads_ + head) * dim_;
  }
  Index query_place(Index b, Index i, Index head) const {
    return ((b * seq_len_ + i) * heads_ + head) * dim_;
  }
  Index group_of(Index b, Index j, Index head) const {
    const Index heads = in_.group_ids.heads;
    return in_.group_ids.ids[(b * seq_len_ + j) * heads + (heads == 1 ? 0 : head)];
  }
  double cap(double x) const {
    const auto c = static_cast<double>(in_.options.softcap);
    return c > 0 ? c * std::tanh(x / c) : x;
  }
  double cap_slope(double x) const {
    const auto c = static_cast<double>(in_.options.softcap);
    return c > 0 ? 1 - std::pow(std::tanh(x / c), 2) : 1;
  }
  double dot(Index query, const Tensor& keys, Index key) const {
    double sum = 0;
    for (Index d = 0; d < dim_; ++d) sum += at(in_.q, query + d) * at(keys, key + d);
    return sum * static_cast<double>(in_.options.scale);
  }
  double dot(Index query, const std::vector<double>& key) const {
    double sum = 0;
    for (Index d = 0; d < dim_; ++d) sum += at(in_.q, query + d) * key[d];
    return sum * static_cast<double>(in_.options.scale);
  }

  View view(Index b, Index head, Index i) const {
    const SummarySettings& zones = in_.summary;
    const Index window = in_.options.sliding_window;
    const std::vector<double> zero(dim_, 0.0);
    View seen;
    seen.groups.assign(groups_, {.n = 0, .key = zero, .value = zero, .square = zero});
    for (Index j = 0; j <= i; ++j) {
      if (window > 0 && i - j >= window) continue;
      if (j >= i / zones.block * zones.block - zones.local_window || j < zones.sinks) {
        seen.local.push_back(j);
        continue;
      }
      seen.distant.push_back(j);
      Group& group = seen.groups[group_of(b, j, head)];
      group.n += 1;
      for (Index d = 0; d < dim_; ++d) {
        at(group.key, d) += at(in_.k, key_place(b, j, head) + d);
        at(group.value, d) += at(in_.v, key_place(b, j, head) + d);
        at(group.square, d) += std::pow(at(in_.k, key_place(b, j, head) + d), 2);
      }
    }
    for (Group& group : seen.groups)
      for (std::size_t d = 0; group.n > 0 && d < zero.size(); ++d) {
        group.key[d] /= group.n;
        group.value[d] /= group.n;
        group.square[d] /= group.n;
      }
    return seen;
  }

  Entry token_entry(Index query, Index b, Index head, Index j) const {
    const double raw = dot(query, in_.k, key_place(b, j, head));
    return {j, -1, raw, cap(raw)};
  }
  Entry column_entry(Index query, Index head, const View& seen, Index c) const {
    const Group& group = seen.groups[c];
    const double raw = dot(query, group.key);
    return {-1, c, raw,
            cap(raw) + std::log(group.n) + at(in_.summary_bias, head * groups_ + c) +
                share_of(query) * std::pow(cap_slope(raw), 2) * half_variance(query, group)};
  }
  /// How much of a group's width its column's score has.
  double share_of(Index query) const {
    return static_cast<double>(in_.summary.summary_width_of(query / dim_ % heads_));
  }
  static double variance(const Group& group, Index d) {
    const auto i = static_cast<std::size_t>(d);
    return std::max(0.0, group.square[i] - group.key[i] * group.key[i]);
  }
  /// The scores are those before the soft-cap.
  double half_variance(Index query, const Group& group) const {
    const auto scale = static_cast<double>(in_.options.scale);
    double sum = 0;
    for (Index d = 0; d < dim_; ++d)
      sum += std::pow(scale * at(in_.q, query + d), 2) * variance(group, d) / 2;
    return sum;
  }
  /// What a group's width adds to its column's score in selection.
  double width_of(Index query, const Group& group) const {
    return (in_.summary.width - share_of(query)) * std::pow(cap_slope(dot(query, group.key)), 2) *
           half_variance(query, group);
  }
  static double log_sum(const std::vector<Entry>& entries) {
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const Entry& entry : entries) most = std::max(most, entry.score);
    for (const Entry& entry : entries) sum += std::exp(entry.score - most);
    return most + std::log(sum);
  }

  bool query_heads_select() const { return in_.summary.query_heads_select(); }
  Index selected_of(Index h) const { return in_.summary.selected_of(h); }

  /// Estimated masses of the groups, of the query head h or over those of its key head; -1: the
  /// group is empty.
  std::vector<double> masses(Index b, Index query_head, Index i, const View& seen) const {
    std::vector<double> mass(groups_, 0.0);
    const Index head = query_head / per_key_;
    for (Index h = head * per_key_; h < (head + 1) * per_key_; ++h) {
      if (query_heads_select() && h != query_head) continue;
      const Index q = query_place(b, i, h);
      std::vector<Entry> all, columns;
      for (const Index j : seen.local) all.push_back(token_entry(q, b, head, j));
      for (Index c = 0; c < groups_; ++c) {
        if (seen.groups[c].n == 0) continue;
        columns.push_back(column_entry(q, head, seen, c));
        columns.back().score += width_of(q, seen.groups[c]);
        all.push_back(columns.back());
      }
      const double lse = log_sum(all);
      for (const Entry& column : columns) at(mass, column.group) += std::exp(column.score - lse);
    }
    for (Index c = 0; c < groups_; ++c)
      if (seen.groups[c].n == 0) at(mass, c) = -1;
    return mass;
  }

  /// For the query head h, which may select for all of its key head.
  void select(Index b, Index h, Index i, View& seen) {
    const Index head = h / per_key_;
    for (Group& group : seen.groups) group.read = false;
    if (in_.summary.reads_own_group()) {
      seen.groups[group_of(b, i, head)].read = true;
      return;
    }
    if (selected_of(h) == groups_) {  // no selection
      for (Group& group : seen.groups) group.read = true;
      return;
    }
    std::vector<double> mass = masses(b, h, i, seen);
    const Index selecting = query_heads_select() ? heads_ : kv_heads_;
    for (Index rank = 0; rank < selected_of(h); ++rank) {
      const auto best =
          std::max_element(mass.begin(), mass.end()) - mass.begin();  // first of equals
      const Index theirs = selected_[((rank * batch_ + b) * seq_len_ + i) * selecting +
                                     (query_heads_select() ? h : head)];
      // Everything that is left is empty: those by number.
      const bool as_good =
          theirs < groups_ &&
          (at(mass, best) < 0 ? theirs == best : at(mass, best) - at(mass, theirs) <= margin_);
      const Index taken = as_good ? theirs : static_cast<Index>(best);
      if (!as_good && complaint.empty())
        complaint = fmt::format("sequence {} head {} query {} rank {}: group {}, not {}", b, h, i,
                                rank, theirs, best);
      seen.groups[taken].read = true;
      at(mass, taken) = -2;
    }
  }

  void query(Index b, Index head, Index i) {
    View seen = view(b, head, i);
    for (Index h = head * per_key_; h < (head + 1) * per_key_; ++h) {
      if (query_heads_select() || h == head * per_key_) select(b, h, i, seen);
      const Index q = query_place(b, i, h);
      std::vector<Entry> entries;
      for (const Index j : seen.local) entries.push_back(token_entry(q, b, head, j));
      for (const Index j : seen.distant)
        if (seen.groups[group_of(b, j, head)].read) entries.push_back(token_entry(q, b, head, j));
      for (Index c = 0; in_.summary.unselected_groups == UnselectedGroups::summary && c < groups_;
           ++c) {
        const Group& group = seen.groups[c];
        if (group.n > 0 && !group.read) entries.push_back(column_entry(q, head, seen, c));
      }
      const double lse = log_sum(entries);
      at(results.lse, (b * heads_ + h) * seq_len_ + i) = lse;
      results.pairs[b] += static_cast<std::int64_t>(entries.size());
      const Index m = selected_of(h);
      const bool selects =
          m > 0 && !in_.summary.reads_own_group() && in_.summary.least_selected() < groups_;
      for (const Group& group : seen.groups)
        results.scored[b] +=
            selects && group.n > 0 &&
            (group.read || in_.summary.unselected_groups == UnselectedGroups::drop);
      attend(b, head, q, seen, entries, lse);
    }
  }

  /// out = sum p v, and with Delta = out . do the way back.
  void attend(Index b, Index head, Index q, const View& seen, const std::vector<Entry>& entries,
              double lse) {
    const auto value = [&](const Entry& entry, Index d) {
      return entry.token >= 0 ? at(in_.v, key_place(b, entry.token, head) + d)
                              : seen.groups[entry.group].value[d];
    };
    double delta = 0;
    for (const Entry& entry : entries)
      for (Index d = 0; d < dim_; ++d)
        at(results.out, q + d) += std::exp(entry.score - lse) * value(entry, d);
    for (Index d = 0; d < dim_; ++d) delta += at(results.out, q + d) * at(d_out_, q + d);
    for (const Entry& entry : entries) {
      const double p = std::exp(entry.score - lse);
      double d_score = -delta;
      for (Index d = 0; d < dim_; ++d) d_score += value(entry, d) * at(d_out_, q + d);
      d_score *= p;
      const double d_raw = d_score * cap_slope(entry.raw);
      if (entry.token >= 0)
        give_token(q, key_place(b, entry.token, head), p, d_raw);
      else
        give_group(b, head, q, seen, entry, p, d_score, d_raw);
    }
  }
  void give_token(Index q, Index key, double p, double d_raw) {
    const auto scale = static_cast<double>(in_.options.scale);
    for (Index d = 0; d < dim_; ++d) {
      at(results.dq, q + d) += scale * d_raw * at(in_.k, key + d);
      at(results.dk, key + d) += scale * d_raw * at(in_.q, q + d);
      at(results.dv, key + d) += p * at(d_out_, q + d);
    }
  }
  void give_group(Index b, Index head, Index q, const View& seen, const Entry& column, double p,
                  double d_score, double d_raw) {
    const auto scale = static_cast<double>(in_.options.scale);
    const Group& group = seen.groups[column.group];
    at(results.d_summary_bias, head * groups_ + column.group) += d_score;
    const double d_width = d_score * share_of(q);  // of slope^2 half_variance
    const double slope = cap_slope(column.raw), d_half = d_width * slope * slope;
    if (const auto softcap = static_cast<double>(in_.options.softcap); softcap > 0)
      d_raw -= d_width * half_variance(q, group) * 4 * slope * slope / softcap *
               std::tanh(column.raw / softcap);
    std::vector<double> d_variance;
    for (Index d = 0; d < dim_; ++d) {
      at(results.dq, q + d) += scale * d_raw * group.key[d] +
                               d_half * scale * scale * at(in_.q, q + d) * variance(group, d);
      d_variance.push_back(d_half * std::pow(scale * at(in_.q, q + d), 2) / 2);
    }
    for (const Index j : seen.distant) {
      const Index key = key_place(b, j, head);
      double through_value = 0;  // (v_j - vb_c) . do
      for (Index d = 0; d < dim_; ++d)
        through_value += (at(in_.v, key + d) - group.value[d]) * at(d_out_, q + d);
      // Gradient of every token's share in the group.
      double through_width = 0;  // (k_j - kb_c)^2 - var_c
      for (Index d = 0; d < dim_; ++d)
        through_width += (std::pow(at(in_.k, key + d) - group.key[d], 2) - variance(group, d)) *
                         at(d_variance, d);
      at(results.shares, ((key / dim_) * groups_) + column.group) +=
          (d_raw * (dot(q, in_.k, key) - column.raw) + d_score + p * through_value +
           through_width) /
          group.n;
      if (group_of(b, j, head) != column.group) continue;
      for (Index d = 0; d < dim_; ++d) {
        at(results.dk, key + d) += (scale * d_raw * at(in_.q, q + d) +
                                    2 * (at(in_.k, key + d) - group.key[d]) * at(d_variance, d)) /
                                   group.n;
        at(results.dv, key + d) += p * at(d_out_, q + d) / group.n;
      }
    }
  }

  /// dz = g (dO - g . dO) / tau, g = softmax(z / tau)
  void through_groups() {
    const Tensor& z = in_.z;
    const Index alike = kv_heads_ / in_.group_ids.heads;
    results.dz.assign(z.size(), 0.0);
    for (Index row = 0; row < z.rows(); ++row) {
      std::vector<double> g, d(static_cast<std::size_t>(groups_), 0.0);
      double sum = 0, mean = 0, most = at(z, row * groups_);
      for (Index c = 0; c < groups_; ++c) most = std::max(most, at(z, row * groups_ + c));
      for (Index c = 0; c < groups_; ++c) {
        g.push_back(std::exp((at(z, row * groups_ + c) - most) / in_.tau));
        sum += g.back();
        for (Index h = 0; h < alike; ++h)
          at(d, c) += at(results.shares, (row * alike + h) * groups_ + c);
      }
      for (Index c = 0; c < groups_; ++c) mean += (at(g, c) /= sum) * at(d, c);
      for (Index c = 0; c < groups_; ++c)
        at(results.dz, row * groups_ + c) = at(g, c) * (at(d, c) - mean) / in_.tau;
    }
  }

  const SummaryInputs& in_;
  const std::vector<std::uint8_t> selected_;
  const Tensor& d_out_;
  const double margin_;
  const Index batch_ = in_.q.dim(0), seq_len_ = in_.q.dim(1), heads_ = in_.q.dim(2),
              dim_ = in_.q.dim(3), kv_heads_ = in_.k.dim(2), groups_ = in_.group_ids.groups,
              per_key_ = heads_ / kv_heads_;
};

}  // namespace focus
