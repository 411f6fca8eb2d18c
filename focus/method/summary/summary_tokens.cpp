#include "focus/method/summary/summary_tokens.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "autograd/attention/online_softmax.h"
#include "autograd/base/parallel.h"

namespace focus {
namespace {

using namespace tiled;

/// What all tasks of a forward pass share.
struct ForwardJob : SummaryTokens {
  const AttentionPlan& local;
  const Sizes s;
  const TiledKeys keys, values;
  AttentionResult& result;
  SelectedGroups<std::uint8_t> selected;
};

/// A run of queries of one sequence and key head.
class ForwardTask {
 public:
  ForwardTask(const ForwardJob& job, Index sequence, Index kv_head)
      : job_(job),
        sequence_(sequence),
        kv_head_(kv_head),
        s_(job.s),
        block_(s_, kv_head, s_.kv_heads),
        selecting_(job.settings().query_heads_select() ? s_.heads_per_kv_head : 1),
        k_(reader(job.keys, block_)),
        v_(reader(job.values, block_)),
        tokens_(job.sums, sequence, kv_head, job.summary_bias.data() + kv_head * job.sums.groups()),
        softmax_(job.in, s_, block_),
        score_rows_(std::max(kKeys, tokens_.most_tokens())),  // of local keys or summary tokens
        scores_(s_.heads_per_kv_head * score_rows_ * kQueries),
        values_(tokens_.most_tokens() * s_.padded_dim),
        selection_(job.settings().uses_width() ? s_.heads_per_kv_head * score_rows_ * kQueries : 0),
        squares_(job.settings().uses_width() ? s_.head_dim * kQueries : 0),
        estimate_(job.sums.groups() * kQueries) {}

  /// What all query heads together read, and score without reading it.
  struct Counts {
    std::int64_t pairs = 0, scored = 0;
  };
  Counts run(Index run) {
    const Index end = std::min((run + 1) * GroupSums::kRun, s_.seq_len);
    if (job_.sums.in_turn())
      job_.sums.keep(tokens_.go_on(run), run);
    else
      tokens_.start(run);
    for (Index begin = run * GroupSums::kRun; begin < end; begin += kQueries)
      tile(begin, std::min(end, begin + kQueries));
    return std::exchange(counts_, {});
  }

 private:
  void tile(Index begin, Index end) {
    const SummarySettings& settings = job_.sums.settings();
    for (Index query = begin; query < end; ++query)
      counts_.pairs += s_.heads_per_kv_head * (query - settings.local_begin(query) + 1 +
                                               settings.sinks - settings.first_sink(query));
    const Index first = sequence_ * s_.seq_len;
    softmax_.begin(job_.local, first + begin, first + end);
    read_local(first, begin, end);
    tokens_.for_each(begin, end, [&] { step(begin); });
    softmax_.end(job_.result);
  }

  /// The local tokens of the queries [begin, end) of a sequence whose first token is given.
  void read_local(Index first, Index begin, Index end) {
    const Index earliest = job_.local.seen_after(first + begin) + 1 - first;
    for (Index key = earliest / kKeys * kKeys; key < end; key += kKeys) {
      const AttentionTile t{&job_.local,
                            first + begin,
                            first + end,
                            {first + key, first + std::min(s_.seq_len, key + kKeys)}};
      local_seen_.set(t);
      k_.go_to(t, local_seen_.end());
      v_.go_to(t, local_seen_.end());
      for (Index g = 0; g < s_.heads_per_kv_head; ++g) {
        const Index kv_head = s_.kv_head_of(block_.first + g);
        tally(s_, local_seen_, t.rows(), 2);
        products(s_, local_seen_, k_, kv_head, softmax_.queries(g), scores(g));
        if (job_.in.options.softcap > 0) soft_cap(local_seen_, job_.in.options.softcap, scores(g));
        softmax_.add_scores(g, local_seen_, scores(g), nullptr, simd::GateUse::score);
        softmax_.add_values(g, local_seen_, scores(g), v_.panels(kv_head));
      }
    }
  }

  void step(Index begin) {
    for (Index g = 0; g < s_.heads_per_kv_head; ++g) {
      tally(s_, tokens_.seen(), kQueries, 2);
      tokens_.scores(softmax_.queries(g), job_.in.options.softcap, scores(g));
      const bool by_width = job_.settings().uses_width();
      if (by_width) count_widths(g);
      tokens_.add_bias(scores(g), by_width ? selection(g) : nullptr);
    }
    for (const SummaryTokenSets::Set& set : tokens_.sets()) {
      for (Index g = 0; g < selecting_; ++g) {
        if (selects(g)) select(set, begin, g);
        count(set, begin, g);
      }
      for (Index g = 0; g < s_.heads_per_kv_head; ++g)
        tokens_.hide_read(set, begin, job_.selected, selecting_head(g), selected_of(g),
                          job_.settings().unselected_groups, scores(g));
    }
    const simd::Panels values = values_of_tokens();
    for (Index g = 0; g < s_.heads_per_kv_head; ++g) {
      softmax_.add_scores(g, tokens_.seen(), scores(g), nullptr, simd::GateUse::score);
      softmax_.add_values(g, tokens_.seen(), scores(g), values);
    }
  }

  /// As the right-hand side of a product: as they lie, or packed where rows are not whole vectors.
  simd::Panels values_of_tokens() {
    const Real* values = tokens_.values().data();
    const Index tokens = tokens_.tokens();
    if (s_.padded_dim == s_.head_dim)
      return {.data = values, .rows = tokens, .columns = s_.head_dim, .stride = s_.head_dim};
    simd::kernels().pack(values, s_.head_dim, tokens, s_.head_dim, 1, values_.data());
    return {.data = values_.data(), .rows = tokens, .columns = s_.padded_dim};
  }

  /// Adds the share of the summary tokens' widths that the head has to scores(g); selection(g)
  /// becomes what is missing from that to `width` times them.
  void count_widths(Index g) {
    const simd::Panels q = softmax_.queries(g);
    for (Index i = 0; i < q.rows * q.columns; ++i) squares_.data()[i] = q.data[i] * q.data[i];
    tokens_.widths({squares_.data(), q.rows, q.columns}, scores(g), job_.in.options.softcap,
                   selection(g));
    const Real share = job_.settings().summary_width_of(block_.first + g);
    const Real missing = static_cast<Real>(job_.settings().width) - share;
    const Index size = tokens_.tokens() * kQueries;  // what no query sees among them
    if (share != 0) simd::kernels().scale_row(selection(g), share, size, scores(g), true);
    if (missing != 1) simd::kernels().scale_row(selection(g), missing, size, selection(g), false);
  }

  Real* scores(Index g) { return scores_.data() + g * score_rows_ * kQueries; }
  /// What groups are selected by.
  Real* selection(Index g) {
    return job_.settings().uses_width() ? selection_.data() + g * score_rows_ * kQueries
                                        : scores(g);
  }
  /// Which head selects for query head g of the key head.
  Index selecting_head(Index g) const { return kv_head_ * selecting_ + (selecting_ > 1 ? g : 0); }
  bool selects(Index g) const { return !job_.settings().reads_own_group() && selected_of(g) > 0; }
  Index selected_of(Index g) const { return job_.settings().selected_of(block_.first + g); }
  std::uint8_t& selected(Index rank, Index query, Index g) {
    return job_.selected.at(rank, sequence_, query, selecting_head(g));
  }

  /// Selects each query's groups of largest mass for query head g, or for all that select together,
  /// the first of equals; empty groups come last.
  void select(const SummaryTokenSets::Set& set, Index begin, Index g) {
    constexpr Real kTaken = -std::numeric_limits<Real>::infinity();
    constexpr Real kEmpty = std::numeric_limits<Real>::lowest();
    const Index groups = job_.sums.groups(), from = set.first_row, to = set.end_row;
    Real* mass = estimate(set, g);
    const Index* counts = tokens_.counts(set);
    for (Index c = 0; c < groups; ++c)
      if (counts[c] == 0) std::fill(mass + c * kQueries + from, mass + c * kQueries + to, kEmpty);
    std::array<simd::Lane, kQueries> place{};
    // Whole vectors of queries, whatever lies in the others' lanes.
    const simd::Kernels& kernels = simd::kernels();
    const Index first = from / kernels.vector * kernels.vector;
    for (Index rank = 0; rank < selected_of(g); ++rank) {
      kernels.largest_rows(groups, simd::padded(kernels, to - first), mass + first, kQueries,
                           place.data() + first);
      for (Index q = from; q < to; ++q) {
        const Index c = place[q];
        selected(rank, begin + q, g) = static_cast<std::uint8_t>(c);
        mass[c * kQueries + q] = kTaken;
      }
    }
  }

  /// Estimated masses of the groups [groups, queries], up to what keeps their order: query head g's
  /// scores, or the sum over all of e^(score - lse). They may be written on.
  Real* estimate(const SummaryTokenSets::Set& set, Index g) {
    const Index groups = job_.sums.groups(), width = tokens_.width();
    Real* mass = estimate_.data();
    if (selecting_ == s_.heads_per_kv_head) {
      Real* own = selection(g) + set.first * kQueries;
      if (job_.settings().uses_width()) return own;  // serves nothing else
      for (Index c = 0; c < groups; ++c)
        std::copy_n(own + c * kQueries + set.first_row, set.end_row - set.first_row,
                    mass + c * kQueries + set.first_row);
      return mass;
    }
    std::fill_n(mass, groups * kQueries, Real(0));
    for (Index head = 0; head < s_.heads_per_kv_head; ++head) {
      const Real* of_head = selection(head) + set.first * kQueries;
      for (Index q = set.first_row; q < set.end_row; ++q) {
        Real most = softmax_.log_weight(head, q), sum = 0;
        const Real local = most;
        for (Index i = 0; i < width; ++i) most = std::max(most, of_head[i * kQueries + q]);
        for (Index i = 0; i < width; ++i) sum += std::exp(of_head[i * kQueries + q] - most);
        const Real lse = most + std::log(sum + std::exp(local - most));
        for (Index c = 0; c < groups; ++c)
          mass[c * kQueries + q] += std::exp(of_head[c * kQueries + q] - lse);
      }
    }
    return mass;
  }

  /// What the query heads read for which g selects.
  void count(const SummaryTokenSets::Set& set, Index begin, Index g) {
    const Index* counts = tokens_.counts(set);
    const bool as_tokens = job_.settings().unselected_groups == UnselectedGroups::summary;
    Counts of_head;
    for (Index q = set.first_row; q < set.end_row; ++q) {
      Index left = set.filled;
      for (Index rank = 0; rank < selected_of(g); ++rank) {
        const Index n = counts[selected(rank, begin + q, g)];
        of_head.pairs += n;
        left -= n > 0;
      }
      if (as_tokens) of_head.pairs += left;
      if (selects(g)) of_head.scored += as_tokens ? set.filled - left : set.filled;
    }
    counts_.pairs += of_head.pairs * (s_.heads_per_kv_head / selecting_);
    counts_.scored += of_head.scored * (s_.heads_per_kv_head / selecting_);
  }

  const ForwardJob& job_;
  const Index sequence_, kv_head_;
  const Sizes& s_;
  const HeadBlock block_;  // the query heads of the key head
  const Index selecting_;  // of them that select for themselves; 1: all together
  TiledKeys::Reader k_, v_;
  Visibility local_seen_;
  SummaryTokenSets tokens_;
  OnlineSoftmax softmax_;
  const Index score_rows_;
  Scratch scores_;               // [query heads, score_rows, queries]
  Scratch values_;               // [tokens, padded_dim]
  Scratch selection_, squares_;  // like scores_; of a head's queries
  Scratch estimate_;             // [groups, queries]
  Counts counts_;
};

}  // namespace

void SummaryTokens::forward(const AttentionPlan& local, AttentionResult& result,
                            std::span<std::uint8_t> selected, std::span<std::int64_t> pairs,
                            std::span<std::int64_t> scored) const {
  const Sizes s(in);
  const ForwardJob job{
      *this,
      local,
      s,
      TiledKeys(s, local, in.k, {.left = true, .right = false}),
      TiledKeys(s, local, in.v, {.left = false, .right = true}),
      result,
      {selected, in.q.dim(0), in.q.dim(1), settings().query_heads_select() ? s.heads : s.kv_heads}};
  const Index runs = sums.runs(), batch = in.q.dim(0), heads = batch * s.kv_heads;
  std::vector<ForwardTask::Counts> of_task(heads * runs);
  // Where runs are gone through in turn, some heads go side by side: their rows lie together.
  constexpr Index kBlocks = 4;
  const auto go = [&](Index first, Index last, Index first_run, Index end_run) {
    std::vector<std::unique_ptr<ForwardTask>> of_heads;
    for (Index head = first; head < last; ++head)
      of_heads.push_back(std::make_unique<ForwardTask>(job, head / s.kv_heads, head % s.kv_heads));
    for (Index run = first_run; run < end_run; ++run)
      for (Index head = first; head < last; ++head)
        of_task[head * runs + run] = of_heads[head - first]->run(run);
  };
  if (sums.in_turn())
    parallel_chunks(heads, (heads + kBlocks - 1) / kBlocks,
                    [&](Index first, Index last) { go(first, last, 0, runs); });
  else  // run by run, for the same reason
    parallel_chunks(heads * runs, 1, [&](Index number, Index) {
      const Index head = number % heads, run = number / heads;
      go(head, head + 1, run, run + 1);
    });
  for (std::size_t i = 0; i < of_task.size(); ++i) {
    const std::size_t sequence = i / static_cast<std::size_t>(s.kv_heads * runs);
    pairs[sequence] += of_task[i].pairs;
    scored[sequence] += of_task[i].scored;
  }
}

}  // namespace focus
