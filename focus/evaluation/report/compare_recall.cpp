#include "focus/evaluation/report/compare_recall.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "focus/evaluation/report/charts.h"
#include "focus/evaluation/report/spread.h"

namespace focus {
namespace {

/// Over the seeds of a run: answers of one attention at some distances.
struct RecallCell {
  std::int64_t from = 0, to = 0;   // 0: all distances
  std::int64_t answers = 0;        // of a seed
  std::vector<double> right = {};  // a share for each seed

  double percent() const { return 100 * spread_of(right).mean; }
};

struct RecallLine {
  std::string run, attention, routing;
  std::vector<RecallCell> cells = {};

  /// The cell of one range of distances, or of all with to = 0; nullptr where no row gave it.
  const RecallCell* cell(std::int64_t from, std::int64_t to) const {
    const auto found = std::ranges::find_if(
        cells, [&](const RecallCell& c) { return c.from == from && c.to == to; });
    return found != cells.end() ? &*found : nullptr;
  }
};

struct RecallQuestion {
  std::string questions;
  std::int64_t documents = 0;
  std::vector<RecallLine> lines = {};
};

/// The entry that `same` knows, made by `make` where there is none.
template <class T, class Same, class Make>
T& entry(std::vector<T>& all, const Same& same, const Make& make) {
  const auto found = std::ranges::find_if(all, same);
  return found != all.end() ? *found : all.emplace_back(make());
}

std::vector<RecallQuestion> group_recall_rows(const std::vector<RecallAnswerRow>& rows) {
  std::vector<RecallQuestion> all;
  for (const RecallAnswerRow& row : rows) {
    RecallQuestion& question = entry(
        all, [&](const RecallQuestion& q) { return q.questions == row.questions; },
        [&] { return RecallQuestion{.questions = row.questions, .documents = row.documents}; });
    RecallLine& line = entry(
        question.lines,
        [&](const RecallLine& l) {
          return l.run == row.run.name && l.attention == row.attention && l.routing == row.routing;
        },
        [&] {
          return RecallLine{
              .run = row.run.name, .attention = row.attention, .routing = row.routing};
        });
    const std::int64_t to = row.to.value_or(0), from = row.to ? row.from.value_or(0) : 0;
    RecallCell& cell = entry(
        line.cells, [&](const RecallCell& c) { return c.from == from && c.to == to; },
        [&] { return RecallCell{.from = from, .to = to, .answers = row.answers}; });
    cell.right.push_back(row.right);
  }
  return all;
}

std::string recall_caption(const RecallQuestion& question) {
  std::int64_t answers = 0;
  for (const RecallLine& line : question.lines)
    for (const RecallCell& cell : line.cells) answers = std::max(answers, cell.answers);
  return fmt::format("{}: {} documents, {} answers", question.questions, question.documents,
                     answers);
}

/// The ranges of distances of all lines, near to far: a line may lack some of them.
std::vector<std::pair<std::int64_t, std::int64_t>> distances_of(const RecallQuestion& question) {
  std::set<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const RecallLine& line : question.lines)
    for (const RecallCell& cell : line.cells)
      if (cell.to > 0) ranges.emplace(cell.from, cell.to);
  return {ranges.begin(), ranges.end()};
}

Table recall_table(const RecallQuestion& question) {
  const auto percent = [](const RecallCell* cell) {
    return cell != nullptr ? fmt::format("{:.1f} %", cell->percent()) : "-";
  };
  Table table{.header = {"run", "attention", "routing", "seeds", "correct", "std"}};
  const auto ranges = distances_of(question);
  for (const auto& [from, to] : ranges) table.header.push_back(fmt::format("{} to {}", from, to));
  for (const RecallLine& line : question.lines) {
    const RecallCell* all = line.cell(0, 0);
    const std::size_t seeds = all != nullptr ? all->right.size() : 0;
    table.rows.push_back(
        {line.run, line.attention, line.routing, fmt::format("{}", seeds), percent(all),
         seeds > 1 ? fmt::format("{:.1f}", 100 * spread_of(all->right).deviation) : "-"});
    for (const auto& [from, to] : ranges) table.rows.back().push_back(percent(line.cell(from, to)));
  }
  return table;
}

}  // namespace

std::string recall_tables(const std::vector<RecallAnswerRow>& rows) {
  std::string text;
  for (const RecallQuestion& question : group_recall_rows(rows)) {
    Table table = recall_table(question);
    table.caption = recall_caption(question);
    text += plain_text(table, 3) + "\n";
  }
  return text;
}

void add_recall(HtmlReport& page, const std::vector<RecallAnswerRow>& rows) {
  const std::vector<RecallQuestion> questions = group_recall_rows(rows);
  if (questions.empty()) return;
  page.heading("Recall");
  page.paragraph(
      "Answers that appear verbatim at a long distance. Correct: each token of the answer is the "
      "argmax after the text before it; means over seeds, std over seeds (n - 1). Columns are "
      "distances in tokens.");
  for (const RecallQuestion& question : questions) {
    page.heading(recall_caption(question));
    page.table(recall_table(question));
    PointsChart chart{.title = fmt::format("Correct answers by distance ({})", question.questions),
                      .x_label = "log2 of the largest distance in tokens",
                      .y_label = "correct, %"};
    for (const RecallLine& line : question.lines)
      for (const RecallCell& cell : line.cells)
        if (cell.to > 0)
          chart.add(fmt::format("{}, {}", line.run, line.attention), true,
                    {std::log2(static_cast<double>(cell.to)), cell.percent(), ""});
    // One distance alone is no curve.
    if (distances_of(question).size() > 1) page.figure(points_chart_svg(chart));
  }
}

}  // namespace focus
