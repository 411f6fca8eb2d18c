#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/tokens/batches.h"
#include "focus/method/focus_model.h"
#include "focus/models/model_files.h"

namespace focus {

/// `context` with the batch's documents, if its windows consist of documents.
inline ForwardContext pass_over(const Batch& batch, ForwardContext context = {}) {
  if (!batch.documents.empty())
    context.documents = std::make_shared<const std::vector<Index>>(batch.documents);
  return context;
}

/// The number of target tokens.
inline Index count_targets(const Batch& batch) {
  return std::ranges::count_if(batch.targets(), [](std::int32_t target) { return target >= 0; });
}

/// Mean cross-entropy of the target tokens, in nats: [1]. As in transformers with labels of -100
/// for other tokens, position_ids from 0 in each document and separately masked documents.
inline Variable batch_loss(const Decoder& decoder, const Batch& batch,
                           const ForwardContext& context = {}) {
  return decoder.cross_entropy(
      decoder.hidden_states(batch.ids, batch.batch, 0, pass_over(batch, context)), batch.targets());
}

/// Default tokens per window.
inline constexpr Index kFitContext = 2048;
/// Texts as windows of `context` tokens (0: the least of kFitContext, the model's positions and the
/// text's tokens), in order; JSONL of prompts or messages as windows of documents.
Batches fit_windows(const LoadedModel& model, const Texts& texts, const std::string& separator,
                    Index context);

/// Settings of groups of keys, and how they are fitted; the defaults do for any model.
struct FitSettings {
  FocusConfig focus = {};
  Index context = 0;
  std::int64_t seed = 1;

  FitSettings() {
    focus.grouping.name = "keys";
    focus.training = Training::summary;
    focus.num_groups = 32;
    focus.local_window = 32;
  }

  /// Sets K, m, w, B and s for a real model in windows of so many tokens (docs/method.md, "Choosing
  /// K, m and w"); below 1,024 they stay.
  void suit(Index windows);

  template <class F>
  void visit(F&& f) {
    f("num_groups", focus.num_groups,
      "K, groups per key head; where this and the next four are left out they suit the context",
      {1, kMaxKeyGroups});
    f("num_selected_groups", focus.summary.num_selected_groups,
      "m, groups that a query reads exactly, on average over heads; --attention summary:M "
      "overrides it",
      {0, kMaxKeyGroups});
    f("local_window", focus.local_window,
      "w, positions before a query's block that are always read", {0, 1 << 27});
    f("block", focus.summary.block, "queries that share the distant tokens", {1, 1 << 20});
    f("sinks", focus.summary.sinks, "first tokens (attention sinks), always read", {0, kMaxSinks});
    f("tokens", focus.keys().fit_tokens, "tokens on which the centroids are fitted", {64, 1 << 24});
    f("context", context,
      "tokens per window: the longest that will be used, because keys encode positions; 0: 2048, "
      "or the positions of the model or tokens of the text if fewer",
      {0, 1 << 22});
    f("seed", seed, "seed of the initial keys of k-means", {0, 1e18});
  }
};

/// Composes groups of keys onto a model, not fitted yet, in the place of what attends.
FocusModel& attach_groups(LoadedModel& model, const FitSettings& settings);

/// The number of windows that together have this many tokens, or all.
Index windows_for(Index tokens, const Batches& batches);

/// Runs the decoder on a window. Throws std::runtime_error if its output is not finite.
void run_window(Decoder& decoder, const Batches& batches, Index number);

/// Windows done and in all.
using FitProgress = std::function<void(Index done, Index all)>;

/// Fits groups of keys on a frozen base, without a gradient: runs the decoder with dense attention
/// over windows of `batches` until `tokens` keys have been seen, and places each layer's centroids
/// by k-means (Grouping::fit()). Keys are taken as attention sees them, at their positions in the
/// windows: fit with the context that will be used. The keys of all layers are held at once,
/// tokens * layers * kv_heads * head_dim numbers. Deterministic for any number of threads. `focus`
/// must be attached to the decoder; its mode is as before afterwards. Where heads have needs they
/// are measured then. Windows that are held back are not read.
void fit_focus(Decoder& decoder, FocusModel& focus, const Batches& batches, Index tokens,
               std::uint64_t seed, const FitProgress& progress = {},
               std::span<const Index> held_back = {});
/// Fits groups on texts and composes them onto the model.
FocusModel& fit(LoadedModel& model, const Texts& texts, const FitSettings& settings = {},
                const FitProgress& progress = {});
/// Writes a checkpoint file of the adapter alone, for load_adapter().
void write_adapter(const std::filesystem::path& path, Adapter& adapter, const LoadedModel& model);

}  // namespace focus
