#include <algorithm>
#include <cmath>

#include "apps/attention_speed.h"
#include "apps/command.h"
#include "apps/report/html_report.h"
#include "apps/report/svg_file.h"
#include "apps/terminal/machine.h"
#include "apps/terminal/progress.h"
#include "autograd/check.h"
#include "data/files/durable_file.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

double phase_seconds(const RunTimes& times, std::string_view name) {
  const auto found = std::ranges::find(times.phases, name, &Profile::Entry::name);
  return found == times.phases.end() ? 0 : found->seconds;
}

double gflops(const AttentionSpeed& row, const RunTimes& times, std::int64_t pairs) {
  return static_cast<double>(pairs) * row.flops_per_pair / times.fastest() / 1e9;
}

std::string number_text(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}
std::string percent_text(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", 100 * share) : "-";
}
std::string milliseconds(double seconds) {
  return number_text(1e3 * seconds, seconds < 0.1 ? 3 : 1);
}

using Cells = std::vector<std::string>;

void append(Cells& cells, const Cells& more) {
  cells.insert(cells.end(), more.begin(), more.end());
}

const RunTimes* present(const std::optional<RunTimes>& times) { return times ? &*times : nullptr; }

Table time_table(const std::vector<AttentionSpeed>& rows, bool soft) {
  Table table{.caption = "Time of one attention, ms",
              .header = {"tokens", "full", "median", "GFLOP/s", "Focus", "median", "GFLOP/s"}};
  if (soft) append(table.header, {"soft", "median", "GFLOP/s"});
  for (const AttentionSpeed& row : rows) {
    const auto run = [&](const RunTimes* times, std::int64_t pairs) {
      if (times == nullptr) return Cells{"-", "-", "-"};
      return Cells{milliseconds(times->fastest()), milliseconds(times->median()),
                   number_text(gflops(row, *times, pairs), 1)};
    };
    Cells cells = {fmt::format("{}", row.length)};
    append(cells, run(present(row.dense), row.pairs.all));
    append(cells, run(&row.focus, row.pairs.attended));
    if (soft) append(cells, run(present(row.soft), row.pairs.all));
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

Table phase_table(const std::vector<AttentionSpeed>& rows, bool backward) {
  Table table{.caption = "Phases of Focus's fastest run, ms, and memory beside the inputs",
              .header = {"tokens", "routing", "sort", "local band", "grouped attention", "merge"}};
  if (backward) table.header.push_back("backward");
  append(table.header, {"full, memory", "Focus, memory"});
  for (const AttentionSpeed& row : rows) {
    Cells cells = {fmt::format("{}", row.length),
                   row.routing.seconds.empty() ? "-" : milliseconds(row.routing.fastest())};
    for (const char* phase : {"sort", "local band", "grouped attention", "merge"})
      cells.push_back(milliseconds(phase_seconds(row.focus, phase)));
    if (backward)
      cells.push_back(milliseconds(phase_seconds(row.focus, "sparse_attention backward")));
    const auto memory = [](const RunTimes& times) {
      return format_bytes(static_cast<double>(times.peak_bytes));
    };
    append(cells, {row.dense ? memory(*row.dense) : "-", memory(row.focus)});
    table.rows.push_back(std::move(cells));
  }
  return table;
}

/// A table for a terminal: columns set to the right.
std::string plain_text(const Table& table) {
  std::vector<std::size_t> widths;
  for (const std::string& name : table.header) widths.push_back(name.size());
  for (const auto& row : table.rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text = table.caption + "\n";
  const auto add_line = [&](const Cells& cells) {
    for (std::size_t c = 0; c < cells.size(); ++c)
      text += fmt::format("{}{:>{}}", c == 0 ? "" : "  ", cells[c], widths[c]);
    text += "\n";
  };
  add_line(table.header);
  for (const auto& row : table.rows) add_line(row);
  return text;
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

Json times_json(const RunTimes& times) {
  Json phases = Json::array();
  for (const Profile::Entry& entry : times.phases)
    phases.push_back({{"name", entry.name}, {"seconds", entry.seconds}});
  return {{"seconds", times.seconds},
          {"seconds_min", times.fastest()},
          {"seconds_median", times.median()},
          {"peak_tensor_bytes", times.peak_bytes},
          {"phases", phases}};
}

/// What was not run is null.
Json row_json(const AttentionSpeed& row) {
  const auto run = [&](const RunTimes* times, std::int64_t pairs) {
    if (times == nullptr || times->seconds.empty()) return Json();
    Json json = times_json(*times);
    if (pairs > 0) json["gflops"] = gflops(row, *times, pairs);
    return json;
  };
  const auto number = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
  return {{"length", row.length},
          {"pairs_all", row.pairs.all},
          {"pairs_attended", row.pairs.attended},
          {"largest_group", row.largest_group},
          {"ideal_speedup", row.ideal_speedup()},
          {"speedup", number(row.speedup())},
          {"efficiency", number(row.speedup() / row.ideal_speedup())},
          {"speedup_with_routing", number(row.speedup_with_routing())},
          {"dense", run(present(row.dense), row.pairs.all)},
          {"focus", run(&row.focus, row.pairs.attended)},
          {"soft", run(present(row.soft), row.pairs.all)},
          {"routing", run(&row.routing, 0)},
          {"peak_resident_bytes", peak_resident_bytes()}};
}

}  // namespace

int run_speed(Arguments arguments) {
  std::vector<Index> lengths = {512, 1024, 2048, 4096, 8192, 16384};
  std::string assignment = "routing", hard_gate = "drop", json, svg, html;
  int threads = 0;
  AttentionSpeedOptions options;
  CLI::App app(
      "Full causal attention against hard Focus attention on random q, k and v of one sequence, "
      "in turns. Focus's time includes the sort into classes and the local window; the groups are "
      "found before, and the time of that stands beside it. GFLOP/s count 4 head_dim operations "
      "for each attended pair and head, 2.5 times that for backward. The ideal speed-up is that of "
      "the pairs: all there are by those attended.",
      "focus speed");
  app.add_option("--lengths", lengths, "tokens, one run each (default 512 to 16384)")
      ->delimiter(',');
  app.add_option("--num-groups", options.num_groups, "K (default 8)");
  app.add_option("--top-k", options.top_k, "groups that a token keeps (default 1)");
  app.add_option("--local-window", options.local_window,
                 "w: pairs with i - j <= w are attended (default 128)");
  app.add_option("--heads", options.heads, "heads of q (default 12)");
  app.add_option("--kv-heads", options.kv_heads, "heads of k and v (default: as many)");
  app.add_option("--head-dim", options.head_dim, "width of a head (default 64)");
  app.add_option("--hidden-size", options.hidden_size,
                 "width of what is routed (default: heads times head-dim)");
  app.add_option("--routing-dim", options.routing_dim, "d_g (default 16)");
  app.add_option("--hard-gate", hard_gate, "drop or keep the affinity of attended pairs")
      ->check(CLI::IsMember({"drop", "keep"}));
  app.add_option("--assignment", assignment,
                 "routing: random h, projection and centroids, balanced over the sequence "
                 "(default); uniform: random sets")
      ->check(CLI::IsMember({"routing", "uniform"}));
  app.add_flag("--backward", options.backward, "forward and backward, gradients of q, k and v");
  app.add_flag("--soft", options.soft, "time soft attention (every pair, gated) too");
  app.add_option("--dense-up-to", options.dense_up_to,
                 "full attention up to this length only; longer rows print -");
  app.add_option("--repeats", options.repeats,
                 "rounds of a length at least (default 3); short ones get more");
  app.add_option("--seed", options.seed, "of the random numbers");
  app.add_option("--threads", threads, "threads");
  app.add_option("--json", json, "write the figures to this file too");
  app.add_option("--svg", svg, "write a plot of the speed-up");
  app.add_option("--html", html, "write a page with plot and tables");
  renamed_option(app, "--groups", "--num-groups");
  renamed_option(app, "--window", "--local-window");
  parse_arguments(app, arguments);
  options.hard_gate = hard_gate == "keep" ? HardGate::keep : HardGate::drop;
  options.routed = assignment == "routing";
  options.validate();
  check(threads >= 0, "--threads must not be negative, not {}", threads);
  for (const Index length : lengths)
    check(length > 0, "--lengths must be positive, not {}", length);
  std::ranges::sort(lengths);
  set_threads(threads);

  std::vector<AttentionSpeed> rows;
  Json json_rows = Json::array();
  for (const Index length : lengths) {
    rows.push_back(measure_attention(options, length, [&](std::string_view what) {
      fmt::print(stderr, "{} tokens: {}\n", length, what);
    }));
    json_rows.push_back(row_json(rows.back()));
    trim_pool();  // so that no length holds buffers of the one before
  }

  const std::string setting = fmt::format(
      "{} head{} of {}{}, K={}, k={}, w={}, affinity {}, {}; {}", options.heads,
      options.heads == 1 ? "" : "s", options.head_dim,
      options.key_heads() == options.heads ? ""
                                           : fmt::format(" ({} for k and v)", options.key_heads()),
      options.num_groups, options.top_k, options.local_window,
      options.hard_gate == HardGate::keep ? "kept" : "dropped",
      options.backward ? "forward and backward" : "forward",
      options.routed ? "groups by routing random vectors, balanced over the sequence"
                     : "groups drawn uniformly");
  const Table times = time_table(rows, options.soft), speedups = speedup_table(rows);
  const Table phases = phase_table(rows, options.backward);
  const LineChart chart =
      speedup_chart(rows, fmt::format("Speed-up over full attention, K={}, k={}, w={}",
                                      options.num_groups, options.top_k, options.local_window));
  const std::string memory =
      fmt::format("{} resident at most", format_bytes(static_cast<double>(peak_resident_bytes())));
  fmt::print("{}\n{}\n\n{}\n{}\n{}\n{}\n", machine_line(), setting, plain_text(times),
             plain_text(speedups), plain_text(phases), memory);
  write_json(json, {{"machine", machine_json()},
                    {"num_groups", options.num_groups},
                    {"top_k", options.top_k},
                    {"local_window", options.local_window},
                    {"heads", options.heads},
                    {"kv_heads", options.key_heads()},
                    {"head_dim", options.head_dim},
                    {"hidden_size", options.routed_size()},
                    {"routing_dim", options.routing_dim},
                    {"hard_gate", hard_gate},
                    {"assignment", assignment},
                    {"backward", options.backward},
                    {"seed", options.seed},
                    {"rows", json_rows}});
  if (!svg.empty()) write_file_durably(svg, std::string_view(svg_file(chart)));
  if (!html.empty()) {
    HtmlReport report("Speed of attention");
    report.paragraph(machine_line());
    report.paragraph(setting + ". " + memory + ".");
    report.line_chart(chart);
    report.table(speedups);
    report.table(times);
    report.table(phases);
    write_file_durably(html, std::string_view(report.html()));
  }
  return 0;
}

}  // namespace focus
