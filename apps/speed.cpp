#include <spdlog/spdlog.h>

#include <algorithm>

#include "apps/command.h"
#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "data/settings/settings_json.h"
#include "focus/speed/attention_speed.h"

namespace focus::app {

int run_speed(Arguments arguments) {
  if (std::ranges::find(arguments, "--decode") != arguments.end())
    return run_decode_speed(arguments);
  if (std::ranges::find(arguments, "--step") != arguments.end()) return run_step_speed(arguments);
  std::vector<Index> lengths = {512, 1024, 2048, 4096, 8192, 16384};
  std::string json;
  AttentionSpeedOptions options;
  CLI::App app(
      "Compares full causal attention with hard or summary Focus attention on random q, k and v of "
      "one sequence, interleaved. Times a model's decoding with --decode, training steps with "
      "--step "
      "(add --help for their options). The time of Focus attention includes sorting by group and "
      "the local window; the groups are computed before, and that time is reported separately. "
      "GFLOP/s counts 4 head_dim operations per attended pair and head, and 2.5 times that for "
      "backward. The ideal speed-up is the number of all pairs divided by that of attended pairs.",
      "focus speed");
  app.add_option("--lengths", lengths, "tokens, one run each (default 512 to 16384)")
      ->delimiter(',');
  std::vector<std::string> attentions = {"hard:1"};
  add_attention_option(
      app, attentions,
      "attention to compare with dense: hard:2 (default hard:1), hard:2:gate=keep; hard:1,soft "
      "adds soft attention; summary:2 times groups of keys");
  add_settings(app, without(config_fields(options), {"top_k", "hard_gate", "soft"}));
  app.add_option("--json", json, "also write the figures to this JSON file");
  parse_arguments(app, arguments);
  options.read_attentions(attentions, "--attention");
  options.validate();
  for (const Index length : lengths)
    check(length > 0, "--lengths must be positive, not {}", length);
  std::ranges::sort(lengths);

  std::vector<AttentionSpeed> rows;
  nlohmann::ordered_json json_rows = nlohmann::ordered_json::array();
  for (const Index length : lengths) {
    rows.push_back(measure_attention(options, length, [&](std::string_view what) {
      spdlog::info("{} tokens: {}", length, what);
    }));
    json_rows.push_back(to_json(rows.back()));
    trim_pool();  // frees the buffers of this length
  }

  fmt::print("{}", speed_text(options, rows));
  nlohmann::ordered_json figures = {{"machine", machine_json()}};
  figures.update(settings_json(config_fields(options)));
  figures["attention"] = options.attention_text();
  figures["rows"] = json_rows;
  write_json(json, figures);
  return 0;
}

}  // namespace focus::app
