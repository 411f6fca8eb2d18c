#include <cmath>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "autograd/machine.h"
#include "autograd/simd/bf16_kernels.h"
#include "data/text/format.h"
#include "focus/evaluation/attention_spec.h"
#include "focus/evaluation/report/html_report.h"
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
Json times_json(const RunTimes& times) {
  if (times.seconds.empty()) return {};
  Json phases = Json::array();
  for (const Profile::Entry& entry : times.phases)
    phases.push_back({{"name", entry.name}, {"seconds", entry.seconds}});
  Json json = {{"seconds", times.seconds},
               {"seconds_min", times.fastest()},
               {"seconds_median", median(times.seconds)},
               {"peak_tensor_bytes", times.peak_bytes},
               {"phases", phases}};
  if (times.flops > 0) json["gflops"] = times.gflops();
  return json;
}

std::string milliseconds(double seconds) {
  return number_text(1e3 * seconds, seconds < 0.1 ? 3 : 1);
}

std::string memory_text(const RunTimes& times) {
  return times.seconds.empty() ? "-" : format_bytes(static_cast<double>(times.peak_bytes));
}

Table times_table(bool soft, const std::vector<AttentionSpeed>& rows) {
  Table table{.caption = "Time per attention call, ms",
              .header = {"tokens", "full", "median", "GFLOP/s", "Focus", "median", "GFLOP/s"}};
  if (soft) table.header.insert(table.header.end(), {"soft", "median", "GFLOP/s"});
  for (const AttentionSpeed& row : rows) {
    auto& cells = table.rows.emplace_back(std::vector{fmt::format("{}", row.length)});
    for (const RunTimes* times : {&row.dense, &row.focus, &row.soft}) {
      if (times == &row.soft && !soft) continue;
      const double middle = times->seconds.empty() ? NAN : median(times->seconds);
      for (const std::string& cell :
           {milliseconds(times->fastest()), milliseconds(middle), number_text(times->gflops(), 1)})
        cells.push_back(cell);
    }
  }
  return table;
}

Table speedups_table(const std::vector<AttentionSpeed>& rows) {
  Table table{.caption = "Speed-up over full attention (fastest runs)",
              .header = {"tokens", "pairs", "largest group", "speed-up", "ideal", "efficiency",
                         "routing included"}};
  for (const AttentionSpeed& row : rows)
    table.rows.push_back({fmt::format("{}", row.length), percent_text(1 / row.ideal_speedup()),
                          percent_text(row.largest_group), number_text(row.speedup(), 2),
                          number_text(row.ideal_speedup(), 2),
                          percent_text(row.speedup() / row.ideal_speedup()),
                          number_text(row.speedup_with_routing(), 2)});
  return table;
}

/// A column for each phase that a row has.
Table phases_table(const std::vector<AttentionSpeed>& rows) {
  Table table{
      .caption =
          "Phases of Focus attention's fastest run, ms, and memory in addition to the inputs",
      .header = {"tokens", "routing"}};
  for (const AttentionSpeed& row : rows)
    for (const Profile::Entry& phase : row.focus.phases)
      if (std::ranges::find(table.header, phase.name) == table.header.end())
        table.header.push_back(phase.name);
  const std::size_t phases = table.header.size();
  table.header.insert(table.header.end(), {"full, memory", "Focus, memory"});
  for (const AttentionSpeed& row : rows) {
    auto& cells = table.rows.emplace_back(
        std::vector{fmt::format("{}", row.length), milliseconds(row.routing.fastest())});
    for (std::size_t c = 2; c < phases; ++c) {
      const auto phase =
          std::ranges::find(row.focus.phases, table.header[c], &Profile::Entry::name);
      cells.push_back(phase == row.focus.phases.end() ? "-" : milliseconds(phase->seconds));
    }
    cells.insert(cells.end(), {memory_text(row.dense), memory_text(row.focus)});
  }
  return table;
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
          {"dense", times_json(row.dense)},
          {"focus", times_json(row.focus)},
          {"soft", times_json(row.soft)},
          {"routing", times_json(row.routing)},
          {"peak_resident_bytes", peak_resident_bytes()}};
}

std::string speed_text(const AttentionSpeedOptions& options,
                       const std::vector<AttentionSpeed>& rows) {
  return fmt::format("{}\n{}\n\n{}\n{}\n{}\n{} resident at peak\n", this_machine().line(),
                     options.text(), plain_text(times_table(options.soft, rows)),
                     plain_text(speedups_table(rows)), plain_text(phases_table(rows)),
                     format_bytes(static_cast<double>(peak_resident_bytes())));
}

}  // namespace focus
