#pragma once

#include <cstdint>
#include <vector>

#include "autograd/attention/tiled_attention.h"
#include "focus/method/attention/group_plans.h"

namespace focus {

/// Numbers, keys, values and, where wanted, squared keys of the distant tokens of each group,
/// summed as queries go by. Sums are kept where runs of queries begin, so that runs can be gone
/// through side by side: worked out ahead, or where there are heads enough to keep all threads
/// busy, by whoever goes through the runs in turn.
class GroupSums {
 public:
  /// Queries of a run.
  static constexpr Index kRun = 256;

  /// k, v [batch, seq_len, kv_heads, head_dim]; group_ids [batch, seq_len, id_heads], one for all
  /// key heads or one for each. The tensors and group_ids must outlive the sums.
  GroupSums(const Tensor& k, const Tensor& v, std::span<const std::uint8_t> group_ids,
            Index id_heads, Index groups, const SummarySettings& settings,
            bool with_squares = false);

  Index groups() const { return groups_; }
  Index head_dim() const { return k_.dim(3); }
  bool has_squares() const { return parts_ == 3; }
  Index seq_len() const { return k_.dim(1); }
  Index kv_heads() const { return k_.dim(2); }
  Index runs() const { return runs_; }
  const SummarySettings& settings() const { return settings_; }
  /// Whether a head's runs must be gone through in turn first, each kept where it begins.
  bool in_turn() const { return in_turn_; }
  const Real* key(Index sequence, Index kv_head, Index token) const {
    return k_.data() + offset(sequence, kv_head, token);
  }
  const Real* value(Index sequence, Index kv_head, Index token) const {
    return v_.data() + offset(sequence, kv_head, token);
  }
  Index group_of(Index sequence, Index kv_head, Index token) const {
    return group_ids_[(sequence * seq_len() + token) * id_heads_ + (id_heads_ == 1 ? 0 : kv_head)];
  }
  /// Positions that are in the sums when a run's first query comes by, and when its last has:
  /// [first, last).
  struct Tokens {
    Index first, last;
  };
  Tokens distant_of(Index query) const {
    return {settings_.distant_begin(query),
            std::max(settings_.distant_begin(query), settings_.distant_end(query))};
  }

  /// Tokens that come into the sums while a run's queries go by: [first, last).
  Tokens entering(Index run) const {
    return {settings_.distant_end(run * kRun),
            settings_.distant_end(std::min(seq_len() - 1, (run + 1) * kRun))};
  }
  /// The number of a run among those of all sequences and key heads.
  Index run_of(Index sequence, Index kv_head, Index run) const {
    return (sequence * kv_heads() + kv_head) * runs_ + run;
  }

  /// The sums of one sequence and key head, query after query.
  class Walker {
   public:
    Walker(const GroupSums& sums, Index sequence, Index kv_head);
    /// Goes to the first query of a run whose sums are kept.
    void start(Index run);
    /// Goes on to a later query, or from the beginning to the first one. Returns whether the
    /// distant zone has changed.
    bool go_to(Index query);

    Tokens tokens() const { return tokens_; }
    Index count(Index group) const { return counts_[group]; }
    /// Sums of the group's keys, of its values, and of its squared keys, [2 or 3, head_dim].
    const Real* sum(Index group) const {
      return sum_.data() + group * sums_.parts_ * sums_.head_dim();
    }

   private:
    friend class GroupSums;
    void clear();
    void add(Index token, int times) {
      sums_.add(sequence_, kv_head_, token, times, sum_.data(), counts_.data());
    }

    const GroupSums& sums_;
    const Index sequence_, kv_head_;
    Tokens tokens_{0, 0};
    std::vector<Index> counts_;
    Tensor sum_;
  };

  /// Keeps the sums of a walker that is at a run's first query.
  void keep(const Walker& walker, Index run);

 private:
  /// Heads and sequences at least that are gone through in turn.
  static constexpr Index kManyHeads = 8;
  void compute();
  /// Adds a token so many times to sums [groups, parts, head_dim] and counts [groups].
  void add(Index sequence, Index kv_head, Index token, int times, Real* sums, Index* counts) const;

  Index offset(Index sequence, Index kv_head, Index token) const {
    return ((sequence * seq_len() + token) * kv_heads() + kv_head) * head_dim();
  }

  const Tensor &k_, &v_;
  const std::span<const std::uint8_t> group_ids_;
  const Index id_heads_, groups_;
  const SummarySettings settings_;
  const Index parts_;  // sums of a group: 2, with squares 3
  const Index runs_;
  const bool in_turn_;
  // Without a sliding window the sums that a run starts with; with one what the run adds to them.
  Tensor run_sums_;                // [batch * kv_heads * runs, groups, parts, head_dim]
  std::vector<Index> run_counts_;  // [batch * kv_heads * runs, groups]
};

}  // namespace focus
