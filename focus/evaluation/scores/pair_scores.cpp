#include "focus/evaluation/scores/pair_scores.h"

#include <array>
#include <cmath>
#include <numeric>
#include <tuple>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "data/settings/config.h"

namespace focus {

namespace {

/// `held` [tokens, ...] before each sequence of `x` [batch, seq_len, ...].
Variable behind(const std::vector<Real>& held, const Variable& x) {
  if (held.empty()) return x;
  const Index batch = x.dim(0), width = x.value().size() / (batch * x.dim(1));
  const Index tokens = static_cast<Index>(held.size()) / width;
  Tensor whole(x.shape().with(1, tokens + x.dim(1)));
  const Index own = x.dim(1) * width;
  for (Index b = 0; b < batch; ++b) {
    Real* const to = whole.data() + b * (tokens + x.dim(1)) * width;
    std::ranges::copy(held, to);
    std::copy_n(x.value().data() + b * own, own, to + tokens * width);
  }
  return Variable(whole);
}

/// The last `seq_len` tokens of each sequence.
Variable last_tokens(const Variable& x, Index seq_len) {
  if (x.dim(1) == seq_len) return x;
  const Index batch = x.dim(0), width = x.value().size() / (batch * x.dim(1));
  Tensor last(x.shape().with(1, seq_len));
  for (Index b = 0; b < batch; ++b)
    std::copy_n(x.value().data() + ((b + 1) * x.dim(1) - seq_len) * width, seq_len * width,
                last.data() + b * seq_len * width);
  return Variable(last);
}

/// The tokens that sequences have in common, held as what every layer's attention read of them, so
/// that what continues them is computed without projecting them or passing them through an MLP
/// again. Attention itself runs over all tokens once more, by whatever mechanism the decoder has:
/// the numbers are those of whole sequences, for any mechanism that is causal.
///
/// While it lives the decoder's layers attend through it.
class SharedPrefix {
 public:
  explicit SharedPrefix(Decoder& decoder) : decoder_(decoder), layers_(decoder.layers().size()) {
    for (const Block& block : decoder.layers()) own_.push_back(block.self_attn.mechanism);
    attached_.emplace(decoder, [this](const MechanismInputs& in) { return attend(in); });
  }

  /// Holds exactly `ids`: those at their beginning that it holds already stay. Returns how many
  /// were computed.
  Index hold(std::span<const std::int32_t> ids) {
    const auto differs = std::ranges::mismatch(ids_, ids).in2;
    const auto kept = static_cast<std::size_t>(differs - ids.begin());
    for (Layer& layer : layers_)
      for (std::vector<Real>& held : layer)
        if (!ids_.empty()) held.resize(held.size() / ids_.size() * kept);
    ids_.resize(kept);
    if (kept == ids.size()) return 0;
    holding_ = true;
    hidden_states(ids.subspan(kept), 1);
    holding_ = false;
    ids_.assign(ids.begin(), ids.end());
    return static_cast<Index>(ids.size() - kept);
  }

  /// The last norm's output of `batch` sequences of equal length that continue what is held
  /// [batch, seq_len, hidden_size].
  Tensor hidden_states(std::span<const std::int32_t> ids, Index batch) {
    return decoder_.hidden_states(ids, batch, size()).value();
  }

  Index size() const { return static_cast<Index>(ids_.size()); }

 private:
  /// What attention reads of the held tokens: h, q, k and v, [tokens, ...] of each.
  using Layer = std::array<std::vector<Real>, 4>;

  Variable attend(const MechanismInputs& in) {
    Layer& held = layers_[in.layer];
    const Variable h = behind(held[0], in.h), q = behind(held[1], in.q);
    const Variable k = behind(held[2], in.k), v = behind(held[3], in.v);
    const AttentionMechanism& own = own_[in.layer];
    const Variable out =
        own ? own({h, q, k, v, in.options, in.layer, 0}) : attention(q, k, v, in.options);
    if (holding_)
      for (std::size_t i = 0; const Variable* x : {&in.h, &in.q, &in.k, &in.v}) {
        const auto values = x->value().span();
        held[i].insert(held[i].end(), values.begin(), values.end());
        ++i;
      }
    return last_tokens(out, in.h.dim(1));
  }

  Decoder& decoder_;
  std::vector<AttentionMechanism> own_;  // the decoder's, of each layer
  std::vector<Layer> layers_;
  TokenIds ids_;
  bool holding_ = false;  // the pass in progress is of tokens to be held
  std::optional<AttachedMechanism> attached_;
};

/// Tokens of a forward pass over several sequences, with those of the shared prefix.
constexpr Index kPassTokens = 4096;
/// Tokens in common that are worth holding.
constexpr Index kLeastHeld = 8;
Index common(const TokenIds& a, const TokenIds& b) {
  return static_cast<Index>(std::ranges::mismatch(a, b).in1 - a.begin());
}

/// Pairs whose tokens before the last are the same.
struct Feed {
  TokenIds ids;  // what goes into the model, without what is held
  std::vector<std::size_t> pairs;
  Index scored = 0;  // its last rows
};

/// Pairs of one context, adjacent in the order; the first `held` tokens of it are
/// shared with others.
struct Group {
  std::size_t begin, end;
  Index held;
};

/// log sum exp of a row of logits, and the place of its largest.
struct RowTotals {
  double log_sum = 0;
  Index largest = 0;
};
RowTotals totals(const Real* row, Index n) {
  const Real* const top = std::max_element(row, row + n);
  double sum = 0;
  for (Index i = 0; i < n; ++i) sum += std::exp(static_cast<double>(row[i] - *top));
  return {static_cast<double>(*top) + std::log(sum), top - row};
}

class Scorer {
 public:
  Scorer(Decoder& decoder, std::span<const TokenPair> pairs, const PairScoring& options,
         const ShareDone& progress)
      : decoder_(decoder),
        pairs_(pairs),
        options_(options),
        progress_(progress),
        scored_(pairs.size()),
        order_(pairs.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::stable_sort(order_, {}, [&](std::size_t i) {
      const TokenIds& continuation = pairs_[i].continuation;
      return std::tuple<const TokenIds&, std::size_t, const TokenIds&>(
          pairs_[i].context, continuation.size(), continuation);
    });
  }

  std::vector<ScoredPair> run() {
    if (!options_.causal || !rotate_alike()) {
      for (std::size_t i = 0; i < pairs_.size(); ++i) {
        const Feed whole = feeds({i, i + 1, 0}).front();
        computed_ += static_cast<std::int64_t>(whole.ids.size());
        finish(std::span(&whole, 1), decoder_.hidden_states(whole.ids, 1).value());
      }
      return std::move(scored_);
    }
    held_.emplace(decoder_);
    std::vector<Feed> plain;
    std::vector<Group> sharing;
    for (const Group& group : groups())
      if (group.held > 0)
        sharing.push_back(group);
      else
        for (Feed& feed : feeds(group)) plain.push_back(std::move(feed));
    score(std::move(plain));
    for (const Group& group : sharing) {
      const TokenIds& context = pairs_[order_[group.begin]].context;
      computed_ += held_->hold(std::span(context).first(group.held));
      score(feeds(group));
    }
    held_.reset();
    return std::move(scored_);
  }

  std::int64_t computed() const { return computed_; }

 private:
  /// Whether a token is rotated alike in every sequence, however long.
  bool rotate_alike() const {
    return std::ranges::all_of(pairs_, [&](const TokenPair& pair) {
      const auto length = static_cast<Index>(pair.context.size() + pair.continuation.size());
      return same_angles(decoder_.config(), 1, length);
    });
  }
  std::vector<Group> groups() const {
    std::vector<Group> all;
    const auto context = [&](std::size_t i) -> const TokenIds& {
      return pairs_[order_[i]].context;
    };
    for (std::size_t begin = 0; begin < order_.size();) {
      std::size_t end = begin + 1;
      while (end < order_.size() && context(end) == context(begin)) ++end;
      const auto before_last = static_cast<Index>(context(begin).size()) - 1;
      Index held = end - begin > 1 ? before_last : 0;
      if (begin > 0) held = std::max(held, common(context(begin - 1), context(begin)));
      if (end < order_.size()) held = std::max(held, common(context(begin), context(end)));
      held = std::min(held, before_last);
      all.push_back({begin, end, held < kLeastHeld ? 0 : held});
      begin = end;
    }
    return all;
  }

  std::vector<Feed> feeds(const Group& group) const {
    std::vector<Feed> all;
    for (std::size_t i = group.begin; i < group.end; ++i) {
      const TokenPair& pair = pairs_[order_[i]];
      TokenIds ids(pair.context.begin() + group.held, pair.context.end());
      ids.insert(ids.end(), pair.continuation.begin(), pair.continuation.end() - 1);
      // The order has pairs that differ in their last token alone side by side.
      if (all.empty() || all.back().ids != ids)
        all.push_back({std::move(ids), {}, static_cast<Index>(pair.continuation.size())});
      all.back().pairs.push_back(order_[i]);
    }
    return all;
  }

  /// Feeds that continue the shared prefix, in passes of similar lengths.
  void score(std::vector<Feed> feeds) {
    std::ranges::stable_sort(feeds, std::greater{},
                             [](const Feed& feed) { return feed.ids.size(); });
    for (std::size_t begin = 0; begin < feeds.size();) {
      const Index length = static_cast<Index>(feeds[begin].ids.size());
      const Index most = std::max<Index>(1, kPassTokens / (held_->size() + length));
      TokenIds ids;
      std::size_t batch = 0;
      // What is filled up to the longest is computed for nothing: at most as much again.
      for (; begin + batch < feeds.size() && static_cast<Index>(batch) < most; ++batch) {
        const TokenIds& own = feeds[begin + batch].ids;
        if (2 * static_cast<Index>(own.size()) < length) break;
        ids.insert(ids.end(), own.begin(), own.end());
        ids.resize((batch + 1) * length, own.back());
        computed_ += static_cast<std::int64_t>(own.size());
      }
      finish(std::span(feeds).subspan(begin, batch),
             held_->hidden_states(ids, static_cast<Index>(batch)));
      begin += batch;
    }
  }

  /// hidden [feeds, seq_len, hidden_size]
  void finish(std::span<const Feed> feeds, const Tensor& hidden) {
    const Index width = hidden.cols(), seq_len = hidden.dim(1);
    struct Row {
      const Feed* feed;
      std::size_t token;  // of the continuation
    };
    std::vector<Row> rows;
    std::vector<Real> gathered;
    for (std::size_t f = 0; f < feeds.size(); ++f) {
      const Feed& feed = feeds[f];
      const Index first =
          static_cast<Index>(f) * seq_len + static_cast<Index>(feed.ids.size()) - feed.scored;
      const auto of_feed = hidden.span().subspan(first * width, feed.scored * width);
      gathered.insert(gathered.end(), of_feed.begin(), of_feed.end());
      for (Index t = 0; t < feed.scored; ++t) rows.push_back({&feed, static_cast<std::size_t>(t)});
      for (const std::size_t pair : feed.pairs) {
        scored_[pair].log_probs.resize(feed.scored);
      }
      done_ += feed.pairs.size();
    }
    const Tensor scored = Tensor::from({static_cast<Index>(rows.size()), width}, gathered);
    for_logits(decoder_, scored, [&](Index first, Index count, const Tensor& logits) {
      const Index vocab_size = logits.cols();
      std::vector<RowTotals> of_rows(count);
      parallel_chunks(count, rows_per_chunk(vocab_size), [&](Index begin, Index end) {
        for (Index r = begin; r < end; ++r)
          of_rows[r] = totals(logits.data() + r * vocab_size, vocab_size);
      });
      for (Index r = 0; r < count; ++r) {
        const Row& row = rows[first + r];
        const RowTotals& total = of_rows[r];
        for (const std::size_t pair : row.feed->pairs) {
          const std::int32_t target = pairs_[pair].continuation[row.token];
          scored_[pair].log_probs[row.token] =
              static_cast<double>(logits[r * vocab_size + target]) - total.log_sum;
          if (total.largest != target) scored_[pair].is_greedy = false;
        }
      }
    });
    if (progress_) progress_(static_cast<double>(done_) / static_cast<double>(pairs_.size()));
  }

  Decoder& decoder_;
  std::span<const TokenPair> pairs_;
  const PairScoring& options_;
  const ShareDone& progress_;
  std::vector<ScoredPair> scored_;
  std::vector<std::size_t> order_;  // of the pairs: by context, length and continuation
  std::optional<SharedPrefix> held_;
  std::size_t done_ = 0;
  std::int64_t computed_ = 0;
};

}  // namespace

double ScoredPair::sum() const { return std::accumulate(log_probs.begin(), log_probs.end(), 0.0); }

std::vector<ScoredPair> score_pairs(Decoder& decoder, std::span<const TokenPair> pairs,
                                    const PairScoring& options, const ShareDone& progress,
                                    ScoringWork* work) {
  const NoGrad guard;
  for (const TokenPair& pair : pairs)
    check(!pair.context.empty() && !pair.continuation.empty(),
          "score_pairs: {} tokens of context and {} to score are not valid", pair.context.size(),
          pair.continuation.size());
  Scorer scorer(decoder, pairs, options, progress);
  const std::vector<ScoredPair> scored = scorer.run();
  for (std::size_t i = 0; i < scored.size(); ++i)
    if (!std::isfinite(scored[i].sum()))
      fail("pair {}: its log-probability is {}; the model's weights or the attention overflow",
           i + 1, scored[i].sum());
  if (work != nullptr) {
    for (const TokenPair& pair : pairs) work->tokens += pair.fed();
    work->computed += scorer.computed();
  }
  return scored;
}

TouchedPairs TouchedPairs::of(const ActiveAttention& active) {
  const AttentionSpec& mode = active.mode();
  TouchedPairs touched;
  if (const Mechanism* mechanism = active.mechanism()) {
    touched.window = 0;
    AnySettings settings = mechanism->settings();
    for (const ConfigField& field : config_fields(settings))
      if (field.key == "local_window") touched.window = std::stoll(field.text());
  } else if (mode.kind != AttentionKind::dense) {
    touched.window = mode.summary.local_window;
    touched.window_of_layer = mode.w_by_layer;
  }
  return touched;
}

PairCounts TouchedPairs::count(const ModelConfig& config, Index tokens) const {
  PairCounts pairs;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) {
    const Index near = window_of_layer.empty() ? window.value_or(tokens) : window_of_layer[layer];
    pairs += count_pairs({}, tokens, near, config.sliding_window(layer));
  }
  return pairs;
}

}  // namespace focus
