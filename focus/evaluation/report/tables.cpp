#include "focus/evaluation/report/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace focus {
namespace {

struct Column {
  const char* header;
  std::string (*cell)(const Row&);
};

constexpr std::array<Column, 12> kColumns = {{
    {"attention", [](const Row& row) { return row.attention.name; }},
    {"routing", [](const Row& row) { return row.attention.routing_text(); }},
    {"perplexity", [](const Row& row) { return number_text(row.perplexity, 4); }},
    {"by word",
     [](const Row& row) {
       return std::isfinite(row.word_perplexity) ? fmt::format("{:.5g}", row.word_perplexity) : "-";
     }},
    {"bits/byte", [](const Row& row) { return number_text(row.bits_per_byte, 5); }},
    {"tokens", [](const Row& row) { return fmt::format("{}", row.tokens_scored); }},
    {"tok/s", [](const Row& row) { return number_text(row.tokens_per_second, 0); }},
    {"pairs", [](const Row& row) { return percent_text(row.pairs_attended); }},
    {"selection", [](const Row& row) { return percent_text(row.pairs_choosing); }},
    {"largest", [](const Row& row) { return percent_text(row.largest_group); }},
    {"KL", [](const Row& row) { return number_text(row.kl, 5); }},
    {"nats against dense",
     [](const Row& row) {
       return row.nats_against_dense ? fmt::format("{:+.5f} +-{:.5f}", *row.nats_against_dense,
                                                   row.nats_against_dense_error.value_or(NAN))
                                     : "-";
     }},
}};

}  // namespace

std::vector<std::string> row_header() {
  std::vector<std::string> header;
  for (const Column& column : kColumns) header.emplace_back(column.header);
  return header;
}

std::vector<std::string> row_cells(const Row& row) {
  std::vector<std::string> cells;
  for (const Column& column : kColumns) cells.push_back(column.cell(row));
  return cells;
}

std::vector<std::string> far_header() {
  return {"long-range nats", "other nats", "long-range retained", "all retained"};
}

std::vector<std::string> far_cells(const FarFigures& figures) {
  return {number_text(figures.nats_far, 4), number_text(figures.nats_others, 4),
          percent_text(figures.kept_far), percent_text(figures.kept_all)};
}

void drop_empty_columns(Table& table) {
  constexpr std::size_t kNames = 2;  // the first columns, which stay
  for (std::size_t c = table.header.size(); c-- > kNames;) {
    if (std::ranges::any_of(table.rows, [c](const auto& row) { return row[c] != "-"; })) continue;
    const auto at = static_cast<std::ptrdiff_t>(c);
    table.header.erase(table.header.begin() + at);
    for (auto& row : table.rows) row.erase(row.begin() + at);
  }
}

Table row_table(std::span<const Row> rows) {
  Table table{.header = row_header()};
  for (const Row& row : rows) table.rows.push_back(row_cells(row));
  drop_empty_columns(table);
  return table;
}

Table far_table(const FarReport& report) {
  Table table{.header = {"attention", "routing"}};
  for (const std::string& name : far_header()) table.header.push_back(name);
  for (const FarRow& row : report.rows) {
    auto& cells =
        table.rows.emplace_back(std::vector{row.attention.name, row.attention.routing_text()});
    for (const std::string& cell : far_cells(row.figures)) cells.push_back(cell);
  }
  return table;
}

Table recall_table(const std::vector<RecallRow>& rows) {
  Table table{.header = {"attention", "routing", "correct"}};
  for (const RecallRow& row : rows) {
    auto& cells = table.rows.emplace_back(std::vector{
        row.attention.name, row.attention.routing_text(),
        fmt::format("{} +-{:.1f}", percent_text(row.all.right), 100 * row.all.standard_error)});
    for (const RecallBucket& bucket : row.by_distance) {
      if (table.rows.size() == 1)
        table.header.push_back(fmt::format("{} to {}", bucket.from, bucket.to));
      cells.push_back(percent_text(bucket.figures.right));
    }
  }
  if (rows.empty()) return table;
  auto& cells = table.rows.emplace_back(
      std::vector<std::string>{"answers", "", fmt::format("{}", rows[0].all.answers)});
  for (const RecallBucket& bucket : rows[0].by_distance)
    cells.push_back(fmt::format("{}", bucket.figures.answers));
  return table;
}

std::string row_legend() {
  return "by word: perplexity per word; tok/s: tokens scored per second; pairs: attention density, "
         "the share of causal pairs computed, a summary token counts as one; selection: selection "
         "overhead, in pair equivalents; largest: the largest group's share, mean over layers; KL: "
         "divergence of the row's predictions from those of dense attention, KL(dense || row)";
}

std::string far_legend(const FarReport& report) {
  const FarSettings& settings = report.settings;
  return fmt::format(
      "{} of {} tokens are long-range{} ({:.2f} %): dense attention beats itself with {} to {} "
      "tokens of context by more than {} nats. retained: share of the long-range gain, (window - "
      "row) / (window - dense) in nats; window: {}",
      report.far, report.tokens, report.reference.empty() ? "" : " for " + report.reference,
      100 * report.share(), settings.context, settings.context + settings.step() - 1,
      settings.margin, report.window);
}

}  // namespace focus
