#pragma once

#include <span>
#include <string>
#include <vector>

#include "focus/evaluation/evaluation.h"

// Where distance matters, and what an attention keeps of it.
namespace focus {

/// A token is far where dense attention with its whole window before it predicts it better by more
/// than `margin` than the same model with only the last `context` tokens: LongPPL's idea (Fang et
/// al. 2024, arXiv 2410.23771), whose text, too, is cut off and read anew.
///
/// Attention that is local in every layer would be another thing: layers pass on what they saw, so
/// it sees `layers` times as far. To read the text anew for each token costs `context` passes; here
/// `step` tokens share one, so that the short context is of `context` to context + step - 1 tokens
/// and costs (context + step) / step passes: 5 of them.
struct FarSettings {
  Index context = 64;
  double margin = 0.5;  // nats

  /// A quarter of the context, as in LongPPL (1,024 of 4,096).
  Index step() const { return std::max<Index>(1, context / 4); }
};

/// What evaluate() leaves in pass.losses, by the attention that the decoder has, with `context` to
/// context + step - 1 tokens before each token, or all there are.
void short_context_losses(Decoder& decoder, std::span<const EvalText> texts,
                          const FarSettings& settings, const EvalPass& pass);

/// Which of the tokens that `dense` scored are far: `near` scored them, too, and with more than
/// `margin` nats more. Throws std::invalid_argument where it did not.
std::vector<bool> far_tokens(const TokenLosses& dense, const TokenLosses& near, double margin);

/// One attention: nats per token on far tokens, on the others, and the share of the gain of
/// distance that it keeps, (window - this) / (window - dense); NaN where there is no gain.
struct FarRow {
  std::string name;
  std::string routing;
  double far = 0, others = 0;
  double kept = 0;      // on far tokens
  double kept_all = 0;  // on all tokens

  void visit(auto&& f) {
    f("attention", name);
    f("routing", routing);
    f("nats_far", far);
    f("nats_others", others);
    f("kept_far", kept);
    f("kept_all", kept_all);
  }
};

struct FarReport {
  FarSettings settings;
  std::string reference;    // whose far tokens they are; empty: the model's own
  std::int64_t tokens = 0;  // scored
  std::int64_t far = 0;
  std::string window;  // the attention that counts as without distance
  std::vector<FarRow> rows;

  double share() const { return static_cast<double>(far) / static_cast<double>(tokens); }

  void visit(auto&& f) {
    Index step = settings.step();
    f("reference", reference);
    f("context", settings.context);
    f("step", step);
    f("margin", settings.margin);
    f("tokens", tokens);
    f("far", far);
    f("window", window);
    f("rows", rows);
  }
};

/// What a row of an evaluation scored, token by token.
struct RowLosses {
  std::string name;
  std::string routing;
  TokenLosses losses;
};

/// Of rows that all scored the same tokens; `near`: with the short context.
FarReport far_report(std::span<const RowLosses> rows, const RowLosses& dense,
                     const RowLosses& window, const TokenLosses& near, const FarSettings& settings);

/// The same of texts: the short context is computed, and so are dense and the window, which stand
/// before and after the rows where they are not among them. `reference`, where given, is the model
/// whose far tokens they are: its dense attention and its window stand there, under its name.
/// Throws as require_comparable() does.
FarReport measure_far(LoadedModel& model, std::span<const EvalText> texts,
                      const EvalSettings& settings, const FarSettings& far,
                      std::vector<RowLosses> rows, Ranks& ranks = one_process(),
                      LoadedModel* reference = nullptr);

/// The attention without distance: the local window and first tokens of the model's Focus, or a
/// window as wide as the short context.
AttentionSpec window_of(const LoadedModel& model, const FarSettings& settings);

std::string format_far(const FarReport& report);

}  // namespace focus
