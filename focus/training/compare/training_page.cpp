#include "focus/training/compare/training_page.h"

#include <fmt/format.h>

#include <map>

#include "autograd/base/check.h"
#include "data/settings/struct_json.h"
#include "focus/evaluation/report/charts.h"
#include "focus/training/metrics.h"

namespace focus {
namespace {

/// A line of a run's metrics.jsonl, as far as it is drawn; null: not measured then.
struct StepRecord {
  using Number = std::optional<double>;
  using Layers = std::optional<std::vector<Number>>;
  Number step = {}, loss = {}, valid_loss = {};
  Number largest_group = {}, size_entropy = {}, assignment_entropy = {};
  Layers largest_group_layers = {}, size_entropy_layers = {}, assignment_entropy_layers = {};

  void visit(auto&& f) {
    f("step", step);
    f("loss", loss);
    f("valid_loss", valid_loss);
    f("largest_group", largest_group);
    f("size_entropy", size_entropy);
    f("assignment_entropy", assignment_entropy);
    f("largest_group_layers", largest_group_layers);
    f("size_entropy_layers", size_entropy_layers);
    f("assignment_entropy_layers", assignment_entropy_layers);
  }
};

std::vector<StepRecord> read_steps(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "metrics.jsonl").string();
  std::vector<StepRecord> records;
  for (const nlohmann::json json : read_metrics(path))
    records.push_back(
        struct_from_json<StepRecord>(json, fmt::format("{}:{}", path, records.size() + 1)));
  return records;
}

/// Figures over steps, a line for each name: the mean where a name has a step several times.
class Curves {
 public:
  void add(const std::string& name, const StepRecord& record, const StepRecord::Number& figure) {
    if (!record.step || !figure) return;
    if (!sums_.contains(name)) names_.push_back(name);
    auto& [sum, count] = sums_[name][*record.step];
    sum += *figure;
    ++count;
  }
  /// A chart, if there is anything to draw.
  void draw(HtmlReport& report, const std::string& title, const std::string& label) const {
    Chart chart{.title = title, .x_label = "step", .y_label = label};
    for (const std::string& name : names_)
      for (const auto& [step, sum] : sums_.at(name))
        chart.add(name, {step, sum.first / sum.second});
    if (!chart.series.empty()) report.figure(line_chart(chart));
  }

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::map<double, std::pair<double, int>>> sums_;  // sum and count
};

}  // namespace

void add_run(HtmlReport& report, const std::string& folder) {
  const std::vector<StepRecord> records = read_steps(folder);
  if (records.empty()) fail("{}/metrics.jsonl: has no records; give the folder of a run", folder);
  Curves losses;
  for (const StepRecord& record : records) {
    losses.add("training loss", record, record.loss);
    losses.add("validation loss", record, record.valid_loss);
  }
  losses.draw(report, "Loss of " + folder, "nats per token");
  const auto by_layer = [&](StepRecord::Layers StepRecord::*figures, const std::string& title,
                            const std::string& label) {
    Curves layers;
    for (const StepRecord& record : records)
      for (std::size_t i = 0; record.*figures && i < (record.*figures)->size(); ++i)
        layers.add(fmt::format("layer {}", i), record, (*(record.*figures))[i]);
    layers.draw(report, title + " by layer, " + folder, label);
  };
  by_layer(&StepRecord::largest_group_layers, "Largest group's share of tokens", "share");
  by_layer(&StepRecord::size_entropy_layers, "Entropy of the group sizes", "nats");
  by_layer(&StepRecord::assignment_entropy_layers, "Entropy of the token assignments", "nats");
}

void add_mean_curves(HtmlReport& report, const std::vector<RunOutcome>& outcomes) {
  std::vector<std::pair<std::string, std::vector<StepRecord>>> runs;
  for (const RunOutcome& outcome : outcomes)
    if (outcome.train) runs.emplace_back(outcome.name, read_steps(outcome.config.out));
  const auto add = [&](StepRecord::Number StepRecord::*figure, const char* title,
                       const char* label) {
    Curves curves;
    for (const auto& [name, records] : runs)
      for (const StepRecord& record : records) curves.add(name, record, record.*figure);
    curves.draw(report, title, label);
  };
  add(&StepRecord::loss, "Training loss", "nats per token");
  add(&StepRecord::valid_loss, "Validation loss", "nats per token");
  add(&StepRecord::largest_group, "Largest group's share of tokens", "share");
  add(&StepRecord::size_entropy, "Entropy of the group sizes, mean over layers", "nats");
  add(&StepRecord::assignment_entropy, "Entropy of the token assignments, mean over layers",
      "nats");
}

}  // namespace focus
