#include "focus/training/fit.h"

#include <algorithm>

#include "autograd/base/check.h"
#include "data/files/tensor_source.h"
#include "data/tokens/tokenize.h"

namespace focus {

FocusConfig FitSettings::to_focus() const {
  FocusConfig config;
  config.grouping.name = "keys";
  config.training = Training::summary;
  config.num_groups = num_groups;
  config.summary.num_selected_groups = num_selected_groups;
  config.local_window = local_window;
  config.summary.zones.block = block;
  config.summary.zones.sinks = sinks;
  config.keys().fit_tokens = tokens;
  return config;
}

Batches fit_windows(const LoadedModel& model, const std::vector<std::string>& paths,
                    const std::string& separator, Index context) {
  const std::vector<std::filesystem::path> files(paths.begin(), paths.end());
  const TokenFile tokens = tokenize_cached(
      files, model.require_tokenizer(),
      {.document_separator = separator, .ends = model.text_ends(), .cache_dir = {}});
  return Batches(TokenView(tokens),
                 {.batch = 1,
                  .context = context,
                  .shuffle = false,
                  .vocab_size = static_cast<std::int32_t>(model.decoder->config().vocab_size),
                  .window_start = model.window_start()});
}

void fit_focus(Decoder& decoder, FocusModel& focus, const Batches& batches, Index tokens,
               std::uint64_t seed, const FitProgress& progress) {
  check(focus.grouping().can_fit(),
        "fit: groups of {} are not fitted; groups of keys are (focus.grouping keys)",
        focus.grouping().kind());
  const NoGrad guard;
  const FocusShape& shape = focus.shape();
  const Index all = batches.num_windows();
  const Index context = static_cast<Index>(batches.windows(0, 1).ids.size());
  const Index windows = std::min(all, (tokens + context - 1) / context);
  std::vector<Tensor> keys;
  for (Index i = 0; i < shape.num_layers; ++i)
    keys.emplace_back(Shape{windows * context, shape.kv_heads, shape.head_dim});
  Index window = 0;
  const AttachedMechanism collecting(decoder, [&](const MechanismInputs& in) {
    Tensor& of_layer = keys[static_cast<std::size_t>(in.layer)];
    std::ranges::copy(in.k.value().span(), of_layer.data() + window * in.k.value().size());
    return attention(in.q, in.k, in.v, in.options);
  });
  for (; window < windows; ++window) {
    // Spread over the text: its first windows alone may all be of one book.
    const Variable hidden =
        decoder.hidden_states(batches.windows(window * all / windows, 1).ids, 1);
    require_finite(hidden.value().span(), "fit", "hidden states");
    if (progress) progress(window + 1, windows);
  }
  for (Index i = 0; i < shape.num_layers; ++i) {
    require_finite(keys[static_cast<std::size_t>(i)].span(), "fit", "keys");
    focus.grouping().fit(i, keys[static_cast<std::size_t>(i)], seed);
    keys[static_cast<std::size_t>(i)] = {};
  }
}

}  // namespace focus
