#include "focus/config.h"

#include "autograd/base/check.h"

namespace focus {

void FocusConfig::validate() const {
  const bool keys = routing == RoutingSpace::keys;
  check(num_groups >= 1 && num_groups <= (keys ? kMaxKeyGroups : kMaxGroups),
        "focus.num_groups must be from 1 to {}, not {}: of tokens (focus.routing hidden) there are "
        "at most {}, of keys {}",
        keys ? kMaxKeyGroups : kMaxGroups, num_groups, kMaxGroups, kMaxKeyGroups);
  check(routing_dim >= 1, "focus.routing_dim must be at least 1, not {}", routing_dim);
  check(temperature > 0, "focus.temperature must be positive, not {}", temperature);
  check(sinkhorn_iters >= 1, "focus.sinkhorn_iters must be at least 1, not {}", sinkhorn_iters);
  check(local_window >= 0, "focus.local_window must not be negative, not {}", local_window);
  check(affinity_floor >= 1e-30 && affinity_floor < 1,
        "focus.affinity_floor must be at least 1e-30 and below 1, not {}", affinity_floor);
  check(training != Training::hard || gate == Gate::affinity,
        "focus.training hard needs focus.gate affinity: its limit is the hard mask");
  check(training != Training::hard || (train_top_k >= 1 && train_top_k <= num_groups),
        "focus.train_top_k must be from 1 to num_groups {}, not {}", num_groups, train_top_k);
  check(carried_rate >= 0 && carried_rate <= 1, "focus.carried_rate must be in [0, 1], not {}",
        carried_rate);
  check(balance_loss >= 0 && balance_loss <= 1e6, "focus.balance_loss must be in [0, 1e6], not {}",
        balance_loss);
  check(entropy_loss >= 0 && entropy_loss <= 1e6, "focus.entropy_loss must be in [0, 1e6], not {}",
        entropy_loss);
  check(centroid_rate > 0 && centroid_rate <= 1, "focus.centroid_rate must be in (0, 1], not {}",
        centroid_rate);
  check(recluster_every >= 0, "focus.recluster_every must not be negative, not {}",
        recluster_every);
  validate_summary();
  check(num_groups > 1 || (balance_loss == 0 && entropy_loss == 0 && recluster_every == 0 &&
                           centroid_update == CentroidUpdate::gradient),
        "focus.num_groups 1 has nothing to balance: leave balance_loss, entropy_loss, "
        "recluster_every and centroid_update as they are by default");
}

void FocusConfig::validate_summary() const {
  const bool keys = routing == RoutingSpace::keys;
  // read_groups has a default that few groups do not have: all of them are meant then.
  check(read_groups >= 0 && (!keys || read_groups <= num_groups),
        "focus.read_groups must be from 0 to num_groups {}, not {}", num_groups, read_groups);
  check(!train_read_groups || (*train_read_groups >= 0 && *train_read_groups <= num_groups),
        "focus.train_read_groups must be from 0 to num_groups {}, not {}", num_groups,
        train_read_groups.value_or(0));
  check(block >= 1, "focus.block must be at least 1, not {}", block);
  check(sinks >= 0 && sinks <= kMaxSinks, "focus.sinks must be from 0 to {}, not {}", kMaxSinks,
        sinks);
  check(!keys || training == Training::summary,
        "focus.routing keys has neither a soft nor a hard form: set focus.training to summary");
  check(!keys || (balance_loss == 0 && entropy_loss == 0 && recluster_every == 0 &&
                  centroid_update == CentroidUpdate::gradient),
        "focus.routing keys has no balance: leave balance_loss, entropy_loss, recluster_every and "
        "centroid_update as they are by default");
  check(!keys || choice == GroupChoice::mass,
        "focus.choice own needs focus.routing hidden: a query is in no group of keys");
  check(objective == Objective::lm || training == Training::summary,
        "focus.objective kl and layers need focus.training summary");
}

}  // namespace focus
