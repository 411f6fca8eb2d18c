#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/tokens/batches.h"
#include "focus/method/focus_model.h"
#include "focus/models/model_files.h"

namespace focus {

/// Default tokens per window.
inline constexpr Index kFitContext = 2048;
/// Texts as windows of `context` tokens (0: the least of kFitContext, the model's positions and the
/// text's tokens), in order; JSONL of prompts or messages as windows of documents.
Batches fit_windows(const LoadedModel& model, const std::vector<std::string>& paths,
                    const std::string& separator, Index context);

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
/// are measured then, see measure_needs().
void fit_focus(Decoder& decoder, FocusModel& focus, const Batches& batches, Index tokens,
               std::uint64_t seed, const FitProgress& progress = {});

/// Measures the need of each query head (Grouping::head_needs()): the squared error of its output
/// where all heads select alike, relative to that of dense attention, on dense inputs and some
/// windows of `batches` that fit_focus() has left out, where there are such: it took `fitted`.
void measure_needs(Decoder& decoder, FocusModel& focus, const Batches& batches, Index fitted,
                   const FitProgress& progress = {});

}  // namespace focus
