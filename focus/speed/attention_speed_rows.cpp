#include <cmath>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "autograd/base/clock.h"
#include "autograd/base/memory.h"
#include "autograd/machine.h"
#include "autograd/simd/bf16_kernels.h"
#include "focus/evaluation/attention_spec.h"
#include "focus/speed/attention_speed.h"

// Reads a measurement's attention specs and writes its figures.
namespace focus {
namespace {

using Json = nlohmann::ordered_json;

/// Unspecified fields have the defaults of FocusConfig.
SummarySettings summary_options(const AttentionSpec& spec, const AttentionSpeedOptions& options) {
  FocusConfig config;
  config.grouping.name = "keys";
  config.num_groups = options.num_groups;
  config.local_window = options.local_window;
  return spec.or_from(config).summary_of(0);
}

/// Runs that were left out are null.
Json times_json(const AttentionSpeed& row, const RunTimes* times, std::int64_t pairs) {
  if (times == nullptr || times->seconds.empty()) return {};
  Json phases = Json::array();
  for (const Profile::Entry& entry : times->phases)
    phases.push_back({{"name", entry.name}, {"seconds", entry.seconds}});
  Json json = {{"seconds", times->seconds},
               {"seconds_min", times->fastest()},
               {"seconds_median", median(times->seconds)},
               {"peak_tensor_bytes", times->peak_bytes},
               {"phases", phases}};
  if (pairs > 0) json["gflops"] = row.gflops(*times, pairs);
  return json;
}
Json times_json(const AttentionSpeed& row, const std::optional<RunTimes>& times,
                std::int64_t pairs) {
  return times_json(row, times ? &*times : nullptr, pairs);
}

}  // namespace

void AttentionSpeedOptions::read_attentions(const std::vector<std::string>& words,
                                            const std::string& where) {
  std::string timed;
  for (const std::string& word : words) {
    const AttentionSpec spec = parse_attention(word, where);
    if (spec.kind == AttentionKind::soft) {
      soft = true;
      continue;
    }
    if (!timed.empty())
      fail("{} {}: only one attention is timed against dense, and that is {}", where, shown(word),
           shown(timed));
    timed = word;
    if (spec.kind == AttentionKind::hard) {
      top_k = spec.top_k;
      hard_gate = spec.gate.value_or(HardGate::drop);
    } else if (spec.kind == AttentionKind::summary) {
      summary = summary_options(spec, *this);
    } else {
      fail("{} {}: dense is always timed; name hard:K or summary:M, and soft", where, word);
    }
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

double AttentionSpeed::gflops(const RunTimes& times, std::int64_t num_pairs) const {
  return static_cast<double>(num_pairs) * flops_per_pair / times.fastest() / 1e9;
}

nlohmann::ordered_json to_json(const AttentionSpeed& row) {
  const auto number = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
  return {{"length", row.length},
          {"pairs_all", row.pairs.all},
          {"pairs_attended", row.pairs.attended},
          {"largest_group", row.largest_group},
          {"ideal_speedup", row.ideal_speedup()},
          {"speedup", number(row.speedup())},
          {"efficiency", number(row.speedup() / row.ideal_speedup())},
          {"speedup_with_routing", number(row.speedup_with_routing())},
          {"dense", times_json(row, row.dense, row.pairs.all)},
          {"focus", times_json(row, &row.focus, row.pairs.attended)},
          {"soft", times_json(row, row.soft, row.pairs.all)},
          {"routing", times_json(row, &row.routing, 0)},
          {"peak_resident_bytes", peak_resident_bytes()}};
}

}  // namespace focus
