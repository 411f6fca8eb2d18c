#include <spdlog/spdlog.h>

#include <algorithm>

#include "apps/command.h"
#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "data/files/durable_file.h"
#include "data/settings/settings_json.h"
#include "focus/speed/speed_report.h"

namespace focus::app {

int run_speed(Arguments arguments) {
  if (std::ranges::find(arguments, "--decode") != arguments.end())
    return run_decode_speed(arguments);
  std::vector<Index> lengths = {512, 1024, 2048, 4096, 8192, 16384};
  std::string json, svg, html;
  int threads = 0;
  AttentionSpeedOptions options;
  CLI::App app(
      "Compares full causal attention with hard or summary Focus attention on random q, k and v of "
      "one sequence, interleaved; with --decode times a model's decoding (focus speed --decode "
      "--help). The time of Focus attention includes sorting into classes and the local window; "
      "the groups are computed before, and that time is reported separately. GFLOP/s counts 4 "
      "head_dim operations per attended pair and head, and 2.5 times that for backward. The ideal "
      "speed-up is the number of all pairs divided by that of attended pairs.",
      "focus speed");
  app.add_option("--lengths", lengths, "tokens, one run each (default 512 to 16384)")
      ->delimiter(',');
  std::vector<std::string> attentions = {"hard:1"};
  add_attention_option(
      app, attentions,
      "attention to compare with dense: hard:2 (default hard:1), hard:2:gate=keep; hard:1,soft "
      "adds soft attention; summary:2 times groups of keys");
  std::vector<ConfigField> fields = config_fields(options);
  std::erase_if(fields, [](const ConfigField& field) {
    return field.key == "top_k" || field.key == "hard_gate" || field.key == "soft";
  });
  add_settings(app, fields);
  add_threads_option(app, threads);
  app.add_option("--json", json, "also write the figures to this JSON file");
  app.add_option("--svg", svg, "write a plot of the speed-up");
  app.add_option("--html", html, "write a page with plot and tables");
  parse_arguments(app, arguments);
  options.read_attentions(attentions, "--attention");
  options = options.filled_in();
  for (const Index length : lengths)
    check(length > 0, "--lengths must be positive, not {}", length);
  std::ranges::sort(lengths);
  set_threads(threads);

  std::vector<AttentionSpeed> rows;
  nlohmann::ordered_json json_rows = nlohmann::ordered_json::array();
  for (const Index length : lengths) {
    rows.push_back(measure_attention(options, length, [&](std::string_view what) {
      spdlog::info("{} tokens: {}", length, what);
    }));
    json_rows.push_back(to_json(rows.back()));
    trim_pool();  // so that no length holds buffers of the one before
  }

  const SpeedReport report(options, rows);
  fmt::print("{}", report.text());
  nlohmann::ordered_json figures = {{"machine", machine_json()}};
  figures.update(settings_json(config_fields(options)));
  figures["attention"] = options.attention_text();
  figures["rows"] = json_rows;
  write_json(json, figures);
  if (!svg.empty()) write_file_durably(svg, std::string_view(svg_file(report.chart())));
  if (!html.empty()) write_file_durably(html, std::string_view(report.page()));
  return 0;
}

}  // namespace focus::app
