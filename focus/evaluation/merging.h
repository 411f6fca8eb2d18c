#pragma once

#include "focus/evaluation/evaluation.h"

namespace focus {

/// A model with an adapter beside its weights, and with the adapter folded into them, both with
/// dense attention.
struct MergeComparison {
  double largest_logit = 0, logit_difference = 0;        // of the probe's logits
  Index tokens = 0;                                      // of the probe
  double perplexity_adapter = 0, perplexity_merged = 0;  // of the texts, where there are any
};

/// Folds the model's LoRA into its weights, and compares both on the first text's first context, or
/// on random tokens without a text. Throws std::runtime_error where a logit is not a number.
MergeComparison merge_and_compare(LoadedModel& model, const std::vector<EvalText>& texts,
                                  const EvalSettings& settings);

}  // namespace focus
