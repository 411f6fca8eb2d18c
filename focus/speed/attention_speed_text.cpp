#include <fmt/format.h>

#include <algorithm>

#include "autograd/base/memory.h"
#include "autograd/machine.h"
#include "data/text/format.h"
#include "focus/evaluation/report/table.h"
#include "focus/speed/attention_speed.h"

namespace focus {
namespace {

double phase_seconds(const RunTimes& times, std::string_view name) {
  const auto found = std::ranges::find(times.phases, name, &Profile::Entry::name);
  return found == times.phases.end() ? 0 : found->seconds;
}

std::string milliseconds(double seconds) {
  return number_text(1e3 * seconds, seconds < 0.1 ? 3 : 1);
}

std::string memory_text(std::size_t bytes) { return format_bytes(static_cast<double>(bytes)); }

using Cells = std::vector<std::string>;

void append(Cells& cells, const Cells& more) {
  cells.insert(cells.end(), more.begin(), more.end());
}

Table times_table(bool soft, const std::vector<AttentionSpeed>& rows) {
  Table table{.caption = "Time per attention call, ms",
              .header = {"tokens", "full", "median", "GFLOP/s", "Focus", "median", "GFLOP/s"}};
  if (soft) append(table.header, {"soft", "median", "GFLOP/s"});
  for (const AttentionSpeed& row : rows) {
    const auto run = [&](const std::optional<RunTimes>& times, std::int64_t pairs) {
      if (!times) return Cells{"-", "-", "-"};
      return Cells{milliseconds(times->fastest()), milliseconds(median(times->seconds)),
                   number_text(row.gflops(*times, pairs), 1)};
    };
    Cells cells = {fmt::format("{}", row.length)};
    append(cells, run(row.dense, row.pairs.all));
    append(cells, run(row.focus, row.pairs.attended));
    if (soft) append(cells, run(row.soft, row.pairs.all));
    table.rows.push_back(std::move(cells));
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

Table phases_table(bool backward, bool summary, const std::vector<AttentionSpeed>& rows) {
  const std::vector<const char*> phases =
      summary
          ? std::vector{"groups", "sums", "local and summary tokens", "selected groups", "merge"}
          : std::vector{"sort", "local band", "grouped attention", "merge"};
  std::vector<const char*> back;
  if (backward)
    back = summary ? std::vector{"local tiles, backward", "selected groups, backward",
                                 "summary tokens, backward"}
                   : std::vector{"sparse_attention backward"};
  Table table{
      .caption =
          "Phases of Focus attention's fastest run, ms, and memory in addition to the inputs",
      .header = {"tokens"}};
  if (!summary) table.header.emplace_back("routing");
  append(table.header, {phases.begin(), phases.end()});
  if (summary)
    append(table.header, {back.begin(), back.end()});
  else if (backward)
    table.header.emplace_back("backward");
  append(table.header, {"full, memory", "Focus, memory"});
  for (const AttentionSpeed& row : rows) {
    Cells cells = {fmt::format("{}", row.length)};
    if (!summary)
      cells.push_back(row.routing.seconds.empty() ? "-" : milliseconds(row.routing.fastest()));
    for (const char* phase : phases) cells.push_back(milliseconds(phase_seconds(row.focus, phase)));
    for (const char* phase : back) cells.push_back(milliseconds(phase_seconds(row.focus, phase)));
    append(cells, {row.dense ? memory_text(row.dense->peak_bytes) : "-",
                   memory_text(row.focus.peak_bytes)});
    table.rows.push_back(std::move(cells));
  }
  return table;
}

}  // namespace

std::string speed_text(const AttentionSpeedOptions& options,
                       const std::vector<AttentionSpeed>& rows) {
  return fmt::format("{}\n{}\n\n{}\n{}\n{}\n{} resident at peak\n", this_machine().line(),
                     options.text(), plain_text(times_table(options.soft, rows)),
                     plain_text(speedups_table(rows)),
                     plain_text(phases_table(options.backward, options.summary.has_value(), rows)),
                     memory_text(peak_resident_bytes()));
}

}  // namespace focus
