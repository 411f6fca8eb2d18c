#include "apps/compare/compare_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "apps/report/html_report.h"
#include "apps/terminal/progress.h"
#include "data/files/json_reader.h"
#include "focus/train/metrics.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kColumns = {"run",
                                 "seed",
                                 "hash",
                                 "error",
                                 "method",
                                 "trainable_parameters",
                                 "train_tokens",
                                 "train_tokens_per_second",
                                 "train_peak_bytes",
                                 "split",
                                 "texts",
                                 "tokenizer",
                                 "context",
                                 "stride",
                                 "documents",
                                 "bytes",
                                 "tokens_scored",
                                 "attention",
                                 "top_k",
                                 "routing",
                                 "causal",
                                 "perplexity",
                                 "bits_per_byte",
                                 "pairs_attended",
                                 "largest_group",
                                 "eval_tokens_per_second"};

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

std::string routing_of(const Json& row) {
  if (!row["routing"].is_string()) return row["causal"].get<bool>() ? "-" : "not causal";
  return row["routing"].get<std::string>() + (row["causal"].get<bool>() ? "" : " (not causal)");
}

const std::vector<std::string> kHeader = {
    "run",       "attention", "routing", "seeds",   "perplexity",  "std",        "min-max",
    "bits/byte", "pairs",     "largest", "trained", "train tok/s", "eval tok/s", "peak memory"};

std::vector<std::string> cells_of(const CompareGroup& g) {
  return {g.run,
          g.attention,
          g.routing,
          fmt::format("{}", g.seeds),
          fmt::format("{:.4f}", g.mean),
          g.seeds > 1 ? fmt::format("{:.4f}", g.deviation) : "-",
          g.seeds > 1 ? fmt::format("{:.4f}-{:.4f}", g.least, g.most) : "-",
          fmt::format("{:.4f}", g.bits_per_byte),
          fmt::format("{:.1f} %", 100 * g.pairs),
          g.largest_group > 0 ? fmt::format("{:.1f} %", 100 * g.largest_group) : "-",
          fmt::format("{:.0f}", g.trainable),
          fmt::format("{:.0f}", g.train_rate),
          fmt::format("{:.0f}", g.eval_rate),
          format_bytes(g.peak_bytes)};
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
std::vector<std::string> splits_of(const std::vector<CompareGroup>& groups) {
  std::vector<std::string> splits;
  for (const char* split : {"valid", "test"})
    if (std::ranges::any_of(groups, [&](const auto& g) { return g.split == split; }))
      splits.emplace_back(split);
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
  const auto add = [](PointsChart& chart, const std::string& name, LabelledPoint point) {
    auto it = std::ranges::find(chart.series, name, &PointSeries::name);
    if (it == chart.series.end())
      it = chart.series.insert(it, PointSeries{.name = name, .connected = false});
    it->points.push_back(std::move(point));
  };
  for (const CompareGroup& g : groups) {
    // What is not causal is in the table, marked so; here it would pass for a perplexity.
    if (g.split != split || g.routing.find("not causal") != std::string::npos) continue;
    const std::string label =
        g.attention.starts_with("hard ") ? g.attention.substr(5) : g.attention;
    add(pairs, g.run, {100 * g.pairs, g.mean, label});
    add(speed, g.run, {g.eval_rate, g.mean, label});
  }
  page.points_chart(pairs);
  page.points_chart(speed);
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

}  // namespace

std::vector<Json> compare_rows(const std::vector<RunOutcome>& outcomes) {
  std::vector<Json> rows;
  for (const RunOutcome& outcome : outcomes) {
    Json common;
    for (const char* column : kColumns) common[column] = nullptr;
    common["run"] = outcome.name;
    common["seed"] = outcome.config.seed;
    common["hash"] = outcome.hash;
    common["method"] =
        enum_names(outcome.config.method)[static_cast<std::size_t>(outcome.config.method)];
    if (outcome.train.is_object()) {
      common["trainable_parameters"] = outcome.train.at("trainable");
      common["train_tokens"] = outcome.train.at("tokens");
      common["train_tokens_per_second"] = outcome.train.at("tokens_per_second");
      common["train_peak_bytes"] = outcome.train.at("peak_bytes");
    }
    if (!outcome.error.empty()) {
      common["error"] = outcome.error;
      rows.push_back(common);
      continue;
    }
    for (const char* split : {"valid", "test"}) {
      const auto found = outcome.evaluation.find(split);
      if (found == outcome.evaluation.end()) continue;
      const Json& eval = found->second;
      for (const Json& figures : eval.at("rows")) {
        Json row = common;
        row["split"] = split;
        std::vector<std::string> texts = eval.at("texts").get<std::vector<std::string>>();
        row["texts"] = fmt::format("{}", fmt::join(texts, " "));
        row["tokenizer"] = fmt::format("{} {}", eval.at("tokenizer").at("kind").get<std::string>(),
                                       eval.at("tokenizer").at("fingerprint").get<std::string>());
        for (const char* key : {"context", "stride", "documents", "bytes"}) row[key] = eval.at(key);
        for (const char* key : {"tokens_scored", "attention", "top_k", "routing", "causal",
                                "perplexity", "bits_per_byte", "pairs_attended"})
          row[key] = figures.at(key);
        if (figures.contains("largest_group")) row["largest_group"] = figures["largest_group"];
        row["eval_tokens_per_second"] = figures.at("tokens_per_second");
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

std::vector<CompareGroup> group_rows(const std::vector<Json>& rows) {
  std::vector<CompareGroup> groups;
  std::vector<std::vector<double>> perplexities;
  for (const Json& row : rows) {
    if (!row["error"].is_null()) continue;
    const CompareGroup key{.run = row["run"],
                           .split = row["split"],
                           .attention = row["attention"],
                           .routing = routing_of(row)};
    const auto found = std::ranges::find_if(groups, [&](const CompareGroup& g) {
      return g.run == key.run && g.split == key.split && g.attention == key.attention &&
             g.routing == key.routing;
    });
    const auto at = static_cast<std::size_t>(found - groups.begin());
    if (found == groups.end()) {
      groups.push_back(key);
      groups.back().pairs = 0;
      perplexities.emplace_back();
    }
    CompareGroup& g = groups[at];
    perplexities[at].push_back(number(row, "perplexity", std::nan("")));
    // Sums here, means below.
    g.bits_per_byte += number(row, "bits_per_byte", std::nan(""));
    g.pairs += number(row, "pairs_attended", 1);
    g.largest_group += number(row, "largest_group", 0);
    g.train_rate += number(row, "train_tokens_per_second", 0);
    g.eval_rate += number(row, "eval_tokens_per_second", 0);
    g.trainable = number(row, "trainable_parameters", 0);
    g.peak_bytes = std::max(g.peak_bytes, number(row, "train_peak_bytes", 0));
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    CompareGroup& g = groups[i];
    const std::vector<double>& values = perplexities[i];
    const auto n = static_cast<double>(values.size());
    g.seeds = values.size();
    for (const double value : values) g.mean += value / n;
    for (const double value : values) g.deviation += (value - g.mean) * (value - g.mean);
    g.deviation = n > 1 ? std::sqrt(g.deviation / (n - 1)) : 0;
    g.least = *std::ranges::min_element(values);
    g.most = *std::ranges::max_element(values);
    for (double* sum : {&g.bits_per_byte, &g.pairs, &g.largest_group, &g.train_rate, &g.eval_rate})
      *sum /= n;
  }
  return groups;
}

std::string compare_csv(const std::vector<Json>& rows) {
  std::string text = fmt::format("{}\n", fmt::join(kColumns, ","));
  for (const Json& row : rows) {
    std::string line;
    for (const char* column : kColumns) {
      const Json& value = row.at(column);
      if (column != kColumns[0]) line += ',';
      if (!value.is_null()) line += value.is_string() ? quoted(value) : value.dump();
    }
    text += line + '\n';
  }
  return text;
}

std::string compare_jsonl(const std::vector<Json>& rows) {
  std::string text;
  for (const Json& row : rows) text += row.dump() + '\n';
  return text;
}

std::string compare_table(const std::vector<Json>& rows) {
  const auto groups = group_rows(rows);
  std::string text;
  for (const std::string& split : splits_of(groups)) {
    std::vector<std::vector<std::string>> lines = {kHeader};
    for (const CompareGroup& g : groups)
      if (g.split == split) lines.push_back(cells_of(g));
    std::vector<std::size_t> widths(kHeader.size());
    for (const auto& line : lines)
      for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
    text += fmt::format("{} texts\n", split);
    for (const auto& line : lines) {
      std::string row;
      for (std::size_t c = 0; c < line.size(); ++c)
        row += c < 3 ? fmt::format("{:<{}}  ", line[c], widths[c])
                     : fmt::format("{:>{}}  ", line[c], widths[c]);
      row.erase(row.find_last_not_of(' ') + 1);
      text += row + '\n';
    }
    text += '\n';
  }
  for (const Json& row : rows)
    if (!row["error"].is_null())
      text += fmt::format("FAILED {}, seed {}: {}\n", row["run"].get<std::string>(),
                          row["seed"].get<std::int64_t>(), row["error"].get<std::string>());
  return text;
}

std::string compare_page(const ComparePlan& plan, const std::vector<RunOutcome>& outcomes) {
  const auto rows = compare_rows(outcomes);
  const auto groups = group_rows(rows);
  HtmlReport page(plan.config.title);
  page.paragraph(fmt::format(
      "{} runs, seeds {}. std: standard deviation over seeds (n - 1). pairs: share of the causal "
      "pairs that are attended; largest: the largest group's share of tokens, mean over layers; "
      "trained: trainable parameters; peak memory: of the training process. A figure that is not "
      "causal looks at later tokens; it is not in the charts. In them, a point says under the "
      "pointer what it is; a name that finds no room is left out.",
      outcomes.size(), fmt::join(plan.config.seeds, ", ")));
  for (const std::string& split : splits_of(groups)) {
    page.heading(split == "test" ? "Test texts" : "Validation texts");
    const auto measured = what_is_measured(rows, split);
    for (const auto& [what, runs] : measured)
      page.paragraph(measured.size() == 1 ? what
                                          : fmt::format("{}: {}", fmt::join(runs, "; "), what));
    if (measured.size() > 1)
      page.paragraph(
          "Perplexities under different tokenizers or windows do not compare; bits per byte of the "
          "same text under the same windows do.");
    Table table{.header = kHeader};
    std::string last;
    for (const CompareGroup& g : groups) {
      if (g.split != split) continue;
      table.rows.push_back(cells_of(g));
      if (g.run == last) table.rows.back()[0].clear();  // a run's name stands in its first row
      last = g.run;
    }
    page.table(table);
    add_points(page, groups, split);
  }
  Table failed{.header = {"run", "seed", "error"}};
  for (const RunOutcome& outcome : outcomes)
    if (!outcome.error.empty())
      failed.rows.push_back({outcome.name, fmt::format("{}", outcome.config.seed), outcome.error});
  if (!failed.rows.empty()) {
    page.heading("Failed");
    page.table(failed);
  }
  page.heading("Training, mean over seeds");
  const auto add_curves = [&](const char* key, const char* title, const char* label) {
    LineChart chart{.title = title, .x_label = "step", .y_label = label};
    chart.series = curves(outcomes, key);
    if (!chart.series.empty()) page.line_chart(chart);
  };
  add_curves("loss", "Training loss", "nats per token");
  add_curves("valid_loss", "Validation loss", "nats per token");
  add_curves("largest_group", "Largest group's share of tokens", "share");
  return page.html();
}

}  // namespace focus
