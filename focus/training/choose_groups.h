#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "focus/evaluation/evaluation.h"
#include "focus/training/fit.h"

namespace focus {

/// What groups are chosen for: one of the two, shares; 0: not this.
struct GroupsGoal {
  double target = 0;   // the most loss of perplexity above dense attention's
  double density = 0;  // about so many of the causal pairs
  // Whether others than those of the settings may be tried: half of the groups; w, B and s.
  bool fewer_too = true, local_window = false, block = false, sinks = false;
};

/// A choice of K, m, w, B and s, and what it came to.
struct TriedGroups {
  int num_groups = 0;
  Index num_selected_groups = 0, local_window = 0, block = 0, sinks = 0;
  Row row = {};

  /// Pairs computed and the selection's overhead, a share of the causal pairs.
  double work() const { return row.pairs_attended + row.pairs_choosing; }
  /// Whether only m may differ.
  bool differs_in_m(const TriedGroups& other) const {
    return num_groups == other.num_groups && local_window == other.local_window &&
           block == other.block && sinks == other.sinks;
  }

  double loss() const { return std::expm1(*row.nats_against_dense); }
  /// The standard error of the loss, over tokens.
  double loss_error() const { return (1 + loss()) * *row.nats_against_dense_error; }
};

struct ChosenGroups {
  FitSettings settings;            // with what was chosen
  std::vector<TriedGroups> tried;  // by K, w, B, s, then by m
  std::size_t best = 0;            // of `tried`
  bool reached = true;             // false: the best comes nearest to the goal
  Index windows = 0;               // that were held back
};

/// The least n from 0 to `most` from which on `holds` is true, with few calls: twice or half as
/// many from `first` on, then halfway between. `most` itself is not asked. Above 16 the answer may
/// be larger by a sixteenth.
Index least_where(Index first, Index most, const std::function<bool(Index)>& holds);

/// Fits groups as fit_focus() does, with the K of `settings`, measures them on windows of `batches`
/// that the fit has not read, and leaves the model with the groups that reach the goal:
/// for a target the least density; for a density the least KL. Where few groups are to be selected
/// half as many are fitted too. Then half and twice the window, the block and the sinks are tried,
/// one after the other, where the goal lets them: what lowers the KL at equal work stays. Throws
/// std::runtime_error where there are fewer than two windows or no token to score.
ChosenGroups choose_groups(LoadedModel& model, const Batches& batches, const FitSettings& settings,
                           const GroupsGoal& goal, const ShareDone& progress = {});

}  // namespace focus
