#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "focus/evaluation/evaluation.h"
#include "focus/training/fit.h"

namespace focus {

/// What groups are chosen for: one of the two, shares; 0: not this.
struct GroupsGoal {
  double target = 0;      // the most loss of perplexity above dense attention's
  double density = 0;     // about so many of the causal pairs
  bool fewer_too = true;  // whether half of the settings' groups may be tried
};

/// A choice of K and m, and what it came to.
struct TriedGroups {
  int num_groups = 0;
  Index num_selected_groups = 0;
  Row row = {};

  double loss() const { return std::expm1(*row.nats_against_dense); }
  /// The standard error of the loss, over tokens.
  double loss_error() const { return (1 + loss()) * *row.nats_against_dense_error; }
};

struct ChosenGroups {
  FitSettings settings;            // with the chosen K and m
  std::vector<TriedGroups> tried;  // by K, then by m
  std::size_t best = 0;            // of `tried`
  bool reached = true;             // false: the best comes nearest to the goal
  Index windows = 0;               // that were held back
};

/// The least n from 0 to `most` from which on `holds` is true, with few calls: twice or half as
/// many from `first` on, then halfway between. `most` itself is not asked. Above 16 the answer may
/// be larger by a sixteenth.
Index least_where(Index first, Index most, const std::function<bool(Index)>& holds);

/// Fits groups as fit_focus() does, with the K of `settings`, measures them on windows of `batches`
/// that the fit has not read, and leaves the model with the groups and the m that reach the goal:
/// for a target the least density; for a density the least KL. Where few groups are to be selected
/// half as many are fitted too. Throws std::runtime_error where there are fewer than two windows or
/// no token to score.
ChosenGroups choose_groups(LoadedModel& model, const Batches& batches, const FitSettings& settings,
                           const GroupsGoal& goal, const ShareDone& progress = {});

}  // namespace focus
