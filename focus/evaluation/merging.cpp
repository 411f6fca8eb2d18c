#include "focus/evaluation/merging.h"

#include <algorithm>
#include <cmath>

#include "data/tensors/tensor_source.h"

namespace focus {
namespace {

/// The first `context` tokens of the first text, or random ones without a text.
std::vector<std::int32_t> probe_ids(const LoadedModel& model, const std::vector<EvalText>& texts,
                                    Index context) {
  if (!texts.empty()) {
    const auto& ids = texts[0].ids;
    const auto size = std::min(ids.size(), static_cast<std::size_t>(context));
    return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(size)};
  }
  Rng rng(0);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(context));
  const auto vocab_size = static_cast<std::uint64_t>(model.decoder->config().vocab_size);
  for (auto& id : ids) id = static_cast<std::int32_t>(rng.below(vocab_size));
  return ids;
}

struct DenseFigures {
  Tensor logits;          // of the probe
  double perplexity = 0;  // of the texts, where there are any
};

DenseFigures dense_figures(LoadedModel& model, const std::vector<EvalText>& texts,
                           const EvalSettings& settings, std::string_view state) {
  const NoGrad guard;
  const std::vector<std::int32_t> ids = probe_ids(model, texts, settings.context);
  DenseFigures measured;
  measured.logits = model.decoder->logits(model.decoder->hidden_states(ids, 1)).value();
  require_finite(measured.logits.span(), model.where, state);
  if (!texts.empty())
    measured.perplexity =
        evaluate(model, {.kind = AttentionKind::dense}, texts, settings).perplexity;
  return measured;
}

}  // namespace

MergeComparison merge_and_compare(LoadedModel& model, const std::vector<EvalText>& texts,
                                  const EvalSettings& settings) {
  const DenseFigures before = dense_figures(model, texts, settings, "logits with the adapter");
  model.lora()->merge();
  const DenseFigures after = dense_figures(model, texts, settings, "merged logits");
  MergeComparison merged{.tokens = before.logits.rows(),
                         .perplexity_adapter = before.perplexity,
                         .perplexity_merged = after.perplexity};
  for (Index i = 0; i < before.logits.size(); ++i) {
    const auto beside = static_cast<double>(before.logits[i]);
    merged.largest_logit = std::max(merged.largest_logit, std::abs(beside));
    merged.logit_difference =
        std::max(merged.logit_difference, std::abs(beside - static_cast<double>(after.logits[i])));
  }
  return merged;
}

}  // namespace focus
