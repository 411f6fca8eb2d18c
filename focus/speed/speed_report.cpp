#include "focus/speed/speed_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "autograd/base/memory.h"
#include "autograd/machine.h"
#include "data/text/format.h"
#include "focus/evaluation/report/html_report.h"

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

}  // namespace

SpeedReport::SpeedReport(const AttentionSpeedOptions& options,
                         const std::vector<AttentionSpeed>& rows)
    : options_(options),
      rows_(rows),
      setting_(options.text()),
      memory_(memory_text(peak_resident_bytes()) + " resident at peak") {}

std::string SpeedReport::text() const {
  return fmt::format("{}\n{}\n\n{}\n{}\n{}\n{}\n", this_machine().line(), setting_,
                     plain_text(times()), plain_text(speedups()), plain_text(phases()), memory_);
}

Table SpeedReport::times() const {
  const bool soft = options_.soft;
  Table table{.caption = "Time per attention call, ms",
              .header = {"tokens", "full", "median", "GFLOP/s", "Focus", "median", "GFLOP/s"}};
  if (soft) append(table.header, {"soft", "median", "GFLOP/s"});
  for (const AttentionSpeed& row : rows_) {
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

Table SpeedReport::speedups() const {
  Table table{.caption = "Speed-up over full attention (fastest runs)",
              .header = {"tokens", "pairs", "largest group", "speed-up", "ideal", "efficiency",
                         "routing included"}};
  for (const AttentionSpeed& row : rows_)
    table.rows.push_back({fmt::format("{}", row.length), percent_text(1 / row.ideal_speedup()),
                          percent_text(row.largest_group), number_text(row.speedup(), 2),
                          number_text(row.ideal_speedup(), 2),
                          percent_text(row.speedup() / row.ideal_speedup()),
                          number_text(row.speedup_with_routing(), 2)});
  return table;
}

Table SpeedReport::phases() const {
  const bool backward = options_.backward, summary = options_.summary.has_value();
  const std::vector<const char*> phases =
      summary ? std::vector{"classes", "sums", "near and columns", "chosen groups", "merge"}
              : std::vector{"sort", "local band", "grouped attention", "merge"};
  std::vector<const char*> back;
  if (backward)
    back = summary
               ? std::vector{"near tiles, backward", "chosen groups, backward", "columns, backward"}
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
  for (const AttentionSpeed& row : rows_) {
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

LineChart SpeedReport::chart() const {
  Series measured{.name = "measured"}, ideal{.name = "ideal: all pairs / attended pairs"};
  for (const AttentionSpeed& row : rows_) {
    measured.points.emplace_back(static_cast<double>(row.length), row.speedup());
    ideal.points.emplace_back(static_cast<double>(row.length), row.ideal_speedup());
  }
  return {.title = fmt::format("Speed-up over full attention, K={}, {}", options_.num_groups,
                               options_.attention_text()),
          .x_label = "tokens",
          .y_label = "times as fast as full attention",
          .series = {measured, ideal},
          .log_y = true,
          .log_x = true,
          .references = {{.label = "full attention", .y = 1}}};
}

std::string SpeedReport::page() const {
  HtmlReport report("Speed of attention");
  report.paragraph(this_machine().line());
  report.paragraph(setting_ + ". " + memory_ + ".");
  report.figure(line_chart_svg(chart()));
  for (const Table& table : {speedups(), times(), phases()}) report.table(table);
  return report.html();
}

}  // namespace focus
