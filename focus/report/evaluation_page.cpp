#include "focus/report/evaluation_page.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "autograd/base/check.h"
#include "focus/evaluation/attention_row.h"
#include "focus/report/charts.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

/// A share that may be null: of no gain nothing can be kept.
std::string percent_of(const Json& share) {
  return share.is_number() ? percent_text(share.get<double>()) : "-";
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

/// The row of an evaluation or of its far tokens or answers that is of the attention of `wanted`.
const Json* row_like(const Json& rows, const Json& wanted) {
  for (const Json& row : rows)
    if (same_attention(row, wanted)) return &row;
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
      percent_text(worse), near, all,
      worse >= 0.1 ? "this text asks for what stands far before."
                   : "this text asks for little beyond near tokens, so what follows says little "
                     "about groups.");
}

std::string recall_finding(const Json& eval) {
  std::vector<std::string> parts;
  const Json& recall = eval.at("recall");
  for (const Json& row : recall.at("rows"))
    parts.push_back(fmt::format("{} {}", row.at("attention").get<std::string>(),
                                percent_text(row.at("right"))));
  if (parts.empty()) return "";
  const Json& buckets = recall.at("rows")[0].at("by_distance");
  return fmt::format("Asked {} times for what stands up to {} tokens before, these are right: {}.",
                     recall.at("rows")[0].at("answers").get<std::int64_t>(),
                     buckets.empty() ? 0 : buckets.back().at("to").get<std::int64_t>(),
                     joined(parts));
}

std::string far_tokens_text(const Json& far) {
  return fmt::format(
      "{} of {} tokens ({}) that more than {} tokens of context make better by more "
      "than {} nats",
      far.at("far").get<std::int64_t>(), far.at("tokens").get<std::int64_t>(),
      percent_text(far.at("far").get<double>() / far.at("tokens").get<double>()),
      far.at("context").get<std::int64_t>(), far.at("margin").get<double>());
}

/// Of the rows that read groups and leave pairs out, that of least perplexity; null where there is
/// none.
const Json* best_sparse(const Json& rows) {
  const Json* best = nullptr;
  for (const Json& row : rows) {
    const std::string kind = row.value("kind", "");
    if ((kind != "hard" && kind != "summary") || !row.value("causal", true) ||
        row.at("pairs_attended") > 0.995)
      continue;
    if (best == nullptr || row.at("perplexity") < best->at("perplexity")) best = &row;
  }
  return best;
}

std::string sparse_finding(const Json& eval) {
  const Json none = Json::array();
  const Json& rows = eval.contains("rows") ? eval.at("rows") : none;
  const Json* dense = row_of(rows, "dense");
  const Json* best = best_sparse(rows);
  if (dense == nullptr || best == nullptr)
    return eval.contains("far") ? fmt::format("Far are {}.", far_tokens_text(eval.at("far"))) : "";
  const std::string name = best->at("attention");
  std::string text = fmt::format(
      "Of the attentions that read groups and leave pairs out, {} does best: perplexity {:+.1f} % "
      "against dense at {} of the pairs",
      name,
      100 * (best->at("perplexity").get<double>() / dense->at("perplexity").get<double>() - 1),
      percent_text(best->at("pairs_attended")));
  if (eval.contains("recall"))
    if (const Json* row = row_like(eval.at("recall").at("rows"), *best))
      text += fmt::format(", {} of the answers right", percent_text(row->at("right")));
  if (eval.contains("far"))
    if (const Json* row = row_like(eval.at("far").at("rows"), *best))
      text += fmt::format(", and it keeps {} of what the window loses on {}",
                          percent_of(row->at("kept_far")), far_tokens_text(eval.at("far")));
  return text + ".";
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
    std::vector<std::string> cells = {name, percent_text(row.at("right"))};
    for (const Json& bucket : row.at("by_distance")) {
      if (table.rows.empty())
        table.header.push_back(fmt::format("{} to {}", bucket.at("from").get<std::int64_t>(),
                                           bucket.at("to").get<std::int64_t>()));
      cells.push_back(percent_text(bucket.at("right")));
      chart.add(name, true, {bucket.at("to"), 100 * bucket.at("right").get<double>(), ""});
    }
    table.rows.push_back(std::move(cells));
  }
  report.table(table);
  // One distance alone is no curve.
  if (table.header.size() > 3) report.figure(points_chart_svg(chart));
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

/// Of every attention that has a causal row at all lengths, its perplexity by length.
LineChart length_chart(const Json& lengths) {
  LineChart chart{.title = "Perplexity by context",
                  .x_label = "tokens of a window",
                  .y_label = "perplexity",
                  .log_x = true};
  for (const Json& one : lengths)
    for (std::size_t i = 0; i < one.at("rows").size(); ++i) {
      const Json& row = one.at("rows")[i];
      if (i == chart.series.size()) chart.series.push_back({.name = row.at("attention")});
      chart.series[i].points.emplace_back(one.at("context").get<double>(),
                                          row.at("perplexity").get<double>());
    }
  return chart;
}

std::string length_finding(const Json& lengths) {
  std::vector<std::string> parts;
  const auto worse = [](const Json& one, std::size_t i) {
    const Json* dense = row_of(one.at("rows"), "dense");
    const double more =
        one.at("rows")[i].at("perplexity").get<double>() / dense->at("perplexity").get<double>() -
        1;
    return fmt::format("{:+.1f} % at {} tokens", 100 * more, one.at("context").get<std::int64_t>());
  };
  const Json& rows = lengths.front().at("rows");
  if (lengths.size() < 2 || row_of(rows, "dense") == nullptr) return "";
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].at("kind") != "dense")
      parts.push_back(fmt::format("{} {} and {}", rows[i].at("attention").get<std::string>(),
                                  worse(lengths.front(), i), worse(lengths.back(), i)));
  if (parts.empty()) return "";
  return fmt::format("Perplexity against dense attention at the same length: {}.",
                     fmt::join(parts, "; "));
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
                         "pairs attended", "choosing", "largest group"}};
  PointsChart chart{.title = "Perplexity against the share of pairs kept",
                    .x_label = "share of causal pairs attended, %",
                    .y_label = "perplexity"};
  std::optional<StackedBars> bars;
  for (const Json& row : eval.at("rows")) {
    const AttentionRow attention = read_attention_row(row, path);
    const double perplexity = row.at("perplexity"),
                 pairs = 100 * row.at("pairs_attended").get<double>();
    table.rows.push_back(
        {attention.name, attention.routing_text(), fmt::format("{:.4f}", perplexity),
         fmt::format("{:.5f}", row.at("bits_per_byte").get<double>()),
         fmt::format("{}", row.at("tokens_scored").get<std::int64_t>()),
         fmt::format("{:.1f} %", pairs), percent_text(row.value("pairs_choosing", 0.0)),
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

/// Whether two evaluations are of the same base on the same tokens and questions, and rows of the
/// same name have the same perplexity: adapters of one base.
bool fit(const Json& one, const Json& other) {
  if (!one.is_object() || !other.is_object() || !one.contains("rows") || !other.contains("rows"))
    return false;
  const auto agree = [&](const Json& a, const Json& b, std::initializer_list<const char*> keys) {
    return std::ranges::all_of(
        keys, [&](const char* key) { return a.value(key, Json()) == b.value(key, Json()); });
  };
  const auto part = [](const Json& eval, const char* name) { return eval.value(name, Json({})); };
  if (!agree(one, other, {"model", "texts", "bytes", "context", "stride", "compute"}) ||
      one.contains("recall") != other.contains("recall") ||
      one.contains("far") != other.contains("far") ||
      !agree(part(one, "recall"), part(other, "recall"), {"questions", "documents"}) ||
      !agree(part(one, "far"), part(other, "far"), {"context", "margin", "window", "tokens"}))
    return false;
  return std::ranges::all_of(other.at("rows"), [&](const Json& row) {
    const Json* known = row_like(one.at("rows"), row);
    return known == nullptr || known->at("perplexity") == row.at("perplexity");
  });
}

void append_rows(Json& rows, const Json& more) {
  for (const Json& row : more)
    if (row_like(rows, row) == nullptr) rows.push_back(row);
}

/// An evaluation at several lengths as one at the longest.
Json at_longest(Json eval) {
  eval.update(Json(eval.at("lengths").back()));
  eval.erase("lengths");
  return eval;
}

}  // namespace

std::vector<ReadEvaluation> joined_evaluations(const std::vector<ReadEvaluation>& evals) {
  std::vector<ReadEvaluation> joined;
  for (const ReadEvaluation& eval : evals) {
    const auto same = std::ranges::find_if(
        joined, [&](const ReadEvaluation& one) { return fit(one.figures, eval.figures); });
    if (same == joined.end()) {
      joined.push_back(eval);
      continue;
    }
    Json& figures = same->figures;
    append_rows(figures.at("rows"), eval.figures.at("rows"));
    for (const char* part : {"recall", "far"})
      if (figures.contains(part))
        append_rows(figures.at(part).at("rows"), eval.figures.at(part).at("rows"));
  }
  return joined;
}

namespace {

/// Whether a row stands beside another of its attention in another compute.
bool in_several_computes(const Json& row) { return row.contains("against_compute"); }

}  // namespace

Table perplexity_by_length(const Json& lengths) {
  Table table{.caption = "Perplexity by context (pairs attended)", .header = {"attention"}};
  const Json& rows = lengths.at(0).at("rows");
  const bool by_compute = std::ranges::any_of(rows, in_several_computes);
  for (const Json& row : rows)
    table.rows.push_back({row.at("attention").get<std::string>() +
                          (by_compute ? ", " + row.at("compute").get<std::string>() : "")});
  for (const Json& one : lengths) {
    table.header.push_back(fmt::format("{}", one.at("context").get<std::int64_t>()));
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const Json& row = one.at("rows").at(i);
      table.rows[i].push_back(fmt::format("{:.4f} ({:.0f} %)", row.at("perplexity").get<double>(),
                                          100 * row.at("pairs_attended").get<double>()));
    }
  }
  return table;
}

Table overview(const Json& eval) {
  Table table{.header = {"attention", "perplexity", "pairs attended"}};
  const auto column = [&](const char* part, const char* key, const char* header, auto&& text) {
    if (!eval.contains(part)) return;
    table.header.emplace_back(header);
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const Json* row = row_like(eval.at(part).at("rows"), eval.at("rows")[i]);
      table.rows[i].push_back(row == nullptr || !row->at(key).is_number() ? "-"
                                                                          : text(row->at(key)));
    }
  };
  for (const Json& row : eval.at("rows"))
    table.rows.push_back({row.at("attention"),
                          fmt::format("{:.4f}", row.at("perplexity").get<double>()),
                          percent_text(row.at("pairs_attended"))});
  column("recall", "right", "right answers", percent_text);
  column("far", "nats_far", "nats, far tokens",
         [](double nats) { return fmt::format("{:.4f}", nats); });
  column("far", "kept_far", "kept, far", percent_text);
  column("far", "kept_all", "kept, all", percent_text);
  return table;
}

std::vector<std::string> findings(const Json& eval) {
  std::vector<std::string> sentences;
  if (!eval.is_object()) return sentences;
  if (eval.contains("lengths")) {
    sentences = findings(at_longest(eval));
    if (const std::string text = length_finding(eval.at("lengths")); !text.empty())
      sentences.insert(sentences.begin(), text);
    return sentences;
  }
  if (eval.contains("rows")) sentences.push_back(window_finding(eval));
  if (eval.contains("recall")) sentences.push_back(recall_finding(eval));
  if (eval.contains("rows") || eval.contains("far")) sentences.push_back(sparse_finding(eval));
  std::erase(sentences, "");
  return sentences;
}

void add_evaluation(HtmlReport& report, const Json& eval, const std::string& where) {
  if (eval.is_object() && eval.contains("lengths")) {
    report.heading("Length");
    report.table(perplexity_by_length(eval.at("lengths")));
    report.figure(line_chart_svg(length_chart(eval.at("lengths"))));
    return add_evaluation(report, at_longest(eval), where);
  }
  if (!eval.is_object() || !eval.contains("rows"))
    fail("{}: not what focus eval --json writes", where);
  if (std::ranges::any_of(eval.at("rows"), in_several_computes))
    fail("{}: an evaluation in several computes has no page: run focus eval with one", where);
  if (!eval.at("rows").empty() && (eval.contains("recall") || eval.contains("far"))) {
    report.heading("In short");
    report.table(overview(eval));
  }
  if (!eval.at("rows").empty()) add_perplexity(report, eval, where);
  if (eval.contains("recall")) add_recall(report, eval.at("recall"));
  if (eval.contains("far")) add_far(report, eval.at("far"));
  add_positions(report, eval.at("rows"));
}

}  // namespace focus
