#include "apps/command.h"
#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/text/text.h"
#include "focus/report/charts.h"
#include "focus/report/evaluation_page.h"
#include "focus/training/metrics.h"

namespace focus::app {
namespace {

using Json = nlohmann::ordered_json;

/// A point for each layer of a record that has the figure.
void by_layer(LineChart& chart, const Json& record, const char* key) {
  if (!record.contains(key)) return;
  for (std::size_t layer = 0; layer < record[key].size(); ++layer) {
    if (layer == chart.series.size())
      chart.series.push_back({.name = fmt::format("layer {}", layer)});
    if (record[key][layer].is_number())
      chart.series[layer].points.emplace_back(record["step"].get<double>(),
                                              record[key][layer].get<double>());
  }
}

void add_run(HtmlReport& report, const std::string& folder) {
  Series loss{.name = "training loss"}, valid{.name = "validation loss"};
  LineChart dominance{.title = "Largest group's share of tokens by layer, " + folder,
                      .x_label = "step",
                      .y_label = "share"};
  LineChart sizes{.title = "Entropy of the groups' sizes by layer, " + folder,
                  .x_label = "step",
                  .y_label = "nats"};
  LineChart assignments{.title = "Entropy of a token's assignments by layer, " + folder,
                        .x_label = "step",
                        .y_label = "nats"};
  const auto file = std::filesystem::path(folder) / "metrics.jsonl";
  const std::vector<Json> records = read_metrics(file);
  if (records.empty()) fail("{}: no record in it; name the folder of a run", file.string());
  for (const Json& record : records) {
    const auto point = [&](Series& series, const char* key) {
      if (record.contains(key) && record[key].is_number())
        series.points.emplace_back(record["step"].get<double>(), record[key].get<double>());
    };
    point(loss, "loss");
    point(valid, "valid_loss");
    by_layer(dominance, record, "largest_group_layers");
    by_layer(sizes, record, "size_entropy_layers");
    by_layer(assignments, record, "assignment_entropy_layers");
  }
  report.figure(line_chart_svg({.title = "Loss of " + folder,
                                .x_label = "step",
                                .y_label = "nats per token",
                                .series = {loss, valid}}));
  for (const LineChart* chart : {&dominance, &sizes, &assignments})
    if (!chart->series.empty()) report.figure(line_chart_svg(*chart));
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
  std::vector<ReadEvaluation> read;
  read.reserve(evaluations.size());
  for (const std::string& path : evaluations)
    read.push_back({path, Json::parse(read_text_file(path), nullptr, false)});
  read = joined_evaluations(read);
  for (const ReadEvaluation& eval : read)
    for (const std::string& sentence : findings(eval.figures)) report.paragraph(sentence);
  for (const ReadEvaluation& eval : read) add_evaluation(report, eval.figures, eval.where);
  if (!runs.empty()) report.heading("Training");
  for (const std::string& folder : runs) add_run(report, folder);
  write_file_durably(out, std::string_view(report.html()));
  fmt::print("{}\n", out);
  return 0;
}

}  // namespace focus::app
