#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "autograd/machine.h"
#include "data/files/durable_file.h"
#include "data/settings/settings_json.h"
#include "focus/report/charts.h"
#include "focus/report/html_report.h"
#include "focus/speed/attention_speed.h"

namespace focus::app {
namespace {

using Json = nlohmann::ordered_json;

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

Table time_table(const std::vector<AttentionSpeed>& rows, bool soft) {
  Table table{.caption = "Time of one attention, ms",
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

Table speedup_table(const std::vector<AttentionSpeed>& rows) {
  Table table{.caption = "Speed-up over full attention, by the fastest runs",
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

Table phase_table(const std::vector<AttentionSpeed>& rows, const AttentionSpeedOptions& options) {
  const bool backward = options.backward, summary = options.summary.has_value();
  const std::vector<const char*> phases =
      summary ? std::vector{"classes", "sums", "near and columns", "chosen groups", "merge"}
              : std::vector{"sort", "local band", "grouped attention", "merge"};
  std::vector<const char*> back;
  if (backward)
    back = summary
               ? std::vector{"near tiles, backward", "chosen groups, backward", "columns, backward"}
               : std::vector{"sparse_attention backward"};
  Table table{.caption = "Phases of Focus's fastest run, ms, and memory beside the inputs",
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

LineChart speedup_chart(const std::vector<AttentionSpeed>& rows, const std::string& title) {
  Series measured{.name = "measured"}, ideal{.name = "ideal: all pairs / attended pairs"};
  for (const AttentionSpeed& row : rows) {
    measured.points.emplace_back(static_cast<double>(row.length), row.speedup());
    ideal.points.emplace_back(static_cast<double>(row.length), row.ideal_speedup());
  }
  return {.title = title,
          .x_label = "tokens",
          .y_label = "times as fast as full attention",
          .series = {measured, ideal},
          .log_y = true,
          .log_x = true,
          .references = {{.label = "full attention", .y = 1}}};
}

void write_speed_page(const std::string& path, const std::string& setting, const LineChart& chart,
                      std::initializer_list<Table> tables) {
  HtmlReport report("Speed of attention");
  report.paragraph(this_machine().line());
  report.paragraph(setting);
  report.figure(line_chart_svg(chart));
  for (const Table& table : tables) report.table(table);
  write_file_durably(path, std::string_view(report.html()));
}

}  // namespace

int run_speed(Arguments arguments) {
  std::vector<Index> lengths = {512, 1024, 2048, 4096, 8192, 16384};
  std::string json, svg, html;
  int threads = 0;
  AttentionSpeedOptions options;
  CLI::App app(
      "Full causal attention against hard or summary Focus attention on random q, k and v of one "
      "sequence, "
      "in turns. Focus's time includes the sort into classes and the local window; the groups are "
      "found before, and the time of that stands beside it. GFLOP/s count 4 head_dim operations "
      "for each attended pair and head, 2.5 times that for backward. The ideal speed-up is that of "
      "the pairs: all there are by those attended.",
      "focus speed");
  app.add_option("--lengths", lengths, "tokens, one run each (default 512 to 16384)")
      ->delimiter(',');
  std::vector<std::string> attentions = {"hard:1"};
  add_attention_option(app, attentions,
                       "what is timed against dense: hard:2 (default hard:1), hard:2:gate=keep; "
                       "with soft beside it: hard:1,soft; or groups of keys: summary:2");
  std::vector<RecipeField> fields = recipe_fields(options);
  std::erase_if(fields, [](const RecipeField& field) {
    return field.key == "top_k" || field.key == "hard_gate" || field.key == "soft";
  });
  add_settings(app, fields);
  app.add_option("--threads", threads, "threads");
  app.add_option("--json", json, "write the figures to this file too");
  app.add_option("--svg", svg, "write a plot of the speed-up");
  app.add_option("--html", html, "write a page with plot and tables");
  parse_arguments(app, arguments);
  options.read_attentions(attentions, "--attention");
  options = options.filled_in();
  check(threads >= 0, "--threads must not be negative, not {}", threads);
  for (const Index length : lengths)
    check(length > 0, "--lengths must be positive, not {}", length);
  std::ranges::sort(lengths);
  set_threads(threads);

  std::vector<AttentionSpeed> rows;
  Json json_rows = Json::array();
  for (const Index length : lengths) {
    rows.push_back(measure_attention(options, length, [&](std::string_view what) {
      spdlog::info("{} tokens: {}", length, what);
    }));
    json_rows.push_back(to_json(rows.back()));
    trim_pool();  // so that no length holds buffers of the one before
  }

  const std::string setting = options.text();
  const Table times = time_table(rows, options.soft), speedups = speedup_table(rows);
  const Table phases = phase_table(rows, options);
  const LineChart chart =
      speedup_chart(rows, fmt::format("Speed-up over full attention, K={}, {}", options.num_groups,
                                      options.attention_text()));
  const std::string memory = memory_text(peak_resident_bytes()) + " resident at most";
  fmt::print("{}\n{}\n\n{}\n{}\n{}\n{}\n", this_machine().line(), setting, plain_text(times),
             plain_text(speedups), plain_text(phases), memory);
  Json figures = {{"machine", machine_json()}};
  figures.update(settings_json(recipe_fields(options)));
  figures["attention"] = options.attention_text();
  figures["rows"] = json_rows;
  write_json(json, figures);
  if (!svg.empty()) write_file_durably(svg, std::string_view(svg_file(chart)));
  if (!html.empty())
    write_speed_page(html, setting + ". " + memory + ".", chart, {speedups, times, phases});
  return 0;
}

}  // namespace focus::app
