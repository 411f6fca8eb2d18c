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

/// Adds the squares of a - b to each query head's sum; a undefined: those of b.  a, b [1, seq_len,
/// heads, dim]
void add_errors(const Tensor& a, const Tensor& b, std::span<double> sums) {
  const Index heads = b.dim(2), dim = b.dim(3);
  parallel_chunks(heads, 1, [&](Index head, Index) {
    double sum = 0;
    for (Index t = 0; t < b.dim(1); ++t)
      for (Index d = 0; d < dim; ++d) {
        const Index at = (t * heads + head) * dim + d;
        const double from = a.defined() ? static_cast<double>(a[at]) : 0;
        const double error = from - static_cast<double>(b[at]);
        sum += error * error;
      }
    sums[head] += sum;
  });
}

/// Where a curve is least, counted in its points, of which there are three or more: between them
/// it is the parabola through the lowest and its two neighbours.
double least_of_parabola(std::span<const double> y) {
  const Index best = std::ranges::min_element(y) - y.begin();
  const Index i = std::clamp<Index>(best, 1, std::ssize(y) - 2);
  const double slope = (y[i + 1] - y[i - 1]) / 2, bend = y[i + 1] - 2 * y[i] + y[i - 1];
  if (bend <= 0) return static_cast<double>(best);
  return std::clamp(static_cast<double>(i) - slope / bend, 0.0,
                    static_cast<double>(std::ssize(y) - 1));
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

/// What is measured of query heads, on dense inputs and some of the windows that fit_focus() has
/// left out, where there are such: it took `fitted` of `all`.
class HeadMeasurement {
 public:
  HeadMeasurement(Decoder& decoder, FocusModel& focus, const Batches& batches,
                  std::span<const Index> all, Index fitted, const FitProgress& progress)
      : decoder_(decoder),
        focus_(focus),
        batches_(batches),
        all_(all),
        fitted_(fitted),
        progress_(progress),
        windows_(windows_of(all, kNeedTokens, batches)) {}

  /// Windows that run() goes through.
  static Index windows(std::span<const Index> all, const Batches& batches) {
    return 2 * windows_of(all, kNeedTokens, batches);
  }

  /// Their needs (Grouping::head_needs()): the error where all heads select alike. Then with the
  /// budgets that follow the share of the width in a summary token's own score that has the least
  /// error.
  void run() {
    const AttentionSpec before = std::exchange(
        focus_.mode,
        {.kind = AttentionKind::summary, .summary = {.head_budgets = HeadBudgets::equal}});
    const std::vector<double> needs = errors_with(std::array{Real(0)}).front();
    each_head([&](Index layer, Index head, std::size_t at) {
      focus_.grouping().head_needs(layer)->data()[head] = static_cast<Real>(needs[at]);
    });
    focus_.mode = {.kind = AttentionKind::summary};
    const std::array<Real, 5> shares{0, 0.25, 0.5, 0.75, 1};
    const std::vector<std::vector<double>> errors = errors_with(shares);
    each_head([&](Index layer, Index head, std::size_t at) {
      std::array<double, shares.size()> of_head{};
      std::ranges::transform(errors, of_head.begin(), [at](const auto& of) { return of[at]; });
      focus_.grouping().summary_width(layer)->data()[head] =
          static_cast<Real>(least_of_parabola(of_head)) / (shares.size() - 1);
    });
    focus_.mode = before;
  }

 private:
  template <class F>
  void each_head(F&& f) const {
    std::size_t at = 0;
    for (Index layer = 0; layer < focus_.shape().num_layers; ++layer)
      for (Index head = 0; head < focus_.shape().heads; ++head) f(layer, head, at++);
  }

  /// The squared error of each head's output relative to that of dense attention, where all heads
  /// have each of these shares of the width.
  std::vector<std::vector<double>> errors_with(std::span<const Real> shares) {
    const NoGrad guard;
    const auto heads = static_cast<std::size_t>(focus_.shape().heads);
    std::vector<double> squares(heads * static_cast<std::size_t>(focus_.shape().num_layers), 0.0);
    std::vector<std::vector<double>> errors(shares.size(), squares);
    const AttachedMechanism measuring(decoder_, [&](const MechanismInputs& in) {
      Variable dense = attention(in.q, in.k, in.v, in.options);
      const auto of_layer = [&](std::vector<double>& all) {
        return std::span(all).subspan(static_cast<std::size_t>(in.layer) * heads, heads);
      };
      for (std::size_t i = 0; i < shares.size(); ++i) {
        std::ranges::fill(focus_.grouping().summary_width(in.layer)->span(), shares[i]);
        add_errors(focus_.attend(in).value(), dense.value(), of_layer(errors[i]));
      }
      add_errors({}, dense.value(), of_layer(squares));
      return dense;
    });
    for (Index i = 0; i < windows_; ++i) {
      // Between those that were fitted on.
      const Index fit = (2 * i + 1) * fitted_ / (2 * windows_);
      const Index next = fit * std::ssize(all_) / std::max<Index>(1, fitted_) + 1;
      run_window(decoder_, batches_, all_[std::min(next, std::ssize(all_) - 1)]);
      if (progress_) progress_(++done_, 2 * windows_);
    }
    for (std::vector<double>& of : errors)
      for (std::size_t at = 0; at < of.size(); ++at)
        of[at] = squares[at] > 0 ? of[at] / squares[at] : 0;
    return errors;
  }

  Decoder& decoder_;
  FocusModel& focus_;
  const Batches& batches_;
  const std::span<const Index> all_;
  const Index fitted_;
  const FitProgress& progress_;
  const Index windows_;
  Index done_ = 0;
};

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
  const Index to_come = windows + (measures ? HeadMeasurement::windows(all, batches) : 0);
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
    HeadMeasurement(decoder, focus, batches, all, windows, [&](Index done, Index) {
      if (progress) progress(windows + done, to_come);
    }).run();
}

}  // namespace focus
