#include "focus/training/compare/training_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "autograd/base/check.h"
#include "data/settings/struct_json.h"
#include "focus/evaluation/report/charts.h"
#include "focus/training/metrics.h"

namespace focus {
namespace {

using Figure = std::optional<double> StepRecord::*;

void add_point(Series& series, const StepRecord& record, Figure figure) {
  if (record.step && record.*figure) series.points.push_back({*record.step, *(record.*figure)});
}

/// A point for each layer of a record that has the figure.
void add_layers(Chart& chart, const StepRecord& record, const StepRecord::Layers& figures) {
  if (!figures || !record.step) return;
  for (std::size_t layer = 0; layer < figures->size(); ++layer) {
    if (layer == chart.series.size())
      chart.series.push_back({.name = fmt::format("layer {}", layer)});
    if ((*figures)[layer]) chart.series[layer].points.push_back({*record.step, *(*figures)[layer]});
  }
}

/// One line a name, each point the mean over the runs that have the step.
std::vector<Series> mean_curves(const std::vector<std::pair<std::string, StepRecord>>& records,
                                Figure figure) {
  std::vector<std::string> order;
  std::map<std::string, std::map<double, std::pair<double, int>>> sums;  // name, step: sum, count
  for (const auto& [name, record] : records) {
    if (!record.step || !(record.*figure)) continue;
    if (!sums.contains(name)) order.push_back(name);
    auto& [sum, count] = sums[name][*record.step];
    sum += *(record.*figure);
    ++count;
  }
  std::vector<Series> all;
  for (const std::string& name : order) {
    Series& series = all.emplace_back(Series{.name = name});
    for (const auto& [step, sum] : sums[name])
      series.points.push_back({step, sum.first / sum.second});
  }
  return all;
}

}  // namespace

std::vector<StepRecord> read_steps(const std::filesystem::path& path) {
  std::vector<StepRecord> records;
  for (const nlohmann::json json : read_metrics(path))
    records.push_back(struct_from_json<StepRecord>(
        json, fmt::format("{}:{}", path.string(), records.size() + 1)));
  return records;
}

std::optional<StepRecord> last_step(const std::filesystem::path& path) {
  const nlohmann::json record = last_loss_record(path);
  if (!record.is_object()) return std::nullopt;
  return struct_from_json<StepRecord>(record, path.string());
}

void add_run(HtmlReport& report, const std::string& folder) {
  Series loss{.name = "training loss"}, valid{.name = "validation loss"};
  Chart dominance{.title = "Largest group's share of tokens by layer, " + folder,
                  .x_label = "step",
                  .y_label = "share"};
  Chart sizes{.title = "Entropy of the group sizes by layer, " + folder,
              .x_label = "step",
              .y_label = "nats"};
  Chart assignments{.title = "Entropy of the token assignments by layer, " + folder,
                    .x_label = "step",
                    .y_label = "nats"};
  const auto file = std::filesystem::path(folder) / "metrics.jsonl";
  const std::vector<StepRecord> records = read_steps(file);
  if (records.empty()) fail("{}: has no records; give the folder of a run", file.string());
  for (const StepRecord& record : records) {
    add_point(loss, record, &StepRecord::loss);
    add_point(valid, record, &StepRecord::valid_loss);
    add_layers(dominance, record, record.largest_group_layers);
    add_layers(sizes, record, record.size_entropy_layers);
    add_layers(assignments, record, record.assignment_entropy_layers);
  }
  report.figure(line_chart({.title = "Loss of " + folder,
                            .x_label = "step",
                            .y_label = "nats per token",
                            .series = {loss, valid}}));
  for (const Chart* chart : {&dominance, &sizes, &assignments})
    if (!chart->series.empty()) report.figure(line_chart(*chart));
}

void add_mean_curves(HtmlReport& report, const std::vector<RunOutcome>& outcomes) {
  std::vector<std::pair<std::string, StepRecord>> records;
  for (const RunOutcome& outcome : outcomes) {
    if (!outcome.train) continue;
    for (StepRecord& record :
         read_steps(std::filesystem::path(outcome.config.out) / "metrics.jsonl"))
      records.emplace_back(outcome.name, std::move(record));
  }
  const auto add = [&](Figure figure, const char* title, const char* label) {
    const Chart chart{.title = title,
                      .x_label = "step",
                      .y_label = label,
                      .series = mean_curves(records, figure)};
    if (!chart.series.empty()) report.figure(line_chart(chart));
  };
  add(&StepRecord::loss, "Training loss", "nats per token");
  add(&StepRecord::valid_loss, "Validation loss", "nats per token");
  add(&StepRecord::largest_group, "Largest group's share of tokens", "share");
  add(&StepRecord::size_entropy, "Entropy of the group sizes, mean over layers", "nats");
  add(&StepRecord::assignment_entropy, "Entropy of the token assignments, mean over layers",
      "nats");
}

}  // namespace focus
