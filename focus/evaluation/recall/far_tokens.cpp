#include "focus/evaluation/recall/far_tokens.h"

#include <algorithm>
#include <cmath>

#include "autograd/base/check.h"

namespace focus {
namespace {

/// The mean over the long-range tokens, or over the others.
std::optional<double> mean_where(std::span<const double> nats, const std::vector<bool>& far,
                                 bool is_far) {
  double sum = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < nats.size(); ++i)
    if (far[i] == is_far) {
      sum += nats[i];
      ++count;
    }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

std::optional<double> kept_share(std::optional<double> window, std::optional<double> dense,
                                 std::optional<double> row) {
  if (!window || !(*window > *dense)) return std::nullopt;
  return (*window - *row) / (*window - *dense);
}

/// The attention that reads nothing far: the local window and first tokens of the model's Focus, or
/// a window as wide as the short context.
AttentionSpec window_of(const LoadedModel& model, const FarSettings& settings) {
  if (model.focus() == nullptr)
    return parse_attention(fmt::format("sink_window:{}", settings.context));
  const FocusConfig& config = model.focus()->config();
  return parse_attention(
      fmt::format("sink_window:{}:sinks={}", config.local_window, config.summary.sinks));
}

}  // namespace

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
  const std::vector<bool> all(far.size(), true);
  FarReport report{.settings = settings,
                   .tokens = static_cast<std::int64_t>(far.size()),
                   .far = std::ranges::count(far, true),
                   .window = window.attention.name};
  for (const RowLosses& row : rows) {
    check(row.losses.nats.size() == far.size(), "long-range tokens: {} scored {} tokens, dense {}",
          row.attention.name, row.losses.nats.size(), far.size());
    const auto kept = [&](const std::vector<bool>& where) {
      const auto mean = [&](const RowLosses& of) {
        return mean_where(of.losses.nats, where, true);
      };
      return kept_share(mean(window), mean(dense), mean(row));
    };
    report.rows.push_back({.attention = row.attention,
                           .figures = {.nats_far = mean_where(row.losses.nats, far, true),
                                       .nats_others = mean_where(row.losses.nats, far, false),
                                       .kept_far = kept(far),
                                       .kept_all = kept(all)}});
  }
  return report;
}

FarReport measure_far(LoadedModel& model, std::span<const EvalText> texts,
                      const EvalSettings& settings, const FarSettings& far,
                      std::vector<RowLosses> rows, Ranks& ranks, LoadedModel* reference) {
  if (reference != nullptr) require_comparable(*reference, model);
  LoadedModel& measured = reference != nullptr ? *reference : model;
  const std::string of = reference != nullptr ? reference->where + ": " : "";
  // The index of an attention's row; a missing row is added at one end.
  const auto place_of = [&](const AttentionSpec& spec, bool in_front) {
    RowLosses row{.attention = ActiveAttention(measured, spec).label()};
    row.attention.name = of + row.attention.name;
    const auto found = std::ranges::find(rows, row.attention.name,
                                         [](const RowLosses& r) { return r.attention.name; });
    if (found != rows.end()) return found - rows.begin();
    evaluate(measured, spec, texts, settings, {.losses = &row.losses, .ranks = &ranks});
    const auto place = rows.insert(in_front ? rows.begin() : rows.end(), std::move(row));
    return place - rows.begin();
  };
  const auto dense = static_cast<std::size_t>(place_of({.kind = AttentionKind::dense}, true));
  const auto window = static_cast<std::size_t>(place_of(window_of(measured, far), false));
  TokenLosses near;
  const ActiveAttention active(measured, {.kind = AttentionKind::dense});
  evaluate(*measured.decoder, texts, far.windows(), {.losses = &near, .ranks = &ranks});
  FarReport report = far_report(rows, rows[dense], rows[window], near, far);
  if (reference != nullptr) report.reference = reference->where;
  return report;
}

}  // namespace focus
