#include "apps/compare/compare_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "apps/compare/claims.h"
#include "apps/compare/compare_recall.h"
#include "apps/compare/compare_tasks.h"
#include "apps/compare/forgetting.h"
#include "apps/compare/seed_rows.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/settings/recipe_values.h"
#include "focus/report/charts.h"
#include "focus/report/html_report.h"
#include "focus/training/metrics.h"

namespace focus::app {
namespace {

using Json = nlohmann::ordered_json;

/// Of CompareEval::splits(), and what the page calls them.
constexpr std::array<std::pair<const char*, const char*>, 6> kSplits = {
    {{"valid", "Validation texts"},
     {"target", "Target texts"},
     {"source", "Source texts"},
     {"test", "Test texts"},
     {"test target", "Test texts of the target"},
     {"test source", "Test texts of the source"}}};
/// Columns of the comparison with dense attention, and their names in `focus eval --json`.
constexpr std::array<std::pair<const char*, const char*>, 3> kAgainstDense = {
    {{"kl", "kl"},
     {"nats_against_dense", "difference"},
     {"nats_against_dense_error", "difference_error"}}};
/// Columns of far tokens.
constexpr std::array kOfFar = {"nats_far", "nats_others", "kept_far", "kept_all"};

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

/// A value of a row where it is a number, else `otherwise`.
double number(const Json& row, const char* key, double otherwise) {
  return row.contains(key) && row[key].is_number() ? row[key].get<double>() : otherwise;
}

/// Null where `json` is no object or has no such key.
Json value_at(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) ? json[key] : Json();
}

/// What `focus eval --far` says of a row; null where it was not asked.
Json far_of(const Json& eval, const Json& figures) {
  const Json far = value_at(eval, "far");
  if (!far.is_object()) return nullptr;
  for (const Json& row : far.at("rows"))
    if (same_attention(row, figures)) return row;
  return nullptr;
}

/// One line of the tables for machines, and the only list of their columns: null where the run has
/// nothing to say. `eval` and `figures` are null for a run that failed.
Json row_of(const RunOutcome& run, const Json& split, const Json& eval, const Json& figures) {
  Json row = {{"run", run.name}, {"seed", run.config.seed}, {"hash", run.hash}};
  row["error"] = run.error.empty() ? Json() : Json(run.error);
  row["method"] = value_text(run.config.method);
  row["trainable_parameters"] = value_at(run.train, "trainable");
  row["train_tokens"] = value_at(run.train, "tokens");
  row["train_tokens_per_second"] = value_at(run.train, "tokens_per_second");
  row["train_peak_bytes"] = value_at(run.train, "peak_bytes");
  row["split"] = split;
  row["texts"] = nullptr;
  row["tokenizer"] = nullptr;
  if (eval.is_object()) {
    const Json& tokenizer = eval.at("tokenizer");
    row["texts"] =
        fmt::format("{}", fmt::join(eval.at("texts").get<std::vector<std::string>>(), " "));
    row["tokenizer"] = fmt::format("{} {}", tokenizer.at("kind").get<std::string>(),
                                   tokenizer.at("fingerprint").get<std::string>());
  }
  for (const char* key : {"context", "stride", "documents", "bytes"})
    row[key] = value_at(eval, key);
  for (const char* key :
       {"tokens_scored", "attention", "kind", "top_k", "gate", "routing", "causal", "perplexity",
        "bits_per_byte", "pairs_attended", "pairs_choosing", "largest_group"})
    row[key] = value_at(figures, key);
  row["nats_of_documents"] = value_at(figures, "nats_of_documents");
  const Json against_dense = value_at(figures, "against_dense");
  for (const auto& [name, key] : kAgainstDense) row[name] = value_at(against_dense, key);
  row["far_tokens"] = value_at(value_at(eval, "far"), "far");
  const Json far = far_of(eval, figures);
  for (const char* key : kOfFar) row[key] = value_at(far, key);
  row["eval_tokens_per_second"] = value_at(figures, "tokens_per_second");
  return row;
}

Table table_of(const std::vector<CompareGroup>& groups, const std::string& split,
               const std::string& caption) {
  Table table{.caption = caption,
              .header = {"run", "attention", "routing", "seeds", "perplexity", "std", "min-max",
                         "bits/byte", "pairs", "choosing", "largest", "trained", "train tok/s",
                         "eval tok/s", "peak memory"}};
  const bool against_dense = std::ranges::any_of(groups, &CompareGroup::against_dense);
  if (against_dense) table.header.insert(table.header.end(), {"KL", "nats against dense"});
  const bool has_far = std::ranges::any_of(groups, &CompareGroup::has_far);
  if (has_far) table.header.insert(table.header.end(), {"nats, far", "kept, far", "kept, all"});
  for (const CompareGroup& g : groups)
    if (g.split == split) {
      table.rows.push_back(
          {g.run, g.attention.name, g.attention.routing_text(), fmt::format("{}", g.seeds),
           fmt::format("{:.4f}", g.mean), g.seeds > 1 ? fmt::format("{:.4f}", g.deviation) : "-",
           g.seeds > 1 ? fmt::format("{:.4f}-{:.4f}", g.least, g.most) : "-",
           fmt::format("{:.4f}", g.bits_per_byte), fmt::format("{:.1f} %", 100 * g.pairs),
           fmt::format("{:.1f} %", 100 * g.choosing),
           g.largest_group > 0 ? fmt::format("{:.1f} %", 100 * g.largest_group) : "-",
           fmt::format("{:.0f}", g.trainable), fmt::format("{:.0f}", g.train_rate),
           fmt::format("{:.0f}", g.eval_rate), format_bytes(g.peak_bytes)});
      std::vector<std::string>& cells = table.rows.back();
      const auto add = [&](bool known, const std::string& text) {
        cells.push_back(known ? text : "-");
      };
      if (against_dense) {
        add(g.against_dense, fmt::format("{:.5f}", g.kl));
        add(g.against_dense, fmt::format("{:+.5f} +-{:.5f}", g.difference, g.difference_error));
      }
      if (has_far) {
        add(g.has_far, fmt::format("{:.4f}", g.nats_far));
        add(g.has_far, fmt::format("{:.1f} %", 100 * g.kept_far));
        add(g.has_far, fmt::format("{:.1f} %", 100 * g.kept_all));
      }
    }
  return table;
}

/// What a split's perplexities are of, each once, with the runs that it is said of.
std::vector<std::pair<std::string, std::vector<std::string>>> what_is_measured(
    const std::vector<Json>& rows, const std::string& split) {
  std::vector<std::pair<std::string, std::vector<std::string>>> all;
  for (const Json& row : rows) {
    if (row["split"] != split) continue;
    const std::string what = fmt::format(
        "Perplexity of {}: {} bytes, {} tokens scored; tokenizer {}; context {}, stride {}.",
        row["texts"].get<std::string>(), row["bytes"].dump(), row["tokens_scored"].dump(),
        row["tokenizer"].get<std::string>(), row["context"].dump(), row["stride"].dump());
    auto it = std::ranges::find(all, what, [](const auto& entry) { return entry.first; });
    if (it == all.end()) it = all.insert(it, {what, {}});
    const auto run = row["run"].get<std::string>();
    if (std::ranges::find(it->second, run) == it->second.end()) it->second.push_back(run);
  }
  return all;
}

/// The splits that have rows, those with test texts last.
std::vector<std::pair<std::string, std::string>> splits_of(
    const std::vector<CompareGroup>& groups) {
  std::vector<std::pair<std::string, std::string>> splits;
  for (const auto& [split, title] : kSplits)
    if (std::ranges::find(groups, split, &CompareGroup::split) != groups.end())
      splits.emplace_back(split, title);
  return splits;
}

void add_points(HtmlReport& page, const std::vector<CompareGroup>& groups,
                const std::string& split) {
  PointsChart pairs{.title = fmt::format("Perplexity against the share of pairs ({})", split),
                    .x_label = "share of causal pairs attended, %",
                    .y_label = "perplexity, mean over seeds"};
  PointsChart speed{.title = fmt::format("Perplexity against speed ({})", split),
                    .x_label = "tokens scored in a second",
                    .y_label = "perplexity, mean over seeds"};
  PointsChart divergence{.title = fmt::format("Distance from dense attention ({})", split),
                         .x_label = "share of causal pairs attended, %",
                         .y_label = "KL, nats a token, as its power of ten"};
  PointsChart kept{.title = fmt::format("What is kept of the gain of distance ({})", split),
                   .x_label = "share of causal pairs attended, %",
                   .y_label = "kept on far tokens, %"};
  for (const CompareGroup& g : groups) {
    // What is not causal is in the table, marked so; here it would pass for a perplexity.
    if (g.split != split || !g.attention.causal) continue;
    const std::string label =
        g.attention.kind == "hard"
            ? fmt::format("k={}{}", g.attention.top_k, g.attention.keeps_affinity ? " keep" : "")
            : g.attention.name;
    pairs.add(g.run, false, {100 * g.pairs, g.mean, label});
    speed.add(g.run, false, {g.eval_rate, g.mean, label});
    if (g.against_dense && g.kl > 0)
      divergence.add(g.run, true, {100 * g.pairs, std::log10(g.kl), label});
    if (g.has_far) kept.add(g.run, false, {100 * g.pairs, 100 * g.kept_far, label});
  }
  page.figure(points_chart_svg(pairs));
  if (!divergence.series.empty()) page.figure(points_chart_svg(divergence));
  if (!kept.series.empty()) page.figure(points_chart_svg(kept));
  page.figure(points_chart_svg(speed));
}

/// One line a run, each point the mean over the seeds that have the step.
std::vector<Series> curves(const std::vector<RunOutcome>& outcomes, const char* key) {
  std::vector<std::string> order;
  std::map<std::string, std::map<double, std::pair<double, int>>> sums;  // run, step: sum, count
  for (const RunOutcome& outcome : outcomes) {
    if (!outcome.train.is_object()) continue;
    if (std::ranges::find(order, outcome.name) == order.end()) order.push_back(outcome.name);
    for (const Json& record :
         read_metrics(std::filesystem::path(outcome.config.out) / "metrics.jsonl")) {
      if (!record.contains(key) || !record[key].is_number()) continue;
      auto& [sum, count] = sums[outcome.name][record["step"].get<double>()];
      sum += record[key].get<double>();
      ++count;
    }
  }
  std::vector<Series> series;
  for (const std::string& name : order) {
    if (sums[name].empty()) continue;
    series.push_back({.name = name});
    for (const auto& [step, sum] : sums[name])
      series.back().points.emplace_back(step, sum.first / sum.second);
  }
  return series;
}

/// Throws where a record is no row or lacks what the tables read, with the place that it has.
void check_row(const Json& record, const std::string& where) {
  const auto is = [&](const char* key, auto type) {
    return record.contains(key) && (record[key].*type)();
  };
  const bool place = is("split", &Json::is_string) || is("task", &Json::is_string) ||
                     is("questions", &Json::is_string) || is("error", &Json::is_string);
  if (!place || !is("run", &Json::is_string) || !is("seed", &Json::is_number_integer))
    fail("{}: no row of a comparison: wanted run, seed, and split, task or questions; came {}",
         where, shown_json(nlohmann::json(record)));
  const auto want = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if (!record.contains(key)) fail("{}: a row without {}", where, key);
  };
  if (record.contains("task"))
    want({"attention", "kind", "routing", "items", "cut", "local_window"});
  else if (record.contains("questions"))
    want({"documents", "attention", "kind", "routing", "from", "to", "answers", "right"});
}

/// How many runs have rows.
std::size_t runs_of(const ComparedRows& rows) {
  std::set<std::pair<std::string, std::int64_t>> runs;
  for (const Json& row : rows.all())
    runs.emplace(row["run"].get<std::string>(), row["seed"].get<std::int64_t>());
  return runs.size();
}

}  // namespace

std::vector<Json> ComparedRows::all() const {
  std::vector<Json> rows = texts;
  for (const auto* more : {&tasks, &recall}) rows.insert(rows.end(), more->begin(), more->end());
  return rows;
}

ComparedRows compared_rows(const std::vector<RunOutcome>& outcomes) {
  ComparedRows rows{.tasks = task_rows(outcomes), .recall = recall_rows(outcomes)};
  for (const RunOutcome& outcome : outcomes) {
    if (!outcome.error.empty()) rows.texts.push_back(row_of(outcome, nullptr, nullptr, nullptr));
    for (const auto& [split, title] : kSplits) {
      const auto eval = outcome.evaluation.find(split);
      if (!outcome.error.empty() || eval == outcome.evaluation.end()) continue;
      for (const Json& figures : eval->second.at("rows"))
        rows.texts.push_back(row_of(outcome, split, eval->second, figures));
    }
  }
  return rows;
}

ComparedRows read_compared_rows(const std::filesystem::path& path) {
  const Json columns = row_of({}, nullptr, nullptr, nullptr);
  ComparedRows rows;
  int line = 0;
  for (Json& record : read_metrics(path)) {
    ++line;
    if (record.contains("claim")) continue;
    check_row(record, fmt::format("{}:{}", path.string(), line));
    if (record.contains("task")) {
      rows.tasks.push_back(std::move(record));
    } else if (record.contains("questions")) {
      rows.recall.push_back(std::move(record));
    } else {
      Json& row = rows.texts.emplace_back(columns);  // of a version that had fewer columns
      row.update(record);
    }
  }
  if (rows.all().empty()) fail("{}: no rows of a comparison", path.string());
  return rows;
}

std::vector<CompareGroup> group_rows(const std::vector<Json>& rows) {
  std::vector<CompareGroup> groups;
  std::vector<std::vector<const Json*>> members;  // of each group, a row a seed
  for (const Json& row : rows) {
    if (!row["error"].is_null()) continue;
    const AttentionRow attention = read_attention_row(row, row["run"]);
    const auto found = std::ranges::find_if(groups, [&](const CompareGroup& g) {
      return g.run == row["run"] && g.split == row["split"] && g.attention.name == attention.name &&
             g.attention.routing_text() == attention.routing_text();
    });
    const auto at = static_cast<std::size_t>(found - groups.begin());
    if (found == groups.end()) {
      groups.push_back({.run = row["run"], .split = row["split"], .attention = attention});
      members.emplace_back();
    }
    members[at].push_back(&row);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    CompareGroup& g = groups[i];
    const auto values = [&](const char* key, double otherwise) {
      std::vector<double> all;
      for (const Json* row : members[i]) all.push_back(number(*row, key, otherwise));
      return all;
    };
    const auto mean = [](const std::vector<double>& all) { return spread_of(all).mean; };
    const std::vector<double> perplexities = values("perplexity", std::nan(""));
    g.seeds = members[i].size();
    const auto [mean_perplexity, deviation] = spread_of(perplexities);
    g.mean = mean_perplexity;
    g.deviation = deviation;
    const auto [least, most] = std::ranges::minmax(perplexities);
    g.least = least;
    g.most = most;
    g.bits_per_byte = mean(values("bits_per_byte", std::nan("")));
    const auto all_have = [&](const char* key) {
      return std::ranges::all_of(members[i], [key](const Json* row) {
        return row->contains(key) && (*row)[key].is_number();
      });
    };
    g.against_dense = all_have("kl");
    g.has_far = all_have("kept_far") && all_have("nats_far");
    g.nats_far = mean(values("nats_far", 0));
    g.kept_far = mean(values("kept_far", 0));
    g.kept_all = mean(values("kept_all", 0));
    g.kl = mean(values("kl", 0));
    g.difference = mean(values("nats_against_dense", 0));
    g.difference_error = mean(values("nats_against_dense_error", 0));
    g.pairs = mean(values("pairs_attended", 1));
    g.choosing = mean(values("pairs_choosing", 0));
    g.largest_group = mean(values("largest_group", 0));
    g.train_rate = mean(values("train_tokens_per_second", 0));
    g.eval_rate = mean(values("eval_tokens_per_second", 0));
    g.trainable = values("trainable_parameters", 0).back();
    g.peak_bytes = std::ranges::max(values("train_peak_bytes", 0));
  }
  return groups;
}

std::string compare_csv(const std::vector<Json>& rows) {
  std::string text;
  for (const Json& row : rows) {
    std::vector<std::string> names, cells;
    for (const auto& [name, value] : row.items()) {
      names.push_back(name);
      cells.push_back(value.is_null() ? ""
                                      : quoted(value.is_string() ? value : Json(value.dump())));
    }
    if (text.empty()) text = fmt::format("{}\n", fmt::join(names, ","));
    text += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return text;
}

std::string compare_jsonl(const std::vector<Json>& rows) {
  std::string text;
  for (const Json& row : rows) text += row.dump() + '\n';
  return text;
}

std::string compare_table(const ComparedRows& rows, const std::vector<ClaimOutcome>& claims) {
  const auto groups = group_rows(rows.texts);
  std::string text;
  for (const auto& [split, title] : splits_of(groups))
    text += plain_text(table_of(groups, split, fmt::format("{} texts", split)), 3) + "\n";
  text += task_tables(rows.tasks) + recall_tables(rows.recall) + claims_table(claims);
  for (const Json& row : rows.texts)
    if (!row["error"].is_null())
      text += fmt::format("FAILED {}, seed {}: {}\n", row["run"].get<std::string>(),
                          row["seed"].get<std::int64_t>(), row["error"].get<std::string>());
  return text;
}

std::string compare_page(const ComparePlan& plan, const ComparedRows& rows,
                         const std::vector<ClaimOutcome>& claims,
                         const std::vector<RunOutcome>& outcomes) {
  const auto groups = group_rows(rows.texts);
  HtmlReport page(plan.config.title);
  const std::size_t done = runs_of(rows);
  page.paragraph(fmt::format(
      "{} runs{}, seeds {}. std: standard deviation over seeds (n - 1). pairs: share of the causal "
      "pairs that are attended; choosing: what choosing them costs beside, in pairs; largest: the "
      "largest group's share of tokens, mean over layers; "
      "trained: trainable parameters; peak memory: of the training process. A figure that is not "
      "causal looks at later tokens; it is not in the charts. In them, a point says under the "
      "pointer what it is; a name that finds no room is left out.",
      done,
      done == plan.runs.size() ? ""
                               : fmt::format(" of {}, the others not done yet", plan.runs.size()),
      fmt::join(plan.config.seeds, ", ")));
  if (plan.config.eval.settings.against_dense)
    page.paragraph(
        "KL: of the row's predictions from those of the same model with dense attention, KL(dense "
        "|| "
        "row), nats a token. nats against dense: the mean difference of -log p on the same tokens, "
        "and its standard error over tokens; all are means over seeds.");
  if (plan.config.eval.far > 0)
    page.paragraph(fmt::format(
        "far: tokens that dense attention of the row's own model predicts better by more than 0.5 "
        "nats than the same model with {} tokens of context. kept: the share of the gain of "
        "distance, (window - row) / (window - dense) in nats, on far tokens and on all; the window "
        "is the row's own local window with its first tokens.",
        plan.config.eval.far));
  add_claims(page, claims);
  add_forgetting(page, plan, groups, "target", "source");
  add_forgetting(page, plan, groups, "test target", "test source");
  for (const auto& [split, title] : splits_of(groups)) {
    page.heading(title);
    const auto measured = what_is_measured(rows.texts, split);
    for (const auto& [what, runs] : measured)
      page.paragraph(measured.size() == 1 ? what
                                          : fmt::format("{}: {}", fmt::join(runs, "; "), what));
    if (measured.size() > 1)
      page.paragraph(
          "Perplexities under different tokenizers or windows do not compare; bits per byte of the "
          "same text under the same windows do.");
    Table table = table_of(groups, split, "");
    for (std::size_t r = table.rows.size(); r-- > 1;)  // a run's name stands in its first row
      if (table.rows[r][0] == table.rows[r - 1][0]) table.rows[r][0].clear();
    page.table(table);
    add_points(page, groups, split);
  }
  add_tasks(page, rows.tasks);
  add_recall(page, rows.recall);
  Table failed{.header = {"run", "seed", "error"}};
  for (const Json& row : rows.texts)
    if (!row["error"].is_null())
      failed.rows.push_back({row["run"], row["seed"].dump(), row["error"]});
  if (!failed.rows.empty()) {
    page.heading("Failed");
    page.table(failed);
  }
  if (!outcomes.empty()) page.heading("Training, mean over seeds");
  const auto add_curves = [&](const char* key, const char* title, const char* label) {
    LineChart chart{.title = title, .x_label = "step", .y_label = label};
    chart.series = curves(outcomes, key);
    if (!chart.series.empty()) page.figure(line_chart_svg(chart));
  };
  add_curves("loss", "Training loss", "nats per token");
  add_curves("valid_loss", "Validation loss", "nats per token");
  add_curves("largest_group", "Largest group's share of tokens", "share");
  add_curves("size_entropy", "Entropy of the groups' sizes, mean over layers", "nats");
  add_curves("assignment_entropy", "Entropy of a token's assignments, mean over layers", "nats");
  return page.html();
}

}  // namespace focus::app
