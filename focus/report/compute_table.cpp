#include "focus/report/compute_table.h"

#include <fmt/format.h>

namespace focus {

void compare_computes(std::span<const RowLosses> losses, std::size_t computes,
                      std::vector<EvaluationRow>& rows) {
  const std::size_t attentions = rows.size() / computes;
  for (std::size_t i = attentions; i < rows.size(); ++i) {
    const auto [mean, error] =
        paired_difference(losses[i].losses.nats, losses[i % attentions].losses.nats);
    rows[i].against_compute = {
        .compute = rows[0].compute, .difference = mean, .difference_error = error};
  }
}

Table compute_table(std::size_t computes, const std::vector<EvaluationRow>& rows) {
  const std::size_t attentions = rows.size() / computes;
  const std::string& first = rows[0].compute;
  Table table{.caption = fmt::format("Perplexity by compute, and nats a token against {}, with the "
                                     "standard error over tokens",
                                     first),
              .header = {"attention", "routing", first}};
  for (std::size_t i = attentions; i < rows.size(); i += attentions)
    table.header.insert(table.header.end(), {rows[i].compute, "nats", "error"});
  for (std::size_t a = 0; a < attentions; ++a) {
    std::vector<std::string>& cells = table.rows.emplace_back(
        std::vector{rows[a].attention.name, rows[a].attention.routing_text(),
                    fmt::format("{:.5f}", rows[a].perplexity)});
    for (std::size_t i = a + attentions; i < rows.size(); i += attentions)
      cells.insert(cells.end(), {fmt::format("{:.5f}", rows[i].perplexity),
                                 fmt::format("{:+.3g}", rows[i].against_compute->difference),
                                 fmt::format("{:.2g}", rows[i].against_compute->difference_error)});
  }
  return table;
}

}  // namespace focus
