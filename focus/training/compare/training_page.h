#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "focus/evaluation/report/html_report.h"
#include "focus/training/compare/run_outcome.h"

// What training measured, as curves.
namespace focus {

/// A line of a run's metrics.jsonl, as far as it is drawn; null: not measured then.
struct StepRecord {
  using Layers = std::optional<std::vector<std::optional<double>>>;
  std::optional<double> step = {}, loss = {}, valid_loss = {}, tokens_per_second = {};
  std::optional<double> largest_group = {}, size_entropy = {}, assignment_entropy = {};
  Layers largest_group_layers = {}, size_entropy_layers = {}, assignment_entropy_layers = {};

  void visit(auto&& f) {
    f("step", step);
    f("loss", loss);
    f("valid_loss", valid_loss);
    f("tokens_per_second", tokens_per_second);
    f("largest_group", largest_group);
    f("size_entropy", size_entropy);
    f("assignment_entropy", assignment_entropy);
    f("largest_group_layers", largest_group_layers);
    f("size_entropy_layers", size_entropy_layers);
    f("assignment_entropy_layers", assignment_entropy_layers);
  }
};
/// Throws as read_metrics() does, and where a record is of another kind.
std::vector<StepRecord> read_steps(const std::filesystem::path& path);
/// The last one that has a loss, from the end of the file; empty without one.
std::optional<StepRecord> last_step(const std::filesystem::path& path);

/// Charts of one run: loss, and by layer what groups came to. `folder` is the run's. Throws
/// std::runtime_error where it holds no records.
void add_run(HtmlReport& report, const std::string& folder);
/// Charts of several runs, a line for each name: means over those of that name.
void add_mean_curves(HtmlReport& report, const std::vector<RunOutcome>& outcomes);

}  // namespace focus
