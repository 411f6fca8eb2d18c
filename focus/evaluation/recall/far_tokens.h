#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "focus/evaluation/evaluation.h"

// Long-range tokens, and what an attention retains on them.
namespace focus {

/// A token is long-range where dense attention with its whole window predicts it better by more
/// than `margin` than the same model with only the last `context` tokens: the idea of LongPPL (Fang
/// et al. 2024, arXiv 2410.23771), which also cuts the text and reads it again. A window in every
/// layer would measure something else: layers pass on what they saw, so the last one sees `layers`
/// times as far.
///
/// Reading again for each token costs `context` passes; here `step` tokens share one, so that the
/// short context has `context` to context + step - 1 tokens and costs (context + step) / step = 5.
struct FarSettings {
  Index context = 64;
  double margin = 0.5;  // nats

  /// A quarter of the context, as in LongPPL (1,024 of 4,096).
  Index step() const { return std::max<Index>(1, context / 4); }
  /// Windows that overlap so that each scores its last `step` tokens: with `context` to
  /// context + step - 1 tokens before each, or all there are.
  EvalSettings windows() const { return {.context = context + step(), .stride = step()}; }
};

/// Which of the tokens that `dense` scored are long-range: `near` lost more than `margin` more on
/// them. Throws std::invalid_argument where `near` did not score one of them.
std::vector<bool> far_tokens(const TokenLosses& dense, const TokenLosses& near, double margin);

/// One attention: nats per token on long-range tokens and on the others, and the share of the
/// long-range gain that it retains, (window - this) / (window - dense) in nats, on long-range
/// tokens and on all. Without a value: there are no such tokens, or no gain.
struct FarFigures {
  std::optional<double> nats_far = {}, nats_others = {}, kept_far = {}, kept_all = {};

  void visit(auto&& f) { FOCUS_MEMBERS(f, nats_far, nats_others, kept_far, kept_all); }
};
struct FarRow {
  AttentionLabel attention;
  FarFigures figures = {};

  void visit(auto&& f) {
    attention.visit(f);
    figures.visit(f);
  }
};

struct FarReport {
  FarSettings settings = {};
  std::string reference = {};  // whose long-range tokens they are; empty: the model's own
  std::int64_t tokens = 0;     // scored
  std::int64_t far = 0;
  std::string window = {};  // the attention that reads nothing far
  std::vector<FarRow> rows = {};

  double share() const { return static_cast<double>(far) / static_cast<double>(tokens); }

  void visit(auto&& f) {
    Index step = settings.step();
    FOCUS_MEMBERS(f, reference, settings.context, step, settings.margin, tokens, far, window, rows);
  }
};

/// What a row of an evaluation scored, token by token.
struct RowLosses {
  AttentionLabel attention;
  TokenLosses losses = {};
};

/// Rows that all scored the same tokens; `near`: with the short context.
FarReport far_report(std::span<const RowLosses> rows, const RowLosses& dense,
                     const RowLosses& window, const TokenLosses& near, const FarSettings& settings);

/// The same for texts: computes the short context, and dense attention and the window, which are
/// before and after the rows where they are not among them. With `reference` the long-range tokens,
/// dense attention and the window are that model's, under its name. Throws as require_comparable().
FarReport measure_far(LoadedModel& model, std::span<const EvalText> texts,
                      const EvalSettings& settings, const FarSettings& far,
                      std::vector<RowLosses> rows, Ranks& ranks = one_process(),
                      LoadedModel* reference = nullptr);

}  // namespace focus
