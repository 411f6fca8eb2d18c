#include "focus/train/attention_speed.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "autograd/check.h"
#include "autograd/clock.h"
#include "focus/attention/sparse_attention.h"
#include "focus/routing/routing.h"
#include "focus/summary/key_groups.h"

namespace focus {
namespace {

constexpr double kLeastSeconds = 0.5;  // of all rounds of a length
constexpr std::size_t kMostRounds = 50;

Tensor random_tensor(const Shape& shape, Rng& rng) {
  Tensor tensor(shape);
  for (Real& x : tensor.span()) x = static_cast<Real>(rng.normal());
  return tensor;
}

/// Assignments that go with given sets: all of a token's weight on its groups, equally.
Tensor even_assignments(std::span<const std::uint64_t> sets, int groups, int top_k) {
  Tensor g = Tensor::zeros({1, static_cast<Index>(sets.size()), groups});
  for (std::size_t i = 0; i < sets.size(); ++i)
    for (int k = 0; k < groups; ++k)
      if (sets[i] >> k & 1) g.data()[static_cast<Index>(i) * groups + k] = Real(1) / Real(top_k);
  return g;
}

double largest_group_share(std::span<const std::uint64_t> sets, int groups) {
  std::int64_t largest = 0;
  for (int k = 0; k < groups; ++k)
    largest = std::max<std::int64_t>(
        largest, std::ranges::count_if(sets, [k](std::uint64_t set) { return set >> k & 1; }));
  return static_cast<double>(largest) / static_cast<double>(sets.size());
}

/// Groups of random keys, fitted as those of a model are.
KeyGroups fitted_groups(const Tensor& k, int num_groups, Rng& rng) {
  constexpr Index kMostKeys = 16384;
  KeyGroups groups = make_key_groups(num_groups, k.dim(2), k.dim(3), rng);
  const Index tokens = std::min(kMostKeys, k.dim(1));
  fit_key_groups(groups,
                 Tensor::from({tokens, k.dim(2), k.dim(3)},
                              k.span().first(static_cast<std::size_t>(tokens * k.dim(2) * k.dim(3)))),
                 1);
  return groups;
}

AttentionOptions scaled_options(const AttentionSpeedOptions& o) {
  return {.scale = static_cast<Real>(1 / std::sqrt(static_cast<double>(o.head_dim)))};
}

template <class F>
void time_run(RunTimes& times, F&& run) {
  const std::size_t before = pool_stats().live;
  reset_pool_peak();
  const Profile profile;
  const double start = now();
  run();
  const double seconds = now() - start;
  if (times.seconds.empty() || seconds < times.fastest()) times.phases = profile.entries();
  times.seconds.push_back(seconds);
  times.peak_bytes = std::max(times.peak_bytes, pool_stats().peak - before);
}

}  // namespace

AttentionSpeedOptions AttentionSpeedOptions::filled_in() const {
  AttentionSpeedOptions filled = *this;
  check(heads > 0 && head_dim > 0, "--heads {} and --head-dim {} must be positive", heads,
        head_dim);
  if (kv_heads == 0) filled.kv_heads = heads;
  if (hidden_size == 0) filled.hidden_size = heads * head_dim;
  check(heads % filled.kv_heads == 0, "--kv-heads {} does not divide --heads {}", kv_heads, heads);
  check(top_k <= num_groups, "hard:{1}: a token keeps from 1 to the {0} groups", num_groups, top_k);
  return filled;
}

double RunTimes::fastest() const { return *std::ranges::min_element(seconds); }

double AttentionSpeed::ideal_speedup() const {
  return static_cast<double>(pairs.all) / static_cast<double>(pairs.attended);
}
double AttentionSpeed::speedup() const { return dense ? dense->fastest() / focus.fastest() : NAN; }
double AttentionSpeed::speedup_with_routing() const {
  if (!dense || routing.seconds.empty()) return NAN;
  return dense->fastest() / (focus.fastest() + routing.fastest());
}

std::vector<std::uint64_t> random_sets(Index length, int groups, int top_k, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::uint64_t> sets(static_cast<std::size_t>(length), 0);
  for (std::uint64_t& set : sets)
    while (std::popcount(set) < top_k)
      set |= std::uint64_t{1} << rng.below(static_cast<std::uint64_t>(groups));
  return sets;
}

AttentionSpeed measure_attention(const AttentionSpeedOptions& options, Index length,
                                 const std::function<void(std::string_view)>& report) {
  const AttentionSpeedOptions o = options.filled_in();
  check(length > 0, "attention speed: a length must be positive, not {}", length);
  AttentionSpeed speed;
  speed.length = length;
  // Two products of 2 head_dim operations a pair and head; backward has five.
  speed.flops_per_pair = static_cast<double>(4 * o.heads * o.head_dim) * (o.backward ? 3.5 : 1);
  report("random inputs");
  Rng rng(static_cast<std::uint64_t>(o.seed));
  const auto input = [&](Index heads) {
    Variable x(random_tensor({1, length, heads, o.head_dim}, rng));
    x.set_requires_grad(o.backward);
    return x;
  };
  const Variable q = input(o.heads), k = input(o.kv_heads), v = input(o.kv_heads);
  const Variable h(random_tensor({1, length, o.hidden_size}, rng));
  FocusConfig config;
  config.num_groups = o.num_groups;
  config.routing_dim = o.routing_dim;
  const FocusLayer layer = make_focus_layer(config, o.hidden_size, rng);

  std::optional<KeyGroups> key_groups;
  SummaryReport summary;
  if (o.summary && length >= o.num_groups)
    key_groups = fitted_groups(k.value(), o.num_groups, rng);
  else
    check(!o.summary, "attention speed: {} tokens for {} groups; give at least as many", length,
          o.num_groups);
  const auto attend_summary = [&] {
    const KeyClasses classes =
        nearest_classes(k.value(), key_groups->centroids.value(), key_groups->bias.value());
    profile_mark("classes");
    return summary_attention(q, k, v, classes, key_groups->beta, scaled_options(o), *o.summary,
                             &summary);
  };

  std::vector<std::uint64_t> sets;
  Variable g;
  const auto find_groups = [&] {
    const NoGrad guard;
    const Routing routing = route(h, layer, config, Balance::sequence);
    sets = membership(routing, o.top_k);
    g = Variable(routing.assignments.value());
  };
  if (o.assignment == SpeedAssignment::uniform) {
    sets = random_sets(length, o.num_groups, o.top_k, static_cast<std::uint64_t>(o.seed));
    g = Variable(even_assignments(sets, o.num_groups, o.top_k));
  }

  const AttentionOptions scaled = scaled_options(o);
  const auto attend = [&](auto&& op) {
    const Variable out = op();
    if (!o.backward) return;
    backward(out);
    for (Variable x : {q, k, v, g})
      if (x.defined()) x.zero_grad();
  };
  GateOptions soft_gate = GateOptions::from(config);
  soft_gate.local_window = o.local_window;
  const bool dense_too = o.dense_up_to == 0 || length <= o.dense_up_to;
  if (dense_too) speed.dense.emplace();
  if (dense_too && o.soft) speed.soft.emplace();
  double spent = 0;
  for (std::size_t round = 0; round < static_cast<std::size_t>(o.repeats) ||
                              (spent < kLeastSeconds && round < kMostRounds);
       ++round) {
    const auto timed = [&](RunTimes& times, std::string_view name, auto&& run) {
      report(fmt::format("round {}, {}", round + 1, name));
      time_run(times, run);
      spent += times.seconds.back();
    };
    if (dense_too)
      timed(*speed.dense, "full attention",
            [&] { attend([&] { return attention(q, k, v, scaled); }); });
    if (o.summary) {
      timed(speed.focus, "Focus", [&] { attend(attend_summary); });
      continue;
    }
    if (o.assignment == SpeedAssignment::routing) timed(speed.routing, "routing", find_groups);
    g.set_requires_grad(o.backward);
    timed(speed.focus, "Focus", [&] {
      attend([&] {
        GateOptions gate = soft_gate;
        gate.gated = o.hard_gate == HardGate::keep;
        gate.membership = sets;
        return sparse_attention(q, k, v, g, scaled, gate);
      });
    });
    if (speed.soft)
      timed(*speed.soft, "soft attention",
            [&] { attend([&] { return gated_attention(q, k, v, g, scaled, soft_gate); }); });
  }
  if (o.summary) {
    speed.pairs = count_pairs({}, length, o.summary->zones.window, 0);
    speed.pairs.attended = (summary.pairs.at(0) + o.heads / 2) / o.heads;
    return speed;
  }
  speed.pairs = count_pairs(sets, length, o.local_window, 0);
  speed.largest_group = largest_group_share(sets, o.num_groups);
  return speed;
}

}  // namespace focus
