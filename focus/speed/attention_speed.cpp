#include <cmath>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "autograd/machine.h"
#include "autograd/simd/bf16_kernels.h"
#include "data/text/format.h"
#include "focus/evaluation/report/html_report.h"
#include "focus/method/grouping/key_grouping.h"
#include "focus/method/grouping/routing.h"
#include "focus/speed/speed.h"

namespace focus {
namespace {

constexpr double kLeastSeconds = 0.5;  // of all rounds of a length
constexpr std::size_t kMostRounds = 50;

Tensor random_tensor(const Shape& shape, Rng& rng) {
  Tensor tensor(shape);
  for (Real& x : tensor.span()) x = static_cast<Real>(rng.normal());
  return tensor;
}

/// Groups of random keys, fitted as for a model.
KeyGroups fitted_groups(const Tensor& k, int num_groups, Rng& rng) {
  constexpr Index kMostKeys = 16384;
  KeyGroups groups = make_key_groups(num_groups, k.dim(2), k.dim(3), rng);
  const Index tokens = std::min(kMostKeys, k.dim(1));
  fit_key_groups(
      groups,
      Tensor::from({tokens, k.dim(2), k.dim(3)}, k.span().first(tokens * k.dim(2) * k.dim(3))), 1);
  return groups;
}

/// Random inputs of one length and the timed attentions.
class Measurement {
 public:
  Measurement(const AttentionSpeedOptions& options, Index length)
      : o_(options), length_(length), rng_(1) {
    q_ = input();
    k_ = input();
    v_ = input();
    const Index hidden_size = o_.heads * o_.head_dim;
    h_ = Variable(random_tensor({1, length, hidden_size}, rng_));
    config_.num_groups = o_.num_groups;
    layer_ = make_focus_layer(config_, hidden_size, rng_);
    if (o_.summary) {
      check(length >= o_.num_groups,
            "attention speed: {} tokens for {} groups; give at least one token per group", length,
            o_.num_groups);
      key_groups_ = fitted_groups(k_.value(), o_.num_groups, rng_);
    }
  }

  void dense() {
    attend([&] { return attention(q_, k_, v_, scaled()); });
  }
  void find_groups() {
    const NoGrad guard;
    const Routing routing = route(h_, layer_, config_, Balance::sequence);
    sets_ = membership(routing, o_.top_k);
    g_ = Variable(routing.assignments.value());
  }
  void hard() {
    g_.set_requires_grad(o_.backward);
    attend([&] {
      GateOptions gate = GateOptions::from(config_);
      gate.local_window = o_.local_window;
      gate.gated = o_.hard_gate == HardGate::keep;
      gate.membership = sets_;
      return sparse_attention(q_, k_, v_, g_, scaled(), gate);
    });
  }
  /// Includes grouping the keys, selection, sort and sums.
  void summary() {
    attend([&] {
      group_ids_ =
          nearest_groups(k_.value(), key_groups_.centroids.value(), key_groups_.bias.value());
      return summary_attention(q_, k_, v_, group_ids_, key_groups_.summary_bias, scaled(),
                               *o_.summary, &summary_);
    });
  }

  /// Says which pairs were attended, in which groups.
  void describe(AttentionSpeed& speed) {
    GroupStatistics groups;
    if (o_.summary) {
      speed.pairs = count_pairs({}, length_, o_.summary->local_window, 0);
      speed.pairs.attended = (summary_.pairs.at(0) + o_.heads / 2) / o_.heads;
      groups.add_sizes(group_ids_.ids, group_ids_.heads, o_.num_groups);
    } else {
      speed.pairs = count_pairs(sets_, length_, o_.local_window, 0);
      groups.tokens = length_;
      groups.sizes.resize(o_.num_groups);
      for (const std::uint64_t set : sets_)
        for (std::size_t g = 0; g < groups.sizes.size(); ++g) groups.sizes[g] += set >> g & 1;
      speed.sets = std::move(sets_);
    }
    speed.largest_group = groups.dominance();
    const double all = static_cast<double>(speed.pairs.all) * speed.flops_per_pair;
    speed.dense.flops = all;
    speed.focus.flops = all / speed.ideal_speedup();
  }

 private:
  Variable input() {
    Variable x(random_tensor({1, length_, o_.heads, o_.head_dim}, rng_));
    x.set_requires_grad(o_.backward);
    return x;
  }
  AttentionOptions scaled() const {
    return {.scale = static_cast<Real>(1 / std::sqrt(static_cast<double>(o_.head_dim))),
            .bf16 = o_.precision == Precision::bf16 ? simd::fast_bf16_kernels() : nullptr};
  }
  template <class F>
  void attend(F&& op) {
    const Variable out = op();
    if (!o_.backward) return;
    backward(out);
    for (Variable x : {q_, k_, v_, g_})
      if (x.defined()) x.zero_grad();
  }

  const AttentionSpeedOptions& o_;
  const Index length_;
  Rng rng_;
  Variable q_, k_, v_, h_, g_;
  FocusConfig config_;
  FocusLayer layer_;
  std::vector<std::uint64_t> sets_;
  KeyGroups key_groups_;
  GroupIds group_ids_;
  SummaryReport summary_;
};

using Json = nlohmann::ordered_json;

Json times_json(const RunTimes& times) {
  if (times.seconds.empty()) return {};
  Json json = {{"seconds", times.seconds},
               {"seconds_min", times.fastest()},
               {"seconds_median", median(times.seconds)},
               {"peak_tensor_bytes", times.peak_bytes}};
  if (times.flops > 0) json["gflops"] = times.gflops();
  return json;
}

std::string milliseconds(double seconds) {
  return number_text(1e3 * seconds, seconds < 0.1 ? 3 : 1);
}

}  // namespace

void AttentionSpeedOptions::validate() const {
  check(summary || num_groups <= kMaxGroups,
        "--num-groups {}: hard attention has at most {}, groups of keys (--attention summary:2) at "
        "most {}",
        num_groups, kMaxGroups, kMaxKeyGroups);
  check(!summary || summary->num_selected_groups <= num_groups,
        "summary:{1}: a query reads at most all {0} groups", num_groups,
        summary ? summary->num_selected_groups : 0);
  check(precision == Precision::float32 || precision == Precision::bf16,
        "--precision {}: expected float32 or bf16", name_of(precision));
  check(top_k <= num_groups, "hard:{1}: a token keeps 1 to {0} groups", num_groups, top_k);
}

double RunTimes::fastest() const { return seconds.empty() ? NAN : std::ranges::min(seconds); }

AttentionSpeed measure_attention(const AttentionSpeedOptions& o, Index length,
                                 const std::function<void(std::string_view)>& report) {
  o.validate();
  check(length > 0, "attention speed: a length must be positive, not {}", length);
  AttentionSpeed speed;
  speed.length = length;
  // Two products of 2 head_dim operations a pair and head; backward has five.
  speed.flops_per_pair = static_cast<double>(4 * o.heads * o.head_dim) * (o.backward ? 3.5 : 1);
  report("random inputs");
  Measurement measured(o, length);
  const bool dense_too = o.dense_up_to == 0 || length <= o.dense_up_to;
  double spent = 0;
  for (std::size_t round = 0; round < static_cast<std::size_t>(o.repeats) ||
                              (spent < kLeastSeconds && round < kMostRounds);
       ++round) {
    const auto timed = [&](RunTimes& times, std::string_view name, auto&& run) {
      report(fmt::format("round {}, {}", round + 1, name));
      const std::size_t before = pool_stats().live;
      reset_pool_peak();
      const double start = now();
      run();
      const double seconds = now() - start;
      times.seconds.push_back(seconds);
      times.peak_bytes = std::max(times.peak_bytes, pool_stats().peak - before);
      spent += seconds;
    };
    if (dense_too) timed(speed.dense, "full attention", [&] { measured.dense(); });
    if (o.summary) {
      timed(speed.focus, "Focus", [&] { measured.summary(); });
      continue;
    }
    timed(speed.routing, "routing", [&] { measured.find_groups(); });
    timed(speed.focus, "Focus", [&] { measured.hard(); });
  }
  measured.describe(speed);
  return speed;
}

void AttentionSpeedOptions::read_attention(const std::string& word, const std::string& where) {
  const AttentionSpec spec = parse_attention(word, where);
  if (spec.kind == AttentionKind::hard) {
    top_k = spec.top_k;
    hard_gate = spec.gate.value_or(HardGate::drop);
  } else if (spec.kind == AttentionKind::summary) {
    FocusConfig config;  // whose defaults unspecified fields have
    config.grouping.name = "keys";
    config.num_groups = num_groups;
    config.local_window = local_window;
    summary = spec.or_from(config).summary_of(0);
  } else {
    fail("{} {}: dense is always timed; name hard:K or summary:M", where, word);
  }
}

std::string AttentionSpeedOptions::attention_text() const {
  if (!summary) return fmt::format("k={}, w={}", top_k, local_window);
  return summary_name(*summary);
}

std::string AttentionSpeedOptions::text() const {
  const std::string what = fmt::format("{} head{} of {}, K={}, {}", heads, heads == 1 ? "" : "s",
                                       head_dim, num_groups, attention_text());
  std::string pass = backward ? "forward and backward" : "forward";
  if (precision == Precision::bf16)
    pass += simd::fast_bf16_kernels() != nullptr
                ? ", bf16"
                : ", float32, which is as fast as bf16 on this machine";
  if (summary) return fmt::format("{}, {}; groups of random keys by k-means", what, pass);
  return fmt::format(
      "{}, affinity {}, {}; groups by routing random vectors, balanced over the sequence", what,
      hard_gate == HardGate::keep ? "kept" : "dropped", pass);
}

nlohmann::ordered_json to_json(const AttentionSpeed& row) {
  return {{"length", row.length},
          {"pairs_all", row.pairs.all},
          {"pairs_attended", row.pairs.attended},
          {"largest_group", row.largest_group},
          {"ideal_speedup", row.ideal_speedup()},
          {"speedup", row.speedup()},
          {"efficiency", row.speedup() / row.ideal_speedup()},
          {"speedup_with_routing", row.speedup_with_routing()},
          {"dense", times_json(row.dense)},
          {"focus", times_json(row.focus)},
          {"routing", times_json(row.routing)},
          {"peak_resident_bytes", peak_resident_bytes()}};
}

std::string speed_text(const AttentionSpeedOptions& options,
                       const std::vector<AttentionSpeed>& rows) {
  Table table{.caption = "Time per attention call, ms (fastest runs), and speed-up over full",
              .header = {"tokens", "full", "GFLOP/s", "Focus", "GFLOP/s", "memory", "routing",
                         "density", "largest group", "speed-up", "ideal", "routing included"}};
  for (const AttentionSpeed& row : rows)
    table.rows.push_back({fmt::format("{}", row.length), milliseconds(row.dense.fastest()),
                          number_text(row.dense.gflops(), 1), milliseconds(row.focus.fastest()),
                          number_text(row.focus.gflops(), 1),
                          format_bytes(static_cast<double>(row.focus.peak_bytes)),
                          milliseconds(row.routing.fastest()),
                          percent_text(1 / row.ideal_speedup()), percent_text(row.largest_group),
                          number_text(row.speedup(), 2), number_text(row.ideal_speedup(), 2),
                          number_text(row.speedup_with_routing(), 2)});
  return fmt::format("{}\n{}\n\n{}\n{} resident at peak\n", this_machine().line(), options.text(),
                     plain_text(table), format_bytes(static_cast<double>(peak_resident_bytes())));
}

}  // namespace focus
