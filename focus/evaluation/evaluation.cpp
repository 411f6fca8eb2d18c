#include "focus/evaluation/evaluation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "autograd/base/check.h"
#include "autograd/base/profile.h"
#include "autograd/base/random.h"
#include "data/settings/config.h"
#include "data/tensors/tensor_source.h"

namespace focus {
namespace {

/// Tokens of a forward pass over several windows: enough to keep all threads busy.
constexpr Index kBatchTokens = 2048;

struct Window {
  Index begin = 0, end = 0;  // tokens of the text
  Index scored = 0;          // its last tokens
};

std::vector<Window> windows_of(const EvalText& text, const EvalSettings& options) {
  std::vector<Window> windows;
  const auto tokens = static_cast<Index>(text.ids.size());
  Index scored_up_to = 0;
  for (Index begin = 0;; begin += options.stride) {
    const Index end = std::min(begin + options.context - text.lead(), tokens);
    windows.push_back({begin, end, end - scored_up_to});
    scored_up_to = end;
    if (end == tokens) return windows;
  }
}

/// Some windows of equal length and what is scored in them.
struct WindowBatch {
  std::vector<std::int32_t> ids;  // [batch, length]
  Index batch = 0;
  std::vector<Index> rows;  // those that predict what is scored
  std::vector<std::int32_t> targets;
};

/// Calls f(t) for each place of a window, what is put before it included, that is scored. The first
/// one has nothing before it to be predicted from.
template <class F>
void for_scored(const EvalText& text, const Window& window, F&& f) {
  const Index length = text.lead() + window.end - window.begin;
  for (Index t = std::max<Index>(1, length - window.scored); t < length; ++t)
    if (text.counts_at(window.begin + t - text.lead())) f(t);
}

WindowBatch batch_of(const EvalText& text, std::span<const Window> windows) {
  const Index length = text.lead() + windows[0].end - windows[0].begin;
  WindowBatch all;
  all.batch = static_cast<Index>(windows.size());
  for (const Window& window : windows) {
    if (text.window_start) all.ids.push_back(*text.window_start);
    all.ids.insert(all.ids.end(), text.ids.begin() + window.begin, text.ids.begin() + window.end);
  }
  for (Index w = 0; w < all.batch; ++w)
    for_scored(text, windows[w], [&](Index t) {
      all.rows.push_back(w * length + t - 1);
      all.targets.push_back(all.ids[w * length + t]);
    });
  return all;
}

/// The last norm's output of the scored rows: only they go through the output head.
Tensor scored_rows(const Decoder& decoder, const WindowBatch& windows) {
  const Tensor hidden = decoder.hidden_states(windows.ids, windows.batch).value();
  const Index width = hidden.cols();
  Tensor scored({static_cast<Index>(windows.rows.size()), width});
  for (std::size_t r = 0; r < windows.rows.size(); ++r)
    std::copy_n(hidden.data() + windows.rows[r] * width, width,
                scored.data() + static_cast<Index>(r) * width);
  return scored;
}

/// Without the LoRA, where one is given.
DenseReference::Batch dense_batch(Decoder& decoder, const WindowBatch& batch, LoraModel* lora) {
  const WithoutLora without(lora, decoder);
  const AttachedMechanism as_it_is(decoder, AttentionMechanism{});
  DenseReference::Batch result{.hidden = scored_rows(decoder, batch), .nats = {}};
  result.nats = decoder.cross_entropy_rows(result.hidden, batch.targets);
  return result;
}

/// Sums over scored tokens.
struct Score {
  double nats = 0;  // -log p
  std::int64_t tokens = 0, bytes = 0, words = 0;
  // Against dense attention: KL(dense || this), the difference of -log p, and its square.
  double kl = 0, difference = 0, difference_squares = 0;

  Score& operator+=(const Score& other) {
    nats += other.nats;
    tokens += other.tokens;
    bytes += other.bytes;
    words += other.words;
    kl += other.kl;
    difference += other.difference;
    difference_squares += other.difference_squares;
    return *this;
  }
  void set_means(Row& row, bool compared) const {
    const auto n = static_cast<double>(tokens);
    const auto perplexity_by = [&](std::int64_t count) {
      return count == 0 ? NAN : std::exp(nats / static_cast<double>(count));
    };
    row.nats_per_token = nats / n;
    row.tokens_scored = tokens;
    row.perplexity = std::exp(row.nats_per_token);
    row.bits_per_byte = nats / std::numbers::ln2 / static_cast<double>(bytes);
    row.word_perplexity = perplexity_by(words);
    row.byte_perplexity = perplexity_by(bytes);
    if (!compared) return;
    const double mean = difference / n, deviations = difference_squares - n * mean * mean;
    row.kl = kl / n;
    row.nats_against_dense = mean;
    row.nats_against_dense_error = n < 2 ? 0 : std::sqrt(std::max(0.0, deviations) / (n - 1) / n);
  }
};

/// What some windows of equal length came to; as numbers it goes from process to process.
struct WindowScores {
  Score score = {};
  AttentionCounts counts = {};
  std::vector<Score> documents = {};  // of all pieces: each text alone
  double comparing = 0;  // seconds that this process took for what is of dense attention

  std::vector<double> numbers() {
    std::vector<double> list = {score.nats, static_cast<double>(score.tokens), score.kl,
                                score.difference, score.difference_squares};
    append_numbers(counts, list);
    return list;
  }
  /// Adds to `of_text` and `all_counts` what such numbers say.
  static void add(std::span<const double> list, Score& of_text, AttentionCounts& all_counts) {
    of_text += Score{.nats = list[0],
                     .tokens = static_cast<std::int64_t>(list[1]),
                     .kl = list[2],
                     .difference = list[3],
                     .difference_squares = list[4]};
    add_numbers(list.subspan(5), all_counts);
  }
};

/// The scored tokens of windows of equal length; where `dense` is given, against the same decoder
/// with dense attention and without `lora`. Without counts.
WindowScores score_windows(Decoder& decoder, const EvalText& text, std::span<const Window> windows,
                           DenseReference* dense, LoraModel* lora) {
  const WindowBatch batch = batch_of(text, windows);
  if (batch.rows.empty()) return {};
  const Tensor hidden = scored_rows(decoder, batch);
  WindowScores all{.score = {.tokens = static_cast<std::int64_t>(batch.rows.size())}};
  Score& score = all.score;
  const std::vector<double> nats = decoder.cross_entropy_rows(hidden, batch.targets);
  for (const double of_token : nats) score.nats += of_token;
  if (!std::isfinite(score.nats))
    fail(
        "{}: the loss of its tokens is {}; either weights of the model or its adapter are NaN or "
        "infinite, which focus info reports, or they overflow",
        text.name, score.nats);
  if (dense == nullptr) return all;
  const double start = now();
  const DenseReference::Batch& reference =
      dense->next([&] { return dense_batch(decoder, batch, lora); });
  for (std::size_t i = 0; i < nats.size(); ++i) {
    const double difference = nats[i] - reference.nats[i];
    score.difference += difference;
    score.difference_squares += difference * difference;
  }
  for (const double divergence : decoder.kl_divergence_rows(hidden, reference.hidden))
    score.kl += divergence;
  if (!std::isfinite(score.difference) || !std::isfinite(score.kl))
    fail("{}: the loss of dense attention, which its tokens are compared with, is not finite",
         text.name);
  all.comparing = now() - start;
  return all;
}

/// Windows of a text that are computed together.
struct Piece {
  const EvalText* text;
  std::vector<Window> windows;
};

std::vector<Piece> pieces_of(std::span<const EvalText> texts, const EvalSettings& options) {
  const auto most = static_cast<std::size_t>(std::max<Index>(1, kBatchTokens / options.context));
  const auto length = [](const Window& window) { return window.end - window.begin; };
  std::vector<Piece> pieces;
  for (const EvalText& text : texts) {
    if (static_cast<Index>(text.ids.size()) + text.lead() < 2)
      fail("{}: {} tokens; at least 2 are required", text.name, text.ids.size());
    check(options.stride + text.lead() <= options.context,
          "evaluate: a stride of {} with a token before each window of {} would leave tokens out",
          options.stride, options.context);
    for (const Window& window : windows_of(text, options)) {
      if (pieces.empty() || pieces.back().text != &text || pieces.back().windows.size() == most ||
          length(pieces.back().windows[0]) != length(window))
        pieces.push_back({&text, {}});
      pieces.back().windows.push_back(window);
    }
  }
  return pieces;
}

/// evaluate() of texts, and what `active` did meanwhile, where given.
WindowScores evaluate_pieces(Decoder& decoder, std::span<const EvalText> texts,
                             const EvalSettings& options, const EvalPass& pass,
                             ActiveAttention* active) {
  check(options.context >= 2 && options.stride >= 1 && options.stride <= options.context,
        "evaluate: a context of {} and a stride of {} are not valid", options.context,
        options.stride);
  const NoGrad guard;
  const std::vector<Piece> pieces = pieces_of(texts, options);
  DenseReference own;
  DenseReference* const dense = pass.dense != nullptr ? pass.dense : &own;
  std::vector<std::vector<double>> mine;  // of the own pieces
  WindowScores all;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (!pass.ranks->owns(static_cast<int>(i))) continue;
    if (active != nullptr) active->start_counting();
    WindowScores scores =
        score_windows(decoder, *pieces[i].text, pieces[i].windows,
                      options.against != Against::none ? dense : nullptr, pass.lora);
    if (active != nullptr) scores.counts = active->stop_counting();
    all.comparing += scores.comparing;
    mine.push_back(scores.numbers());
    if (pass.progress)
      pass.progress(static_cast<double>(i + 1) / static_cast<double>(pieces.size()));
  }
  const auto of_pieces = gather_parts(*pass.ranks, static_cast<int>(pieces.size()), mine);
  std::size_t next = 0;
  for (const EvalText& text : texts) {
    Score of_text{.bytes = text.bytes, .words = text.words};
    for (; next < pieces.size() && pieces[next].text == &text; ++next)
      WindowScores::add(of_pieces[next], of_text, all.counts);
    all.score += of_text;
    all.documents.push_back(of_text);
  }
  return all;
}

void set_counts(Row& row, const AttentionCounts& counts, const FocusModel* focus) {
  const PairCounts& pairs = counts.pairs;
  const auto share = [&](std::int64_t n) {
    return static_cast<double>(n) / static_cast<double>(pairs.all);
  };
  if (pairs.all > 0) {
    row.pairs_attended = share(pairs.attended);
    row.pairs_choosing = share(pairs.selection_cost);
  }
  if (focus == nullptr) return;
  row.pairs_distant = pairs.all > 0 ? share(pairs.distant) : 0;
  // Layers that attend densely have no tokens.
  const auto has_groups = [](const GroupStatistics& layer) { return layer.tokens > 0; };
  const auto layers = static_cast<double>(
      std::max<std::ptrdiff_t>(1, std::ranges::count_if(counts.layers, has_groups)));
  double mean = 0, largest = 0, entropy = 0;
  row.group_sizes.emplace();
  for (const GroupStatistics& layer : counts.layers) {
    row.group_sizes->push_back(layer.sizes);
    if (!has_groups(layer)) continue;
    mean += layer.dominance() / layers;
    largest = std::max(largest, layer.dominance());
    entropy += layer.entropy / static_cast<double>(layer.tokens) / layers;
  }
  row.largest_group = mean;
  row.largest_group_worst_layer = largest;
  if (row.attention.kind != AttentionKind::summary) row.entropy = entropy;
}

}  // namespace

const DenseReference::Batch& DenseReference::next(const std::function<Batch()>& make) {
  constexpr Index kMostNumbers = (Index{1} << 29) / static_cast<Index>(sizeof(Real));
  if (const std::size_t index = at_++; index < kept_.size()) return kept_[index];
  last_ = make();
  if (at_ - 1 != kept_.size() || numbers_ + last_.hidden.size() > kMostNumbers) return last_;
  numbers_ += last_.hidden.size();
  return kept_.emplace_back(std::move(last_));
}

EvalSettings EvalSettings::for_model(const LoadedModel& model) const {
  const Index positions = model.decoder->config().max_position_embeddings;
  EvalSettings filled = *this;
  if (context == 0) filled.context = std::min(default_context, positions);
  if (stride == 0) filled.stride = std::max<Index>(1, filled.context / 2);
  check(filled.context >= 2, "context {}: expected at least 2", filled.context);
  require_positions(model, filled.context, beyond_positions, "context");
  check(filled.stride >= 1 && filled.stride <= filled.context,
        "stride {}: expected from 1 to the context of {}", filled.stride, filled.context);
  check(detokenize == Detokenize::none || max_tokens == 0,
        "detokenize: words and bytes are counted on whole texts; leave out max_tokens");
  return filled;
}

Row evaluate(Decoder& decoder, std::span<const EvalText> texts, const EvalSettings& options,
             const EvalPass& pass) {
  Row row;
  evaluate_pieces(decoder, texts, options, pass, nullptr)
      .score.set_means(row, options.against != Against::none);
  return row;
}

Row evaluate(LoadedModel& model, const AttentionSpec& attention, std::span<const EvalText> texts,
             const EvalSettings& settings, EvalPass pass) {
  constexpr std::size_t kMostDocuments = 1000;  // whose own figures are kept
  ActiveAttention active(model, attention);
  Decoder& decoder = *model.decoder;
  if (settings.against == Against::base) pass.lora = model.lora();
  Row row{.attention = active.label(), .precision = decoder.head_weight().precision()};
  if (const Mechanism* mechanism = active.mechanism()) {
    AnySettings own = mechanism->settings();
    for (const ConfigField& field : config_fields(own)) {
      if (!row.settings) row.settings.emplace();
      row.settings->emplace_back(field.key, field.text());
    }
  }
  const double start = now();
  if (pass.dense != nullptr) pass.dense->rewind();
  const WindowScores scores = evaluate_pieces(decoder, texts, settings, pass, &active);
  scores.score.set_means(row, settings.against != Against::none);
  const double seconds = now() - start - scores.comparing;
  row.tokens_per_second = seconds > 0 ? static_cast<double>(scores.score.tokens) / seconds : 0;
  if (scores.documents.size() > 1 && scores.documents.size() <= kMostDocuments)
    for (std::vector<double>& nats = row.nats_of_documents.emplace();
         const Score& of_text : scores.documents)
      nats.push_back(of_text.nats / static_cast<double>(of_text.tokens));
  set_counts(row, scores.counts, active.focus());
  return row;
}

std::optional<Leak> find_leak(const Decoder& decoder, Index context, std::int64_t cuts,
                              std::uint64_t seed) {
  check(context >= 2, "leak test: {} tokens are too few: no token precedes a later one", context);
  const NoGrad guard;
  Rng rng(seed);
  const auto vocab_size = static_cast<std::int32_t>(decoder.config().vocab_size);
  const auto random_id = [&] {
    return static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab_size)));
  };
  const auto logits = [&](const std::vector<std::int32_t>& tokens) {
    Tensor result = decoder.logits(decoder.hidden_states(tokens, 1)).value();
    require_finite(result.span(), "leak test", "logits");  // NaN has the bits of NaN
    return result;
  };
  std::vector<std::int32_t> ids(context);
  for (auto& id : ids) id = random_id();
  const Tensor before = logits(ids);
  const Index width = before.cols();
  for (std::int64_t c = 1; c <= cuts; ++c) {
    const Index cut = std::clamp<Index>(context * c / (cuts + 1), 1, context - 1);
    std::vector<std::int32_t> changed = ids;
    for (auto id = changed.begin() + cut; id != changed.end(); ++id)
      *id = (*id + 1 + random_id() % std::max<std::int32_t>(1, vocab_size - 1)) % vocab_size;
    const Tensor after = logits(changed);
    for (Index t = 0; t < cut; ++t)
      if (std::memcmp(before.data() + t * width, after.data() + t * width,
                      static_cast<std::size_t>(width) * sizeof(Real)) != 0)
        return Leak{cut, t};
  }
  return std::nullopt;
}

}  // namespace focus
