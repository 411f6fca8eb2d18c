#include "focus/evaluation/report/forgetting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "focus/evaluation/report/charts.h"

namespace focus {
namespace {

/// "LoRA" and "r=4, lr=0.001" of "LoRA, r=4, lr=0.001": what was swept is one series.
std::pair<std::string, std::string> split_name(const std::string& run) {
  for (std::size_t at = run.find(", "); at != std::string::npos; at = run.find(", ", at + 2)) {
    const std::size_t end = std::min(run.find(", ", at + 2), run.size());
    if (run.substr(at, end - at).find('=') != std::string::npos)
      return {run.substr(0, at), run.substr(at + 2)};
  }
  return {run, ""};
}

std::string label_of(const ForgettingPoint& point) {
  std::string swept = split_name(point.run).second;
  if (point.attention == "dense") return swept;
  return swept.empty() ? point.attention : fmt::format("{}, {}", swept, point.attention);
}

}  // namespace

std::vector<ForgettingPoint> forgetting_points(const std::vector<CompareGroup>& groups,
                                               const std::string& target,
                                               const std::string& source) {
  std::vector<ForgettingPoint> points;
  for (const CompareGroup& learnt : groups) {
    if (learnt.split != target || !learnt.attention.causal) continue;
    const auto kept = std::ranges::find_if(groups, [&](const CompareGroup& g) {
      return g.split == source && g.run == learnt.run &&
             g.attention.name == learnt.attention.name &&
             g.attention.routing_text() == learnt.attention.routing_text();
    });
    if (kept == groups.end()) continue;
    points.push_back({.run = learnt.run,
                      .attention = learnt.attention.name,
                      .target = std::log(learnt.mean),
                      .source = std::log(kept->mean),
                      .is_base = learnt.attention.kind == "dense" && learnt.method == "retrofit"});
  }
  return points;
}

void add_forgetting(HtmlReport& page, const std::vector<CompareGroup>& groups,
                    const std::string& target, const std::string& source) {
  const auto points = forgetting_points(groups, target, source);
  if (points.empty()) return;
  const auto base = std::ranges::find(points, true, &ForgettingPoint::is_base);
  page.heading(target == "target" ? "Learning and forgetting"
                                  : "Learning and forgetting, test texts");
  page.paragraph(
      "Loss on the target texts against loss on the source texts, in nats per token (logarithm of "
      "the mean perplexity): points further left have learnt more, points higher have forgotten "
      "more. The line shows the base before training.");
  PointsChart chart{.title = fmt::format("Target loss against source loss ({})", target),
                    .x_label = "loss on the target, nats per token",
                    .y_label = "loss on the source"};
  Table table{.header = {"run", "attention", "target", "source", "learnt", "forgotten"}};
  if (base != points.end()) chart.references.push_back({.label = "base", .y = base->source});
  for (const ForgettingPoint& point : points) {
    if (point.is_base && &point != &*base) continue;  // every retrofit has the same one
    chart.add(point.is_base ? "base" : split_name(point.run).first, false,
              {point.target, point.source, point.is_base ? "base" : label_of(point)});
    const auto change = [&](double ForgettingPoint::*loss, double sign) {
      return base == points.end()
                 ? "-"
                 : fmt::format("{:+.4f}", sign * (point.*loss - (*base).*loss) + 0.0);  // no -0
    };
    table.rows.push_back({point.is_base ? "base" : point.run, point.attention,
                          fmt::format("{:.4f}", point.target), fmt::format("{:.4f}", point.source),
                          change(&ForgettingPoint::target, -1),
                          change(&ForgettingPoint::source, 1)});
  }
  page.figure(points_chart_svg(chart));
  page.table(table);
}

}  // namespace focus
