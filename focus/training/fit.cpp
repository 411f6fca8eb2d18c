#include "focus/training/fit.h"

#include <omp.h>

#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "data/tensors/tensor_source.h"
#include "data/tokens/tokenize.h"

namespace focus {
namespace {

constexpr Index kNeedTokens = 4096;  // enough for a sum of squares

/// Adds to each query head's sums the squares of a - b, and of b.  a, b [1, seq_len, heads, dim]
void add_squares(const Tensor& a, const Tensor& b, std::span<double> errors,
                 std::span<double> squares) {
  const Index heads = b.dim(2), dim = b.dim(3);
  parallel_chunks(heads, 1, [&](Index head, Index) {
    double error = 0, square = 0;
    for (Index t = 0; t < b.dim(1); ++t)
      for (Index d = 0; d < dim; ++d) {
        const Index at = (t * heads + head) * dim + d;
        const auto of_a = static_cast<double>(a[at]), of_b = static_cast<double>(b[at]);
        error += (of_a - of_b) * (of_a - of_b);
        square += of_b * of_b;
      }
    errors[head] += error;
    squares[head] += square;
  });
}

/// The windows of `batches` but for some, in their order.
std::vector<Index> windows_but(std::span<const Index> some, const Batches& batches) {
  std::vector<Index> others;
  for (Index i = 0; i < batches.num_windows(); ++i)
    if (std::ranges::count(some, i) == 0) others.push_back(i);
  check(!others.empty(), "fit: all {} windows are held back", batches.num_windows());
  return others;
}

/// As many of `all` windows as have so many tokens.
Index windows_of(std::span<const Index> all, Index tokens, const Batches& batches) {
  return std::min(windows_for(tokens, batches), std::ssize(all));
}

/// Measures the need of each query head (Grouping::head_needs()): the squared error of its output
/// where all heads select alike, relative to that of dense attention, on dense inputs and some
/// of the windows that fit_focus() has left out, where there are such: it took `fitted` of `all`.
void measure_needs(Decoder& decoder, FocusModel& focus, const Batches& batches,
                   std::span<const Index> all, Index fitted, const FitProgress& progress) {
  const NoGrad guard;
  const AttentionSpec before = std::exchange(
      focus.mode,
      {.kind = AttentionKind::summary, .summary = {.head_budgets = HeadBudgets::equal}});
  const auto heads = static_cast<std::size_t>(focus.shape().heads);
  const auto layers = static_cast<std::size_t>(focus.shape().num_layers);
  std::vector<double> errors(layers * heads, 0.0), squares = errors;
  const AttachedMechanism measuring(decoder, [&](const MechanismInputs& in) {
    Variable dense = attention(in.q, in.k, in.v, in.options);
    const Variable sparse = focus.attend(in);
    const auto of_layer = static_cast<std::size_t>(in.layer) * heads;
    add_squares(sparse.value(), dense.value(), std::span(errors).subspan(of_layer, heads),
                std::span(squares).subspan(of_layer, heads));
    return dense;
  });
  const Index windows = windows_of(all, kNeedTokens, batches);
  for (Index i = 0; i < windows; ++i) {
    // Between those that were fitted on.
    const Index fit = (2 * i + 1) * fitted / (2 * windows);
    const Index next = fit * std::ssize(all) / std::max<Index>(1, fitted) + 1;
    run_window(decoder, batches, all[std::min(next, std::ssize(all) - 1)]);
    if (progress) progress(i + 1, windows);
  }
  focus.mode = before;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    Tensor& needs = *focus.grouping().head_needs(static_cast<Index>(layer));
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t at = layer * heads + head;
      needs.data()[head] = squares[at] > 0 ? static_cast<Real>(errors[at] / squares[at]) : Real(0);
    }
  }
}

}  // namespace

Batches fit_windows(const LoadedModel& model, const Texts& texts, const std::string& separator,
                    Index context) {
  const TokenFile tokens = tokenize_texts(texts, model.require_tokenizer(),
                                          {.document_separator = separator,
                                           .ends = model.text_ends(),
                                           .cache_dir = {},
                                           .examples = example_format(model, {})});
  if (context == 0)
    context = std::min({kFitContext, model.decoder->config().max_position_embeddings,
                        static_cast<Index>(tokens.size())});
  return Batches(TokenView(tokens),
                 {.batch = 1,
                  .context = context,
                  .shuffle = false,
                  .vocab_size = static_cast<std::int32_t>(model.decoder->config().vocab_size),
                  .window_start = model.window_start()});
}

void FitSettings::suit(Index windows) {
  if (windows < 1024) return;
  focus.num_groups = windows < 2048 ? 64 : windows < 8192 ? 128 : 256;
  focus.summary.num_selected_groups = (focus.num_groups + 6) / 12;
  focus.local_window = 16;
  focus.summary.block = 16;
  focus.summary.sinks = 4;
}

FocusModel& attach_groups(LoadedModel& model, const FitSettings& settings) {
  model.detach_attention();
  Rng rng(static_cast<std::uint64_t>(settings.seed));
  return static_cast<FocusModel&>(model.attach(
      std::make_unique<FocusModel>(settings.focus, FocusShape::of(model.decoder->config()), rng)));
}

FocusModel& fit(LoadedModel& model, const Texts& texts, const FitSettings& settings,
                const FitProgress& progress) {
  const Batches batches = fit_windows(model, texts, "", settings.context);
  FocusModel& focus = attach_groups(model, settings);
  fit_focus(*model.decoder, focus, batches, settings.focus.keys().fit_tokens,
            static_cast<std::uint64_t>(settings.seed), progress);
  return focus;
}

void write_adapter(const std::filesystem::path& path, Adapter& adapter, const LoadedModel& model) {
  StoreWriter store(path, "adapter");
  adapter.write(store, model.fingerprint());
  store.commit();
}

void run_window(Decoder& decoder, const Batches& batches, Index number) {
  const Batch batch = batches.windows(number, 1);
  const Variable hidden = decoder.hidden_states(batch.ids, 1, 0, pass_over(batch));
  require_finite(hidden.value().span(), "fit", "hidden states");
}

Index windows_for(Index tokens, const Batches& batches) {
  const Index all = batches.num_windows();
  const Index mean = std::max<Index>(1, batches.num_tokens() / all);
  return std::min(all, (tokens + mean - 1) / mean);
}

void fit_focus(Decoder& decoder, FocusModel& focus, const Batches& batches, Index tokens,
               std::uint64_t seed, const FitProgress& progress, std::span<const Index> held_back) {
  check(focus.grouping().can_fit(),
        "fit: groups of {} cannot be fitted; groups of keys can (focus.grouping keys)",
        focus.grouping().kind());
  const NoGrad guard;
  const FocusShape& shape = focus.shape();
  const std::vector<Index> all = windows_but(held_back, batches);
  const Index windows = windows_of(all, tokens, batches);
  // Spread over the text: its first windows alone may all be of one book.
  const auto number = [&](Index i) { return all[i * std::ssize(all) / windows]; };
  std::vector<Index> first = {0};  // keys before each window's
  for (Index i = 0; i < windows; ++i)
    first.push_back(first.back() + std::ssize(batches.windows(number(i), 1).ids));
  const bool measures = focus.grouping().head_needs(0) != nullptr;
  const Index to_come = windows + (measures ? windows_of(all, kNeedTokens, batches) : 0);
  std::vector<Tensor> keys;
  for (Index i = 0; i < shape.num_layers; ++i)
    keys.emplace_back(Shape{first.back(), shape.kv_heads, shape.head_dim});
  Index window = 0;
  const AttachedMechanism collecting(decoder, [&](const MechanismInputs& in) {
    Tensor& of_layer = keys[in.layer];
    std::ranges::copy(in.k.value().span(),
                      of_layer.data() + first[window] * shape.kv_heads * shape.head_dim);
    return attention(in.q, in.k, in.v, in.options);
  });
  for (; window < windows; ++window) {
    run_window(decoder, batches, number(window));
    if (progress) progress(window + 1, to_come);
  }
  const auto fit_layer = [&](Index i) {
    require_finite(keys[i].span(), "fit", "keys");
    focus.grouping().fit(i, keys[i], seed);
    keys[i] = {};
  };
  if (shape.num_layers >= omp_get_max_threads())
    parallel_chunks(shape.num_layers, 1, [&](Index i, Index) { fit_layer(i); });
  else  // the heads of each are tasks
    for (Index i = 0; i < shape.num_layers; ++i) fit_layer(i);
  focus.grouping().fitted_context() = batches.context();
  if (measures)
    measure_needs(decoder, focus, batches, all, windows, [&](Index done, Index) {
      if (progress) progress(windows + done, to_come);
    });
}

}  // namespace focus
