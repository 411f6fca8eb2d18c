#include "apps/compare/compare_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "apps/compare/seed_rows.h"
#include "focus/report/charts.h"

namespace focus::app {
namespace {

using Json = nlohmann::ordered_json;

/// A figure with its standard error: its columns are NAME and NAME_error.
struct Figure {
  const char* name;    // in the rows
  const char* path;    // in what focus eval --tasks writes
  const char* header;  // of a table; null: in the rows alone
  int digits;          // behind the point; 0: four in all
  double factor = 1;   // of a table
  const char* unit = "";
  bool is_signed = false;
};
constexpr std::array<Figure, 9> kFigures = {{
    {"acc", "/acc", "acc", 3},
    {"acc_norm", "/acc_norm", "acc_norm", 3},
    {"last_word_perplexity", "/perplexity", "perplexity", 0},
    {"same_choice", "/against_dense/same_choice", "same", 1, 100, " %"},
    {"log_prob_distance", "/against_dense/log_prob_distance", "|d log p|", 4},
    {"kl", "/against_dense/kl", "KL", 5},
    {"acc_against_dense", "/against_dense/acc", "acc - base", 3, 1, "", true},
    {"acc_norm_against_dense", "/against_dense/acc_norm", "acc_norm - base", 3, 1, "", true},
    {"log_prob_of_right_against_dense", "/against_dense/log_prob_of_right", nullptr, 4},
}};

Json row_of(const RunOutcome& run, const Json& table, const Json& figures) {
  Json row = columns_of_run(run);
  for (const char* key : {"task", "file", "items", "cut"}) row[key] = table.at(key);
  for (const char* key :
       {"attention", "kind", "routing", "local_window", "pairs_touched", "items_inside"})
    row[key] = figures.at(key);
  for (const Figure& figure : kFigures) {
    const Json::json_pointer at(figure.path);
    const bool said = figures.contains(at);
    row[figure.name] = said ? figures[at].at("value") : Json();
    row[std::string(figure.name) + "_error"] = said ? figures[at].at("error") : Json();
  }
  return row;
}

std::string text_of(const Estimate& estimate, const Figure& figure) {
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

std::string caption_of(const std::vector<TaskGroup>& groups) {
  return fmt::format("{}, {} items", groups.front().task, groups.front().items);
}

Table task_table(const std::vector<TaskGroup>& groups) {
  const bool spread = std::ranges::any_of(groups, [](const TaskGroup& g) { return g.seeds > 1; });
  Table table{.header = {"run", "attention", "routing", "touched", "inside"}};
  std::vector<const Figure*> columns;
  for (const Figure& figure : kFigures) {
    const auto has = [&](const TaskGroup& g) { return g.figures.contains(figure.name); };
    if (figure.header == nullptr || std::ranges::none_of(groups, has)) continue;
    columns.push_back(&figure);
    table.header.emplace_back(figure.header);
  }
  if (spread) table.header.insert(table.header.end(), {"seeds", "std of acc"});
  for (const TaskGroup& g : groups) {
    table.rows.push_back(
        {g.run, g.attention, g.routing, fmt::format("{:.1f} %", 100 * g.pairs_touched),
         g.local_window < 0 ? "-" : fmt::format("{:.1f} %", 100 * g.items_inside)});
    std::vector<std::string>& row = table.rows.back();
    for (const Figure* figure : columns) {
      const auto found = g.figures.find(figure->name);
      row.push_back(found == g.figures.end() ? "-" : text_of(found->second, *figure));
    }
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
    const bool norm = groups_of(groups, task).front().figures.contains("acc_norm");
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
      if (found == groups.end()) {
        table.rows.back().emplace_back("-");
        continue;
      }
      const auto norm = found->figures.find("acc_norm");
      table.rows.back().push_back(text_of(
          norm == found->figures.end() ? found->figures.at("acc") : norm->second, kFigures[0]));
    }
  }
  return table;
}

/// What is to be said under a task's table: equal scores may be no finding.
std::vector<std::string> remarks(const std::vector<TaskGroup>& groups) {
  std::vector<std::string> all;
  std::vector<std::int64_t> told;
  for (const TaskGroup& g : groups) {
    if (g.local_window < 0 || g.items_inside == 0 ||
        std::ranges::find(told, g.local_window) != told.end())
      continue;
    told.push_back(g.local_window);
    all.push_back(fmt::format(
        "{:.1f} % of the items lie inside the local window of {}: there every method with such a "
        "window is trivially the dense model.",
        100 * g.items_inside, g.local_window));
  }
  if (groups.front().cut > 0)
    all.push_back(fmt::format("{} items were too long and lost the beginning of their context.",
                              groups.front().cut));
  return all;
}

}  // namespace

std::vector<Json> task_rows(const std::vector<RunOutcome>& outcomes) {
  std::vector<Json> rows;
  for (const RunOutcome& outcome : outcomes) {
    if (!outcome.error.empty()) continue;
    for (const Json& table : outcome.tasks)
      for (const Json& figures : table.at("rows")) rows.push_back(row_of(outcome, table, figures));
  }
  return rows;
}

std::vector<TaskGroup> group_task_rows(const std::vector<Json>& rows) {
  std::vector<TaskGroup> groups;
  std::vector<std::vector<const Json*>> members;  // of each group, a row a seed
  for (const Json& row : rows) {
    const auto found = std::ranges::find_if(groups, [&](const TaskGroup& g) {
      return g.run == row["run"] && g.task == row["task"] && g.attention == row["attention"] &&
             g.routing == row["routing"];
    });
    const auto at = static_cast<std::size_t>(found - groups.begin());
    if (found == groups.end()) {
      groups.push_back({.run = row["run"],
                        .task = row["task"],
                        .attention = row["attention"],
                        .routing = row["routing"],
                        .items = row["items"],
                        .cut = row["cut"]});
      if (row["local_window"].is_number()) groups.back().local_window = row["local_window"];
      members.emplace_back();
    }
    members[at].push_back(&row);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    TaskGroup& g = groups[i];
    g.seeds = members[i].size();
    const auto spread = [&](const std::string& key) {
      std::vector<double> values;
      for (const Json* row : members[i]) values.push_back(row->at(key));
      return spread_of(values);
    };
    const auto mean = [&](const std::string& key) { return spread(key).mean; };
    g.pairs_touched = mean("pairs_touched");
    g.items_inside = mean("items_inside");
    for (const Figure& figure : kFigures) {
      const std::string name = figure.name;
      if (std::ranges::all_of(members[i],
                              [&](const Json* row) { return row->at(name).is_number(); }))
        g.figures[name] = {mean(name), mean(name + "_error")};
    }
    g.deviation = spread("acc").deviation;
  }
  return groups;
}

std::string task_tables(const std::vector<Json>& rows) {
  const std::vector<TaskGroup> groups = group_task_rows(rows);
  if (groups.empty()) return "";
  std::string text;
  for (const std::string& task : names_of(groups, &TaskGroup::task)) {
    const std::vector<TaskGroup> own = groups_of(groups, task);
    Table table = task_table(own);
    table.caption = caption_of(own);
    text += plain_text(table, 3) + "\n";
    const std::vector<std::string> said = remarks(own);
    for (const std::string& remark : said) text += remark + "\n";
    if (!said.empty()) text += "\n";
  }
  return text + plain_text(side_by_side(groups), 3) + "\n";
}

void add_tasks(HtmlReport& page, const std::vector<Json>& rows) {
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
      "Prompts and scores as in the lm-evaluation-harness, with no example before the question; "
      "+-: "
      "standard error over items; of several seeds the means of both. Held against the dense base "
      "on "
      "the same items: same, the share of items with its choice; |d log p|, the mean absolute "
      "difference of the choices' log-probabilities; KL(base || row) of the next token, over the "
      "choices' tokens; acc - base, the paired difference. touched: the share of the causal pairs "
      "beyond the local window, which alone an attention may treat in another way than dense; "
      "inside: the share of items that have none.");
  add(side_by_side(groups));
  for (const std::string& task : names_of(groups, &TaskGroup::task)) {
    const std::vector<TaskGroup> own = groups_of(groups, task);
    page.heading(caption_of(own));
    for (const std::string& remark : remarks(own)) page.paragraph(remark);
    add(task_table(own));
    PointsChart chart{.title = fmt::format("Choices that stay, against the distance ({})", task),
                      .x_label = "KL to the dense base, nats a token, as its power of ten",
                      .y_label = "items with the dense base's choice, %"};
    for (const TaskGroup& g : own) {
      const auto kl = g.figures.find("kl");
      if (kl != g.figures.end() && kl->second.value > 0)
        chart.add(
            g.run, false,
            {std::log10(kl->second.value), 100 * g.figures.at("same_choice").value, g.attention});
    }
    if (!chart.series.empty()) page.figure(points_chart_svg(chart));
  }
}

}  // namespace focus::app
