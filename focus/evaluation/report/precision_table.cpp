#include "focus/evaluation/report/precision_table.h"

#include <fmt/format.h>

namespace focus {

void compare_precisions(std::span<const RowLosses> losses, std::size_t precisions,
                        std::vector<EvaluationRow>& rows) {
  const std::size_t attentions = rows.size() / precisions;
  for (std::size_t i = attentions; i < rows.size(); ++i) {
    const auto [mean, error] =
        paired_difference(losses[i].losses.nats, losses[i % attentions].losses.nats);
    rows[i].against_precision = {
        .precision = rows[0].precision, .difference = mean, .difference_error = error};
  }
}

Table precision_table(std::size_t precisions, const std::vector<EvaluationRow>& rows) {
  const std::size_t attentions = rows.size() / precisions;
  const std::string& first = rows[0].precision;
  Table table{.caption = fmt::format("Perplexity by precision, and difference to {} in nats per "
                                     "token, with the standard error over tokens",
                                     first),
              .header = {"attention", "routing", first}};
  for (std::size_t i = attentions; i < rows.size(); i += attentions)
    table.header.insert(table.header.end(), {rows[i].precision, "nats", "error"});
  for (std::size_t a = 0; a < attentions; ++a) {
    std::vector<std::string>& cells = table.rows.emplace_back(
        std::vector{rows[a].attention.name, rows[a].attention.routing_text(),
                    fmt::format("{:.5f}", rows[a].perplexity)});
    for (std::size_t i = a + attentions; i < rows.size(); i += attentions)
      cells.insert(cells.end(),
                   {fmt::format("{:.5f}", rows[i].perplexity),
                    fmt::format("{:+.3g}", rows[i].against_precision->difference),
                    fmt::format("{:.2g}", rows[i].against_precision->difference_error)});
  }
  return table;
}

}  // namespace focus
