#include "focus/evaluation/report/compare_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "focus/evaluation/report/charts.h"
#include "focus/evaluation/report/spread.h"

namespace focus {
namespace {

/// Over the seeds of a run: means of the figures and of their standard errors over items.
struct TaskGroup {
  std::string run, task, attention, routing;
  std::int64_t items = 0, cut = 0;
  std::optional<std::int64_t> local_window = {};
  std::size_t seeds = 0;
  double deviation = 0;  // of acc over seeds, by n - 1
  double pairs_touched = 0, items_inside = 0;
  std::array<std::optional<Estimate>, kNumTaskFigures> figures = {};  // as kTaskFigures

  const std::optional<Estimate>& figure(std::string_view name) const {
    return figures[task_figure(name)];
  }
};

/// In the order of the rows.
std::vector<TaskGroup> group_task_rows(const std::vector<TaskScoreRow>& rows) {
  std::vector<TaskGroup> groups;
  std::vector<std::vector<const TaskScoreRow*>> members;  // of each group, a row a seed
  for (const TaskScoreRow& row : rows) {
    const auto found = std::ranges::find_if(groups, [&](const TaskGroup& g) {
      return g.run == row.run.name && g.task == row.task && g.attention == row.attention &&
             g.routing == row.routing;
    });
    const auto at = static_cast<std::size_t>(found - groups.begin());
    if (found == groups.end()) {
      groups.push_back({.run = row.run.name,
                        .task = row.task,
                        .attention = row.attention,
                        .routing = row.routing,
                        .items = row.items,
                        .cut = row.cut,
                        .local_window = row.local_window});
      members.emplace_back();
    }
    members[at].push_back(&row);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    TaskGroup& g = groups[i];
    const std::vector<const TaskScoreRow*>& own = members[i];
    const auto spread = [&](auto&& value) {
      std::vector<double> values;
      for (const TaskScoreRow* row : own) values.push_back(value(*row));
      return spread_of(values);
    };
    g.seeds = own.size();
    g.pairs_touched = spread([](const TaskScoreRow& row) { return row.pairs_touched; }).mean;
    g.items_inside = spread([](const TaskScoreRow& row) { return row.items_inside; }).mean;
    for (std::size_t f = 0; f < kNumTaskFigures; ++f)
      if (std::ranges::all_of(own, [&](const auto* row) { return row->figures[f].has_value(); }))
        g.figures[f] = {spread([&](const auto& row) { return row.figures[f]->value; }).mean,
                        spread([&](const auto& row) { return row.figures[f]->error; }).mean};
    if (g.figure("acc"))
      g.deviation = spread([&](const auto& row) { return row.figures[0]->value; }).deviation;
  }
  return groups;
}

std::string figure_text(const Estimate& estimate, const TaskFigure& figure) {
  const double value = figure.factor * estimate.value, error = figure.factor * estimate.error;
  if (figure.digits == 0) return fmt::format("{:.4g} +-{:.2g}", value, error);
  return fmt::format("{} +-{:.{}f}{}",
                     figure.is_signed ? fmt::format("{:+.{}f}", value, figure.digits)
                                      : fmt::format("{:.{}f}", value, figure.digits),
                     error, figure.digits, figure.unit);
}

/// Each once, in the order of the rows.
std::vector<std::string> names_of(const std::vector<TaskGroup>& groups,
                                  std::string TaskGroup::*of) {
  std::vector<std::string> names;
  for (const TaskGroup& g : groups)
    if (std::ranges::find(names, g.*of) == names.end()) names.push_back(g.*of);
  return names;
}

std::vector<TaskGroup> groups_of(const std::vector<TaskGroup>& groups, const std::string& task) {
  std::vector<TaskGroup> own;
  std::ranges::copy_if(groups, std::back_inserter(own),
                       [&](const TaskGroup& g) { return g.task == task; });
  return own;
}

std::string task_caption(const std::vector<TaskGroup>& groups) {
  return fmt::format("{}, {} items", groups.front().task, groups.front().items);
}

Table task_table(const std::vector<TaskGroup>& groups) {
  const bool spread = std::ranges::any_of(groups, [](const TaskGroup& g) { return g.seeds > 1; });
  Table table{.header = {"run", "attention", "routing", "touched", "inside"}};
  std::vector<std::size_t> columns;
  for (std::size_t f = 0; f < kNumTaskFigures; ++f) {
    const auto has = [&](const TaskGroup& g) { return g.figures[f].has_value(); };
    if (kTaskFigures[f].header == nullptr || std::ranges::none_of(groups, has)) continue;
    columns.push_back(f);
    table.header.emplace_back(kTaskFigures[f].header);
  }
  if (spread) table.header.insert(table.header.end(), {"seeds", "std of acc"});
  for (const TaskGroup& g : groups) {
    table.rows.push_back({g.run, g.attention, g.routing,
                          fmt::format("{:.1f} %", 100 * g.pairs_touched),
                          !g.local_window ? "-" : fmt::format("{:.1f} %", 100 * g.items_inside)});
    std::vector<std::string>& row = table.rows.back();
    for (const std::size_t f : columns)
      row.push_back(g.figures[f] ? figure_text(*g.figures[f], kTaskFigures[f]) : "-");
    if (!spread) continue;
    row.push_back(fmt::format("{}", g.seeds));
    row.push_back(g.seeds > 1 ? fmt::format("{:.4f}", g.deviation) : "-");
  }
  return table;
}

/// The score that is quoted of each task, beside each other: acc_norm where there is one, else acc.
Table side_by_side(const std::vector<TaskGroup>& groups) {
  const std::vector<std::string> tasks = names_of(groups, &TaskGroup::task);
  Table table{.caption = "scores side by side", .header = {"run", "attention", "routing"}};
  for (const std::string& task : tasks) {
    const bool norm = groups_of(groups, task).front().figure("acc_norm").has_value();
    table.header.push_back(fmt::format("{} {}", task, norm ? "acc_norm" : "acc"));
  }
  std::vector<const TaskGroup*> seen;
  const auto same = [](const TaskGroup& a, const TaskGroup& b) {
    return a.run == b.run && a.attention == b.attention && a.routing == b.routing;
  };
  for (const TaskGroup& g : groups) {
    if (std::ranges::any_of(seen, [&](const TaskGroup* other) { return same(*other, g); }))
      continue;
    seen.push_back(&g);
    table.rows.push_back({g.run, g.attention, g.routing});
    for (const std::string& task : tasks) {
      const auto found = std::ranges::find_if(
          groups, [&](const TaskGroup& other) { return other.task == task && same(other, g); });
      std::optional<Estimate> score;
      if (found != groups.end())
        score = found->figure("acc_norm") ? found->figure("acc_norm") : found->figure("acc");
      table.rows.back().push_back(score ? figure_text(*score, kTaskFigures[0]) : "-");
    }
  }
  return table;
}

/// What is to be said under a task's table: equal scores may be no finding.
std::vector<std::string> task_remarks(const std::vector<TaskGroup>& groups) {
  std::vector<std::string> all;
  std::vector<std::int64_t> told;
  for (const TaskGroup& g : groups) {
    if (!g.local_window || g.items_inside == 0 || std::ranges::count(told, *g.local_window) > 0)
      continue;
    told.push_back(*g.local_window);
    all.push_back(
        fmt::format("{:.1f} % of the items fit inside the local window of {}: on them every method "
                    "with this window equals the dense model.",
                    100 * g.items_inside, *g.local_window));
  }
  if (groups.front().cut > 0)
    all.push_back(fmt::format("{} items were too long: the beginning of their context was cut.",
                              groups.front().cut));
  return all;
}

}  // namespace

std::string task_tables(const std::vector<TaskScoreRow>& rows) {
  const std::vector<TaskGroup> groups = group_task_rows(rows);
  if (groups.empty()) return "";
  std::string text;
  for (const std::string& task : names_of(groups, &TaskGroup::task)) {
    const std::vector<TaskGroup> own = groups_of(groups, task);
    Table table = task_table(own);
    table.caption = task_caption(own);
    text += plain_text(table, 3) + "\n";
    const std::vector<std::string> said = task_remarks(own);
    for (const std::string& remark : said) text += remark + "\n";
    if (!said.empty()) text += "\n";
  }
  return text + plain_text(side_by_side(groups), 3) + "\n";
}

void add_tasks(HtmlReport& page, const std::vector<TaskScoreRow>& rows) {
  const std::vector<TaskGroup> groups = group_task_rows(rows);
  if (groups.empty()) return;
  const auto add = [&](Table table) {
    table.caption.clear();
    for (std::size_t r = table.rows.size(); r-- > 1;)  // a run's name stands in its first row
      if (table.rows[r][0] == table.rows[r - 1][0]) table.rows[r][0].clear();
    page.table(table);
  };
  page.heading("Benchmarks");
  page.paragraph(
      "Prompts and scores as in the lm-evaluation-harness, zero-shot; +-: standard error over "
      "items; with several seeds means over seeds. Compared with the dense base on the same items: "
      "same, the share of items with its choice; |d log p|, the mean absolute difference of the "
      "choices' log-probabilities; KL(base || row) of the next token, over the choices' tokens; "
      "acc - base, the paired difference. touched: share of the causal pairs beyond the local "
      "window, the only pairs that can differ from dense attention; inside: share of items without "
      "such pairs.");
  add(side_by_side(groups));
  for (const std::string& task : names_of(groups, &TaskGroup::task)) {
    const std::vector<TaskGroup> own = groups_of(groups, task);
    page.heading(task_caption(own));
    for (const std::string& remark : task_remarks(own)) page.paragraph(remark);
    add(task_table(own));
    PointsChart chart{
        .title = fmt::format("Unchanged choices against distance from the dense base ({})", task),
        .x_label = "log10 of KL to the dense base, nats per token",
        .y_label = "items with the dense base's choice, %"};
    for (const TaskGroup& g : own) {
      const auto& kl = g.figure("kl");
      if (const auto& same = g.figure("same_choice"); same && kl && kl->value > 0)
        chart.add(g.run, false, {std::log10(kl->value), 100 * same->value, g.attention});
    }
    if (!chart.series.empty()) page.figure(points_chart_svg(chart));
  }
}

}  // namespace focus
