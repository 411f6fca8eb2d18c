#include "apps/report/evaluation_page.h"

#include <cmath>
#include <optional>

#include "apps/report/charts.h"
#include "autograd/check.h"
#include "focus/train/attention_row.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

/// A share that may be null: of no gain nothing can be kept.
std::string percent_of(const Json& share) {
  return share.is_number() ? percent(share.get<double>()) : "-";
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

const Json* row_of(const Json& rows, std::string_view kind) {
  for (const Json& row : rows)
    if (row.value("kind", "") == kind) return &row;
  return nullptr;
}

std::string window_finding(const Json& eval) {
  const Json* dense = row_of(eval.at("rows"), "dense");
  const Json* local = row_of(eval.at("rows"), "local");
  if (dense == nullptr || local == nullptr) return "";
  const double near = local->at("perplexity"), all = dense->at("perplexity");
  const double worse = near / all - 1;
  return fmt::format(
      "With the local window alone the model is {} worse than with dense attention (perplexity "
      "{:.3f} against {:.3f}): {}",
      percent(worse), near, all,
      worse >= 0.1 ? "this text asks for what stands far before."
                   : "this text asks for little beyond near tokens, so what follows says little "
                     "about groups.");
}

std::string recall_finding(const Json& eval) {
  std::vector<std::string> parts;
  const Json& recall = eval.at("recall");
  for (const Json& row : recall.at("rows"))
    parts.push_back(fmt::format("{} gives {} right", row.at("attention").get<std::string>(),
                                percent(row.at("right"))));
  if (parts.empty()) return "";
  const Json& buckets = recall.at("rows")[0].at("by_distance");
  return fmt::format("Asked {} times for what stands up to {} tokens before, {}.",
                     recall.at("rows")[0].at("answers").get<std::int64_t>(),
                     buckets.empty() ? 0 : buckets.back().at("to").get<std::int64_t>(),
                     joined(parts));
}

std::string far_finding(const Json& eval) {
  const Json& far = eval.at("far");
  std::vector<std::string> parts;
  for (const Json& row : far.at("rows")) {
    const std::string name = row.at("attention");
    if (name == "dense" || name == far.at("window") || !row.at("kept_far").is_number()) continue;
    parts.push_back(fmt::format("{} keeps {}", name, percent(row.at("kept_far"))));
  }
  const std::string marked = fmt::format(
      "{} of {} tokens ({}) are predicted better by more than {} nats for what stands "
      "more than {} tokens before",
      far.at("far").get<std::int64_t>(), far.at("tokens").get<std::int64_t>(),
      percent(far.at("far").get<double>() / far.at("tokens").get<double>()),
      far.at("margin").get<double>(), far.at("context").get<std::int64_t>());
  if (parts.empty()) return marked + ".";
  return fmt::format("{}; of what they gain by it {}.", marked, joined(parts));
}

void add_recall(HtmlReport& report, const Json& recall) {
  report.heading("Recall: " + recall.at("questions").get<std::string>());
  report.paragraph(
      "Answers that stand word for word far before. Right: each token of the answer is the "
      "likeliest after the text up to it. Distances are in tokens.");
  Table table{.header = {"attention", "all"}};
  PointsChart chart{.title = "Right answers by distance",
                    .x_label = "distance, tokens, up to",
                    .y_label = "right, %"};
  for (const Json& row : recall.at("rows")) {
    const std::string name = row.at("attention");
    std::vector<std::string> cells = {name, percent(row.at("right"))};
    for (const Json& bucket : row.at("by_distance")) {
      if (table.rows.empty())
        table.header.push_back(fmt::format("{} to {}", bucket.at("from").get<std::int64_t>(),
                                           bucket.at("to").get<std::int64_t>()));
      cells.push_back(percent(bucket.at("right")));
      chart.add(name, true, {bucket.at("to"), 100 * bucket.at("right").get<double>(), ""});
    }
    table.rows.push_back(std::move(cells));
  }
  report.table(table);
  if (!table.rows.empty()) report.figure(points_chart_svg(chart));
}

void add_far(HtmlReport& report, const Json& far) {
  report.heading("Far tokens");
  report.paragraph(fmt::format(
      "{} of {} tokens are far: dense attention beats itself with {} to {} tokens of context by "
      "more than {} nats. Kept: the share of the gain of distance, (window - row) / (window - "
      "dense) in nats; the window is {}.",
      far.at("far").get<std::int64_t>(), far.at("tokens").get<std::int64_t>(),
      far.at("context").get<std::int64_t>(),
      far.at("context").get<std::int64_t>() + far.at("step").get<std::int64_t>() - 1,
      far.at("margin").get<double>(), far.at("window").get<std::string>()));
  Table table{.header = {"attention", "nats on far tokens", "on the others", "kept, far tokens",
                         "kept, all tokens"}};
  const auto nats = [](const Json& value) {
    return value.is_number() ? fmt::format("{:.4f}", value.get<double>()) : "-";
  };
  for (const Json& row : far.at("rows"))
    table.rows.push_back({row.at("attention"), nats(row.at("nats_far")),
                          nats(row.at("nats_others")), percent_of(row.at("kept_far")),
                          percent_of(row.at("kept_all"))});
  report.table(table);
}

void add_positions(HtmlReport& report, const Json& rows) {
  LineChart chart{.title = "Loss by how much of its window stands before a token",
                  .x_label = "tokens before",
                  .y_label = "nats per token",
                  .log_x = true};
  for (const Json& row : rows) {
    Series series{.name = row.at("attention")};
    for (const Json& bucket : row.value("by_position", Json::array()))
      series.points.emplace_back(
          std::sqrt(bucket.at("from").get<double>() * bucket.at("to").get<double>()),
          bucket.at("nats_per_token").get<double>());
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  if (!chart.series.empty()) report.figure(line_chart_svg(chart));
}

StackedBars group_sizes(const Json& row) {
  StackedBars bars{.title = "Group sizes by layer (tokens by their highest assignment)"};
  for (const Json& sizes : row.at("group_sizes"))
    bars.rows.emplace_back(fmt::format("layer {}", bars.rows.size()),
                           sizes.get<std::vector<double>>());
  if (!bars.rows.empty())
    for (std::size_t g = 0; g < bars.rows[0].second.size(); ++g)
      bars.segment_names.push_back(fmt::format("group {}", g));
  return bars;
}

void add_perplexity(HtmlReport& report, const Json& eval, const std::string& path) {
  report.heading("Perplexity: " + eval.at("model").get<std::string>());
  report.paragraph(fmt::format(
      "{} text(s), {} bytes; tokenizer {} {}; context {}, stride {}, compute {}. A figure with "
      "sequence routing is not "
      "causal: each token's groups depend on later tokens.",
      eval.at("texts").size(), eval.at("bytes").get<std::int64_t>(),
      eval.at("tokenizer").at("kind").get<std::string>(),
      eval.at("tokenizer").at("fingerprint").get<std::string>(),
      eval.at("context").get<std::int64_t>(), eval.at("stride").get<std::int64_t>(),
      eval.value("compute", "float32")));
  Table table{.header = {"attention", "routing", "perplexity", "bits/byte", "tokens",
                         "pairs attended", "largest group"}};
  PointsChart chart{.title = "Perplexity against the share of pairs kept",
                    .x_label = "share of causal pairs attended, %",
                    .y_label = "perplexity"};
  std::optional<StackedBars> bars;
  for (const Json& row : eval.at("rows")) {
    const AttentionRow attention = read_attention_row(row, path);
    const double perplexity = row.at("perplexity"),
                 pairs = 100 * row.at("pairs_attended").get<double>();
    table.rows.push_back({attention.name, attention.routing_text(),
                          fmt::format("{:.4f}", perplexity),
                          fmt::format("{:.5f}", row.at("bits_per_byte").get<double>()),
                          fmt::format("{}", row.at("tokens_scored").get<std::int64_t>()),
                          fmt::format("{:.1f} %", pairs),
                          attention.has_groups()
                              ? fmt::format("{:.1f} %", 100 * row.at("largest_group").get<double>())
                              : "-"});
    if (!attention.causal) continue;
    // A line for each way to run hard attention, its points the k's; single points for the rest.
    if (attention.kind == "dense")
      chart.references.push_back({.label = "dense", .y = perplexity});
    else if (attention.kind == "hard")
      chart.add(attention.keeps_affinity ? "hard, affinity kept on its pairs" : "hard", true,
                {pairs, perplexity, fmt::format("k={}", attention.top_k)});
    else
      chart.add(attention.kind == "local" ? "local window only" : attention.name, false,
                {pairs, perplexity, attention.name});
    if (attention.kind == "soft" && !bars) bars = group_sizes(row);
  }
  report.table(table);
  if (!chart.series.empty()) report.figure(points_chart_svg(chart));
  if (bars) report.figure(stacked_bars_svg(*bars));
}

}  // namespace

std::vector<std::string> findings(const Json& eval) {
  std::vector<std::string> sentences;
  if (!eval.is_object()) return sentences;
  if (eval.contains("rows")) sentences.push_back(window_finding(eval));
  if (eval.contains("recall")) sentences.push_back(recall_finding(eval));
  if (eval.contains("far")) sentences.push_back(far_finding(eval));
  std::erase(sentences, "");
  return sentences;
}

void add_evaluation(HtmlReport& report, const Json& eval, const std::string& where) {
  if (!eval.is_object() || !eval.contains("rows"))
    fail("{}: not what focus eval --json writes", where);
  if (!eval.at("rows").empty()) add_perplexity(report, eval, where);
  if (eval.contains("recall")) add_recall(report, eval.at("recall"));
  if (eval.contains("far")) add_far(report, eval.at("far"));
  add_positions(report, eval.at("rows"));
}

}  // namespace focus
