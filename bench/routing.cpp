#include "focus/method/grouping/routing.h"

#include "bench/cases.h"
#include "bench/membership.h"
#include "focus/method/attention/group_plans.h"
#include "focus/method/grouping/sinkhorn.h"

namespace focus::bench {
namespace {

constexpr Index kHidden = 768;

FocusConfig config() {
  FocusConfig made;
  made.num_groups = kGroups;
  return made;
}

FocusLayer layer() {
  Rng rng(6);
  return make_focus_layer(config(), kHidden, rng);
}

Case routing(Index seq_len, bool with_backward, Balance balance) {
  const FocusLayer made = layer();
  const auto op = [=](const Variables& x) {
    const FocusLayer used{x[1], x[2], made.potentials};
    return route(x[0], used, config(), balance).assignments;
  };
  Variables inputs = {random_tensor({1, seq_len, kHidden}, 1), made.projection.value(),
                      made.centroids.value()};
  Case c;
  c.run = with_backward ? forward_backward(std::move(inputs), op) : forward(std::move(inputs), op);
  c.tokens = static_cast<double>(seq_len);
  return c;
}

Case sinkhorn_rounds(Index seq_len, bool with_backward) {
  const auto count = static_cast<std::size_t>(seq_len * kGroups);
  const Tensor drawn = random_tensor({seq_len * kGroups}, 1);
  const std::vector<double> logits(drawn.span().begin(), drawn.span().end());
  const std::vector<double> d_potentials(kGroups, 1.0);
  Case c;
  c.run = [=, gradient = std::vector<double>(with_backward ? count : 0)]() mutable {
    const SinkhornTrace trace =
        sinkhorn(logits.data(), seq_len, kGroups, config().tokens().sinkhorn_iters);
    if (with_backward)
      sinkhorn_backward(logits.data(), trace, d_potentials.data(), gradient.data());
  };
  c.tokens = static_cast<double>(seq_len);
  return c;
}

Case memberships(Index seq_len, int top_k, bool with_plan) {
  const NoGrad off;
  const Routing routed =
      route(random_tensor({1, seq_len, kHidden}, 1), layer(), config(), Balance::sequence);
  Case c;
  c.run = [=] {
    const std::vector<std::uint64_t> sets = membership(routed, top_k);
    if (with_plan) shared_groups_plan(sets, 1, seq_len, 0, 129);
  };
  c.tokens = static_cast<double>(seq_len);
  return c;
}

}  // namespace

void add_routing_cases() {
  for (const Index seq_len : kLengths) {
    const std::string length = fmt::format("T:{}", seq_len);
    for (const auto& [pass, with_backward] : kPasses) {
      const bool both = with_backward;
      for (const Balance balance : {Balance::sequence, Balance::carried})
        add_case(fmt::format("routing_{}/{}/{}",
                             enum_names(balance)[static_cast<std::size_t>(balance)], pass, length),
                 [=] { return routing(seq_len, both, balance); });
      add_case(fmt::format("sinkhorn/{}/{}", pass, length),
               [=] { return sinkhorn_rounds(seq_len, both); });
    }
    for (const int top_k : {1, 2}) {
      add_case(fmt::format("membership_k{}/{}", top_k, length),
               [=] { return memberships(seq_len, top_k, false); });
      add_case(fmt::format("membership_and_class_plan_k{}/{}", top_k, length),
               [=] { return memberships(seq_len, top_k, true); });
    }
  }
}

}  // namespace focus::bench
