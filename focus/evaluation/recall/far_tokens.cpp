#include "focus/evaluation/recall/far_tokens.h"

#include <cmath>

#include "autograd/base/check.h"
#include "focus/evaluation/row_labels.h"

namespace focus {
namespace {

/// Mean of the losses that are of far tokens, or of the others.
double mean_where(std::span<const double> nats, const std::vector<bool>& far, bool wanted) {
  double sum = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < nats.size(); ++i)
    if (far[i] == wanted) {
      sum += nats[i];
      ++count;
    }
  return count > 0 ? sum / static_cast<double>(count) : NAN;
}

double mean_of(std::span<const double> nats) {
  return mean_where(nats, std::vector<bool>(nats.size(), true), true);
}

double kept_share(double window, double dense, double row) {
  return window > dense ? (window - row) / (window - dense) : NAN;
}

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f}%", 100 * share) : "-";
}

}  // namespace

void short_context_losses(Decoder& decoder, std::span<const EvalText> texts,
                          const FarSettings& settings, const EvalPass& pass) {
  // Windows that overlap so that each scores its last `step` tokens are these short contexts.
  const Index step = settings.step();
  evaluate(decoder, texts, {.context = settings.context + step, .stride = step}, pass);
}

std::vector<bool> far_tokens(const TokenLosses& dense, const TokenLosses& near, double margin) {
  // Windows without overlap leave out their first tokens, which the short contexts have.
  std::vector<double> of_token(static_cast<std::size_t>(near.tokens), NAN);
  for (std::size_t i = 0; i < near.nats.size(); ++i)
    of_token[static_cast<std::size_t>(near.token[i])] = near.nats[i];
  std::vector<bool> far;
  for (std::size_t i = 0; i < dense.nats.size(); ++i) {
    const auto token = static_cast<std::size_t>(dense.token[i]);
    check(token < of_token.size() && !std::isnan(of_token[token]),
          "long-range tokens: the short context did not score token {}", token);
    far.push_back(of_token[token] - dense.nats[i] > margin);
  }
  return far;
}

FarReport far_report(std::span<const RowLosses> rows, const RowLosses& dense,
                     const RowLosses& window, const TokenLosses& near,
                     const FarSettings& settings) {
  const std::vector<bool> far = far_tokens(dense.losses, near, settings.margin);
  FarReport report{.settings = settings,
                   .reference = {},
                   .tokens = static_cast<std::int64_t>(far.size()),
                   .far = std::ranges::count(far, true),
                   .window = window.name,
                   .rows = {}};
  const auto on_far = [&](const RowLosses& row) { return mean_where(row.losses.nats, far, true); };
  const auto on_all = [](const RowLosses& row) { return mean_of(row.losses.nats); };
  for (const RowLosses& row : rows) {
    check(row.losses.nats.size() == far.size(), "long-range tokens: {} scored {} tokens, dense {}",
          row.name, row.losses.nats.size(), far.size());
    report.rows.push_back({.name = row.name,
                           .routing = row.routing,
                           .far = on_far(row),
                           .others = mean_where(row.losses.nats, far, false),
                           .kept = kept_share(on_far(window), on_far(dense), on_far(row)),
                           .kept_all = kept_share(on_all(window), on_all(dense), on_all(row))});
  }
  return report;
}

FarReport measure_far(LoadedModel& model, std::span<const EvalText> texts,
                      const EvalSettings& settings, const FarSettings& far,
                      std::vector<RowLosses> rows, Ranks& ranks, LoadedModel* reference) {
  if (reference != nullptr) require_comparable(*reference, model);
  LoadedModel& measured = reference != nullptr ? *reference : model;
  const std::string of = reference != nullptr ? reference->where + ": " : "";
  // The row of an attention, which is put at one end where there is none.
  const auto place_of = [&](const AttentionSpec& spec, bool in_front) {
    RowLosses row;
    {
      const ActiveAttention active(measured, spec);
      row = {.name = of + active.name(), .routing = active.routing(), .losses = {}};
    }
    const auto found = std::ranges::find(rows, row.name, &RowLosses::name);
    if (found != rows.end()) return found - rows.begin();
    evaluate(measured, spec, texts, settings, {.losses = &row.losses, .ranks = &ranks});
    const auto place = rows.insert(in_front ? rows.begin() : rows.end(), std::move(row));
    return place - rows.begin();
  };
  const auto dense = static_cast<std::size_t>(place_of({.kind = AttentionKind::dense}, true));
  const auto window = static_cast<std::size_t>(place_of(window_of(measured, far), false));
  TokenLosses near;
  const ActiveAttention active(measured, {.kind = AttentionKind::dense});
  short_context_losses(*measured.decoder, texts, far, {.losses = &near, .ranks = &ranks});
  FarReport report = far_report(rows, rows[dense], rows[window], near, far);
  if (reference != nullptr) report.reference = reference->where;
  return report;
}

AttentionSpec window_of(const LoadedModel& model, const FarSettings& settings) {
  if (model.focus() == nullptr)
    return parse_attention(fmt::format("sink_window:{}", settings.context));
  const FocusConfig& config = model.focus()->config();
  return parse_attention(
      fmt::format("sink_window:{}:sinks={}", config.local_window, config.summary.sinks));
}

std::string format_far(const FarReport& report) {
  const NameColumns names(report.rows);
  std::string table = fmt::format(
      "{} of {} tokens are long-range{} ({:.2f}%): dense attention beats itself with {} to {} "
      "tokens of context by more than {} nats\n\n{} {:>15} {:>10} {:>19} {:>12}\n",
      report.far, report.tokens, report.reference.empty() ? "" : " for " + report.reference,
      100 * report.share(), report.settings.context,
      report.settings.context + report.settings.step() - 1, report.settings.margin,
      names.line("attention", "routing"), "long-range nats", "other nats", "long-range retained",
      "all retained");
  for (const FarRow& row : report.rows)
    table +=
        fmt::format("{} {:>15.4f} {:>10.4f} {:>19} {:>12}\n", names.line(row.name, row.routing),
                    row.far, row.others, percent(row.kept), percent(row.kept_all));
  return table + fmt::format(
                     "\nretained: share of the long-range gain, (window - row) / (window - dense) "
                     "in nats; window: {}\n",
                     report.window);
}

}  // namespace focus
