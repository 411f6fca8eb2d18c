#include "focus/evaluation/report/compare_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "data/text/format.h"
#include "focus/evaluation/report/charts.h"
#include "focus/evaluation/report/compare_recall.h"
#include "focus/evaluation/report/forgetting.h"
#include "focus/evaluation/report/html_report.h"
#include "focus/evaluation/report/spread.h"
#include "focus/evaluation/report/training_page.h"

namespace focus {
namespace {

Table text_table(const std::vector<CompareGroup>& groups, const std::string& split,
                 const std::string& caption) {
  Table table{.caption = caption,
              .header = {"run", "attention", "routing", "seeds", "perplexity", "std", "min-max",
                         "bits/byte", "pairs", "selection", "largest", "trained", "train tok/s",
                         "eval tok/s", "peak memory"}};
  const bool against_dense = std::ranges::any_of(groups, &CompareGroup::against_dense);
  if (against_dense) table.header.insert(table.header.end(), {"KL", "nats against dense"});
  const bool has_far = std::ranges::any_of(groups, &CompareGroup::has_far);
  if (has_far)
    table.header.insert(table.header.end(),
                        {"nats, long-range", "retained, long-range", "retained, all"});
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

std::string count_text(const std::optional<std::int64_t>& count) {
  return count ? fmt::format("{}", *count) : "null";
}

/// What a split's perplexities are of, each once, with the runs that it is said of.
std::vector<std::pair<std::string, std::vector<std::string>>> what_is_measured(
    const std::vector<TextRow>& rows, const std::string& split) {
  std::vector<std::pair<std::string, std::vector<std::string>>> all;
  for (const TextRow& row : rows) {
    if (row.split != split) continue;
    const std::string what = fmt::format(
        "Perplexity of {}: {} bytes, {} tokens scored; tokenizer {}; context {}, stride {}.",
        row.texts.value_or("-"), count_text(row.bytes), count_text(row.tokens_scored),
        row.tokenizer.value_or("-"), count_text(row.context), count_text(row.stride));
    auto it = std::ranges::find(all, what, [](const auto& entry) { return entry.first; });
    if (it == all.end()) it = all.insert(it, {what, {}});
    if (std::ranges::find(it->second, row.run.name) == it->second.end())
      it->second.push_back(row.run.name);
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
  PointsChart pairs{.title = fmt::format("Perplexity against attention density ({})", split),
                    .x_label = "attention density, %",
                    .y_label = "perplexity, mean over seeds"};
  PointsChart speed{.title = fmt::format("Perplexity against speed ({})", split),
                    .x_label = "tokens scored per second",
                    .y_label = "perplexity, mean over seeds"};
  PointsChart divergence{.title = fmt::format("Distance from dense attention ({})", split),
                         .x_label = "attention density, %",
                         .y_label = "log10 of KL, nats per token"};
  PointsChart kept{.title = fmt::format("Share of the long-range gain retained ({})", split),
                   .x_label = "attention density, %",
                   .y_label = "retained on long-range tokens, %"};
  for (const CompareGroup& g : groups) {
    // What is not causal is in the table, marked so; here it would pass for a perplexity.
    if (g.split != split || !g.attention.causal) continue;
    const std::string label = g.attention.kind == "hard"
                                  ? fmt::format("k={}{}", g.attention.top_k.value_or(0),
                                                g.attention.keeps_affinity() ? " keep" : "")
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

/// How many runs have rows.
std::size_t runs_of(const ComparedRows& rows) {
  std::set<std::pair<std::string, std::int64_t>> runs;
  rows.for_each_kind([&](const auto& of_kind) {
    for (const auto& row : of_kind) runs.emplace(row.run.name, row.run.seed);
  });
  return runs.size();
}

/// A column of some rows, `otherwise` where it is not known.
template <class T>
std::vector<double> column(const std::vector<const TextRow*>& rows,
                           std::optional<T> TextRow::*member, double otherwise) {
  std::vector<double> all;
  for (const TextRow* row : rows)
    all.push_back(row->*member ? static_cast<double>(*(row->*member)) : otherwise);
  return all;
}

void summarise_group(const std::vector<const TextRow*>& rows, CompareGroup& g) {
  const auto mean = [&](std::optional<double> TextRow::*member, double otherwise = 0) {
    return spread_of(column(rows, member, otherwise)).mean;
  };
  const auto all_have = [&](std::optional<double> TextRow::*member) {
    return std::ranges::all_of(rows, [&](const auto* row) { return (row->*member).has_value(); });
  };
  const auto perplexities = column(rows, &TextRow::perplexity, NAN);
  const Spread spread = spread_of(perplexities);
  g.seeds = rows.size();
  g.mean = spread.mean;
  g.deviation = spread.deviation;
  g.least = std::ranges::min(perplexities);
  g.most = std::ranges::max(perplexities);
  g.bits_per_byte = mean(&TextRow::bits_per_byte, NAN);
  g.against_dense = all_have(&TextRow::kl);
  g.has_far = all_have(&TextRow::kept_far) && all_have(&TextRow::nats_far);
  g.nats_far = mean(&TextRow::nats_far);
  g.kept_far = mean(&TextRow::kept_far);
  g.kept_all = mean(&TextRow::kept_all);
  g.kl = mean(&TextRow::kl);
  g.difference = mean(&TextRow::nats_against_dense);
  g.difference_error = mean(&TextRow::nats_against_dense_error);
  g.pairs = mean(&TextRow::pairs_attended, 1);
  g.choosing = mean(&TextRow::pairs_choosing);
  g.largest_group = mean(&TextRow::largest_group);
  g.train_rate = mean(&TextRow::train_tokens_per_second);
  g.eval_rate = mean(&TextRow::eval_tokens_per_second);
  g.trainable = static_cast<double>(rows.back()->run.trainable_parameters.value_or(0));
  g.peak_bytes = std::ranges::max(column(rows, &TextRow::train_peak_bytes, 0));
}

}  // namespace

std::vector<CompareGroup> group_rows(const std::vector<TextRow>& rows) {
  std::vector<CompareGroup> groups;
  std::vector<std::vector<const TextRow*>> members;  // of each group, a row a seed
  for (const TextRow& row : rows) {
    if (row.error) continue;
    const AttentionLabel attention = row.label();
    const auto found = std::ranges::find_if(groups, [&](const CompareGroup& g) {
      return g.run == row.run.name && g.split == row.split && g.attention.name == attention.name &&
             g.attention.routing_text() == attention.routing_text();
    });
    const auto at = static_cast<std::size_t>(found - groups.begin());
    if (found == groups.end()) {
      groups.push_back({.run = row.run.name,
                        .method = row.run.method,
                        .split = row.split.value_or(""),
                        .attention = attention});
      members.emplace_back();
    }
    members[at].push_back(&row);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) summarise_group(members[i], groups[i]);
  return groups;
}

std::string compare_table(const ComparedRows& rows) {
  const auto groups = group_rows(rows.texts);
  std::string text;
  for (const auto& [split, title] : splits_of(groups))
    text += plain_text(text_table(groups, split, fmt::format("{} texts", split)), 3) + "\n";
  text += recall_tables(rows.recall);
  for (const TextRow& row : rows.texts)
    if (row.error)
      text += fmt::format("FAILED {}, seed {}: {}\n", row.run.name, row.run.seed, *row.error);
  return text;
}

std::string compare_page(const ComparedConfig& config, const ComparedRows& rows,
                         const std::vector<RunOutcome>& outcomes) {
  const auto groups = group_rows(rows.texts);
  HtmlReport page(config.title);
  const std::size_t done = runs_of(rows);
  page.paragraph(fmt::format(
      "{} runs{}, seeds {}. std: standard deviation over seeds (n - 1). pairs: attention density, "
      "the share of causal pairs computed; selection: selection overhead, in pair equivalents; "
      "largest: the largest group's share of tokens, mean over layers; trained: trainable "
      "parameters; peak memory: of the training process. Figures that are not causal use later "
      "tokens and are not in the charts. Hover over a point of a chart to see its name; names that "
      "do not fit are left out.",
      done,
      done == config.runs ? "" : fmt::format(" of {}, the others are not finished", config.runs),
      fmt::join(config.seeds, ", ")));
  if (config.against_dense)
    page.paragraph(
        "KL: divergence of the row's predictions from those of the same model with dense "
        "attention, KL(dense || row), nats per token. nats against dense: mean difference of -log "
        "p on the same tokens, with its standard error over tokens; all are means over seeds.");
  if (config.far > 0)
    page.paragraph(fmt::format(
        "long-range: tokens that dense attention of the row's own model predicts better, by more "
        "than 0.5 nats, than the same model with {} tokens of context. retained: share of the "
        "long-range gain, (window - row) / (window - dense) in nats, on long-range tokens and on "
        "all; the window is the row's own local window with its first tokens.",
        config.far));
  add_forgetting(page, groups, "target", "source");
  add_forgetting(page, groups, "test target", "test source");
  for (const auto& [split, title] : splits_of(groups)) {
    page.heading(title);
    const auto measured = what_is_measured(rows.texts, split);
    for (const auto& [what, runs] : measured)
      page.paragraph(measured.size() == 1 ? what
                                          : fmt::format("{}: {}", fmt::join(runs, "; "), what));
    if (measured.size() > 1)
      page.paragraph(
          "Perplexities with different tokenizers or windows cannot be compared; bits per byte of "
          "the same text with the same windows can.");
    Table table = text_table(groups, split, "");
    for (std::size_t r = table.rows.size(); r-- > 1;)  // a run's name stands in its first row
      if (table.rows[r][0] == table.rows[r - 1][0]) table.rows[r][0].clear();
    page.table(table);
    add_points(page, groups, split);
  }
  add_recall(page, rows.recall);
  Table failed{.header = {"run", "seed", "error"}};
  for (const TextRow& row : rows.texts)
    if (row.error)
      failed.rows.push_back({row.run.name, fmt::format("{}", row.run.seed), *row.error});
  if (!failed.rows.empty()) {
    page.heading("Failed");
    page.table(failed);
  }
  if (!outcomes.empty()) page.heading("Training, mean over seeds");
  add_mean_curves(page, outcomes);
  return page.html();
}

}  // namespace focus
