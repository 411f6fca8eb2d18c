#include <optional>

#include "apps/command.h"
#include "apps/report/charts.h"
#include "apps/report/html_report.h"
#include "autograd/check.h"
#include "data/files/durable_file.h"
#include "data/text/text.h"
#include "focus/train/attention_row.h"
#include "focus/train/metrics.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

void add_run(HtmlReport& report, const std::string& folder) {
  Series loss{.name = "training loss"}, valid{.name = "validation loss"},
      dominance{.name = "mean over layers"};
  for (const Json& record : read_metrics(std::filesystem::path(folder) / "metrics.jsonl")) {
    const auto point = [&](Series& series, const char* key) {
      if (record.contains(key) && record[key].is_number())
        series.points.emplace_back(record["step"].get<double>(), record[key].get<double>());
    };
    point(loss, "loss");
    point(valid, "valid_loss");
    point(dominance, "largest_group");
  }
  report.figure(line_chart_svg({.title = "Loss of " + folder,
                                .x_label = "step",
                                .y_label = "nats per token",
                                .series = {loss, valid}}));
  if (!dominance.points.empty())
    report.figure(line_chart_svg({.title = "Largest group's share of tokens, " + folder,
                                  .x_label = "step",
                                  .y_label = "share",
                                  .series = {dominance}}));
}

StackedBars group_sizes(const Json& row) {
  StackedBars bars{.title = "Group sizes by layer (tokens by their highest assignment)"};
  for (const Json& sizes : row.at("group_sizes"))
    bars.rows.emplace_back(fmt::format("layer {}", bars.rows.size()),
                           sizes.get<std::vector<double>>());
  if (!bars.rows.empty())
    for (std::size_t g = 0; g < bars.rows[0].second.size(); ++g)
      bars.segment_names.push_back(fmt::format("group {}", g));
  return bars;
}

void add_evaluation(HtmlReport& report, const std::string& path) {
  const Json eval = Json::parse(read_text_file(path), nullptr, false);
  if (eval.is_discarded() || !eval.contains("rows"))
    fail("{}: not what focus eval --json writes", path);
  report.heading("Perplexity: " + eval.at("model").get<std::string>());
  report.paragraph(fmt::format(
      "{} text(s), {} bytes; tokenizer {} {}; context {}, stride {}, compute {}. A figure with "
      "sequence routing is not "
      "causal: each token's groups depend on later tokens.",
      eval.at("texts").size(), eval.at("bytes").get<std::int64_t>(),
      eval.at("tokenizer").at("kind").get<std::string>(),
      eval.at("tokenizer").at("fingerprint").get<std::string>(),
      eval.at("context").get<std::int64_t>(), eval.at("stride").get<std::int64_t>(),
      eval.value("compute", "float32")));
  Table table{.header = {"attention", "routing", "perplexity", "bits/byte", "tokens",
                         "pairs attended", "largest group"}};
  PointsChart chart{.title = "Perplexity against the share of pairs kept",
                    .x_label = "share of causal pairs attended, %",
                    .y_label = "perplexity"};
  std::optional<StackedBars> bars;
  for (const Json& row : eval.at("rows")) {
    const AttentionRow attention = read_attention_row(row, path);
    const double perplexity = row.at("perplexity"),
                 pairs = 100 * row.at("pairs_attended").get<double>();
    table.rows.push_back({attention.name, attention.routing_text(),
                          fmt::format("{:.4f}", perplexity),
                          fmt::format("{:.5f}", row.at("bits_per_byte").get<double>()),
                          fmt::format("{}", row.at("tokens_scored").get<std::int64_t>()),
                          fmt::format("{:.1f} %", pairs),
                          attention.has_groups()
                              ? fmt::format("{:.1f} %", 100 * row.at("largest_group").get<double>())
                              : "-"});
    if (!attention.causal) continue;
    // A line for each way to run hard attention, its points the k's; single points for the rest.
    if (attention.kind == "dense")
      chart.references.push_back({.label = "dense", .y = perplexity});
    else if (attention.kind == "hard")
      chart.add(attention.keeps_affinity ? "hard, affinity kept on its pairs" : "hard", true,
                {pairs, perplexity, fmt::format("k={}", attention.top_k)});
    else
      chart.add(attention.kind == "local" ? "local window only" : attention.name, false,
                {pairs, perplexity, attention.name});
    if (attention.kind == "soft" && !bars) bars = group_sizes(row);
  }
  report.table(table);
  if (!chart.series.empty()) report.figure(points_chart_svg(chart));
  if (bars) report.figure(stacked_bars_svg(*bars));
}

}  // namespace

int run_report(Arguments arguments) {
  std::string out, title = "Focus";
  std::vector<std::string> runs, evaluations;
  CLI::App app("One self-contained HTML page from runs' folders and evaluations' JSON files.",
               "focus report");
  app.add_option("--run", runs, "folders of focus train");
  app.add_option("--eval", evaluations, "files that focus eval --json wrote");
  app.add_option("--title", title, "the page's title");
  app.add_option("--out", out, "the page to write (.html)")->required();
  parse_arguments(app, arguments);
  HtmlReport report(title);
  for (const std::string& path : evaluations) add_evaluation(report, path);
  if (!runs.empty()) report.heading("Training");
  for (const std::string& folder : runs) add_run(report, folder);
  write_file_durably(out, std::string_view(report.html()));
  fmt::print("{}\n", out);
  return 0;
}

}  // namespace focus
