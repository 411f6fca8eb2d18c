#include "focus/method/config.h"

#include "autograd/base/check.h"
#include "focus/method/grouping/grouping.h"

namespace focus {

void TokenSettings::validate() const {
  check(routing_dim >= 1, "focus.tokens.routing_dim must be at least 1, not {}", routing_dim);
  check(temperature > 0, "focus.tokens.temperature must be positive, not {}", temperature);
  check(sinkhorn_iters >= 1, "focus.tokens.sinkhorn_iters must be at least 1, not {}",
        sinkhorn_iters);
  check(affinity_floor >= 1e-30 && affinity_floor < 1,
        "focus.tokens.affinity_floor must be at least 1e-30 and below 1, not {}", affinity_floor);
  check(sinks >= 0 && sinks <= kMaxSinks, "focus.tokens.sinks must be from 0 to {}, not {}",
        kMaxSinks, sinks);
  check(carried_rate >= 0 && carried_rate <= 1,
        "focus.tokens.carried_rate must be in [0, 1], not {}", carried_rate);
}

void AblationSettings::validate() const {
  check(balance_loss >= 0 && balance_loss <= 1e6,
        "focus.ablations.balance_loss must be in [0, 1e6], not {}", balance_loss);
  check(entropy_loss >= 0 && entropy_loss <= 1e6,
        "focus.ablations.entropy_loss must be in [0, 1e6], not {}", entropy_loss);
  check(centroid_rate > 0 && centroid_rate <= 1,
        "focus.ablations.centroid_rate must be in (0, 1], not {}", centroid_rate);
  check(recluster_every >= 0, "focus.ablations.recluster_every must not be negative, not {}",
        recluster_every);
}

namespace {

void check_summary(const FocusConfig& config, const GroupingKind& kind) {
  const SummarySettings& s = config.summary;
  s.validate("focus.summary.");
  // num_selected_groups has a default that few groups do not have: all of them are meant then.
  check(kind.groups_tokens || s.num_selected_groups <= config.num_groups,
        "focus.summary.num_selected_groups must be from 0 to num_groups {}, not {}",
        config.num_groups, s.num_selected_groups);
  for (const int m : s.train_num_selected_groups)
    check(m >= 0, "focus.summary.train_num_selected_groups must not be negative, not {}", m);
  check(kind.groups_tokens || s.selection == GroupSelection::mass,
        "focus.summary.selection own needs groups of tokens: a query is not in a group of {}",
        kind.name);
}

}  // namespace

void FocusConfig::validate() const {
  const GroupingKind& kind = grouping_kind(*this);
  check(num_groups >= 1 && num_groups <= kind.most_groups,
        "focus.num_groups must be from 1 to {} for focus.grouping {}, not {}", kind.most_groups,
        kind.name, num_groups);
  check(local_window >= 0, "focus.local_window must not be negative, not {}", local_window);
  for (const SettingsSection& section : groupings) section.settings.validate();
  ablations.validate();
  check_summary(*this, kind);
  check(kind.groups_tokens || training == Training::summary,
        "focus.grouping {} supports neither soft nor hard attention: set focus.training to summary",
        kind.name);
  check(training != Training::hard || tokens().gate == Gate::affinity,
        "focus.training hard needs focus.tokens.gate affinity: its limit is the hard mask");
  const int k = tokens().train_top_k;
  check(training != Training::hard || (k >= 1 && k <= num_groups),
        "focus.tokens.train_top_k must be from 1 to num_groups {}, not {}", num_groups, k);
  check(kind.is_routed || !ablations.balance(),
        "focus.ablations apply to groups of tokens only, but focus.grouping is {}: leave "
        "balance_loss, entropy_loss, recluster_every and centroid_update at their defaults",
        kind.name);
  check(num_groups > 1 || !ablations.balance(),
        "focus.num_groups 1 has nothing to balance: leave balance_loss, entropy_loss, "
        "recluster_every and centroid_update of focus.ablations at their defaults");
  check(lm_weight == 0 || objective != Objective::lm,
        "focus.lm_weight is {}, but focus.objective lm is the cross-entropy itself: leave it 0, or "
        "choose logit_distillation",
        lm_weight);
}

}  // namespace focus
