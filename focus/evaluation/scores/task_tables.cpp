#include <algorithm>

#include "focus/evaluation/row_labels.h"
#include "focus/evaluation/scores/task_scores.h"

namespace focus {
namespace {

std::string with_error(const Estimate& e, int digits, bool signed_value = false) {
  return signed_value ? fmt::format("{:+.{}f} +-{:.{}f}", e.value, digits, e.error, digits)
                      : fmt::format("{:.{}f} +-{:.{}f}", e.value, digits, e.error, digits);
}

/// Where a method cannot differ from dense attention, equal scores are no finding.
std::string inside_sentence(const TaskTable& table) {
  std::string text;
  std::vector<Index> told;
  for (const TaskRow& row : table.rows) {
    if (!row.touches.window || row.items_inside == 0 ||
        std::ranges::count(told, *row.touches.window) > 0)
      continue;
    told.push_back(*row.touches.window);
    text += fmt::format(
        "{:.1f}% of the items fit inside the local window of {}: on them every method with this "
        "window equals the dense model.\n",
        100 * row.items_inside, *row.touches.window);
  }
  return text;
}

}  // namespace

std::string format_task(const TaskTable& table) {
  const auto has = [&](auto member) {
    return std::ranges::any_of(table.rows,
                               [&](const TaskRow& row) { return (row.*member).has_value(); });
  };
  const bool norm = has(&TaskRow::accuracy_norm), perplexity = has(&TaskRow::perplexity);
  const bool fidelity = has(&TaskRow::fidelity);
  std::string text = fmt::format("{}: {} items of {}\n", table.task, table.items, table.file);
  if (table.cut > 0)
    text += fmt::format("{} of them were too long: the beginning of their context was cut\n",
                        table.cut);
  const NameColumns names(table.rows);
  text += fmt::format("\n{} {:>14}", names.line("attention", "routing"), "acc");
  if (norm) text += fmt::format(" {:>14}", "acc_norm");
  if (perplexity) text += fmt::format(" {:>18}", "perplexity");
  text += fmt::format(" {:>7} {:>7}", "touched", "inside");
  if (fidelity)
    text += fmt::format(" {:>6} {:>16} {:>18} {:>16}", "same", "|d log p|", "KL", "acc - dense");
  text += "\n";
  for (const TaskRow& row : table.rows) {
    text +=
        fmt::format("{} {:>14}", names.line(row.name, row.routing), with_error(row.accuracy, 3));
    if (norm) text += fmt::format(" {:>14}", with_error(*row.accuracy_norm, 3));
    if (perplexity) text += fmt::format(" {:>18}", with_error(*row.perplexity, 2));
    text += fmt::format(" {:>6.1f}% {:>6.1f}%", 100 * row.pairs_touched, 100 * row.items_inside);
    if (row.fidelity)
      text +=
          fmt::format(" {:>5.1f}% {:>16} {:>18} {:>16}", 100 * row.fidelity->same_choice.value,
                      with_error(row.fidelity->log_prob_distance, 4),
                      with_error(row.fidelity->kl, 5), with_error(row.fidelity->accuracy, 3, true));
    text += "\n";
  }
  const std::string sentence = inside_sentence(table);
  return sentence.empty() ? text : text + "\n" + sentence;
}

}  // namespace focus
