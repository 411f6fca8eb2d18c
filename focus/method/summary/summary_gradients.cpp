#include <algorithm>

#include "autograd/attention/backward_queries.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "focus/method/summary/summary_tokens.h"

// The way back through the summary tokens. What a set of summary tokens owes to the keys and values
// in its means it owes to all of a group alike: dk_j += dkb_c / n_c for each set that has token j,
// of group c. So what a token gets is a sum over the sets from the one on in which it enters the
// distant zone, to the one in which it leaves (with a sliding window): what a run's sets owe
// together is kept, and of those inside a token's own run the sum from its set on. Straight through
// the selection of groups,
//   dO_jc = sum over sets of [ k_j . dkb_c / n_c + v_j . dvb_c / n_c + e_c ],
//   e_c = (sum_i dest_ic - kb_c . dkb_c - vb_c . dvb_c) / n_c
// which is linear in the same sums. Where widths count in scores, the means of the keys' squares
// are one more part of a summary token: half of their variance is (mean of squares - kb^2) / 2.
namespace focus {
namespace {

using namespace tiled;

/// What summary tokens owe: to each key [tokens, head_dim], each value, and each share in the
/// group; where widths count also to half of each key's square.
struct Owed {
  explicit Owed(const GroupSums& sums)
      : keys(Tensor::zeros({sums.groups() + sums.settings().sinks, sums.head_dim()})),
        values(Tensor::zeros(keys.shape())),
        shares(Tensor::zeros({keys.dim(0)})),
        squares(Tensor::zeros(sums.settings().summary_width.empty() ? Shape{0} : keys.shape())) {}
  void add(const Owed& other, Real factor = 1) {
    const simd::Kernels& kernels = simd::kernels();
    kernels.scale_row(other.keys.data(), factor, keys.size(), keys.data(), true);
    kernels.scale_row(other.values.data(), factor, values.size(), values.data(), true);
    kernels.scale_row(other.shares.data(), factor, shares.size(), shares.data(), true);
    kernels.scale_row(other.squares.data(), factor, squares.size(), squares.data(), true);
  }
  Tensor keys, values, shares, squares;
};

struct BackwardJob : SummaryTokens {
  const AttentionResult& result;
  const Tensor& d_out;
  SelectedGroups<const std::uint8_t> selected;
  AttentionGradients tokens;
  Tensor shares{};           // dO [batch, seq_len, kv_heads, groups]; undefined where not wanted
  std::vector<Owed> owed{};  // of each run [batch * kv_heads * runs]
  Tensor d_summary_bias{};   // of each run [batch * kv_heads * runs, groups]
  WantedGradients wanted() const {
    return {tokens.q.defined(), tokens.k.defined(), tokens.v.defined()};
  }
};

/// Adds a row of what is owed to the row of a gradient that begins at `at`, where it is wanted.
void pay(const Tensor& owed, Index row, Tensor& gradient, Index at) {
  if (gradient.defined())
    simd::kernels().scale_row(owed.data() + row * owed.cols(), 1, owed.cols(), gradient.data() + at,
                              true);
}

/// Gives distant tokens [first, last) of a sequence and key head what they are owed.
void give(BackwardJob& job, Index sequence, Index kv_head, Index first, Index last,
          const Owed& owed) {
  if (first >= last) return;
  const GroupSums& sums = job.sums;
  const Index dim = sums.head_dim(), groups = sums.groups(), row = sums.kv_heads() * dim;
  const Index place = (sequence * sums.seq_len() + first) * sums.kv_heads() + kv_head;
  for (Index t = first; t < last; ++t) {
    const Index group = sums.group_of(sequence, kv_head, t);
    const Index to = place * dim + (t - first) * row;
    pay(owed.keys, group, job.tokens.k, to);
    pay(owed.values, group, job.tokens.v, to);
    if (owed.squares.size() == 0 || !job.tokens.k.defined()) continue;
    const Real* key = sums.key(sequence, kv_head, t);
    for (Index d = 0; d < dim; ++d)
      job.tokens.k.data()[to + d] += key[d] * owed.squares[group * dim + d];
  }
  if (!job.shares.defined()) return;
  Real* to = job.shares.data() + place * groups;
  const Index stride = sums.kv_heads() * groups;
  serial::gemm_nt(last - first, groups, dim, sums.key(sequence, kv_head, first), row,
                  owed.keys.data(), dim, to, stride, Into::add);
  serial::gemm_nt(last - first, groups, dim, sums.value(sequence, kv_head, first), row,
                  owed.values.data(), dim, to, stride, Into::add);
  for (Index t = 0; t < last - first; ++t)
    simd::kernels().scale_row(owed.shares.data(), 1, groups, to + t * stride, true);
  if (owed.squares.size() == 0) return;
  Tensor squares({last - first, dim});
  for (Index i = 0; i < squares.size(); ++i) {
    const Real key = sums.key(sequence, kv_head, first)[i / dim * row + i % dim];
    squares.data()[i] = key * key / 2;
  }
  serial::gemm_nt(last - first, groups, dim, squares.data(), dim, owed.squares.data(), dim, to,
                  stride, Into::add);
}

/// A run of queries of one sequence and key head.
class BackwardTask {
 public:
  BackwardTask(BackwardJob& job, Index sequence, Index kv_head)
      : job_(job),
        sequence_(sequence),
        kv_head_(kv_head),
        s_(job.in, {kv_head, 1}),
        tokens_(job.sums, sequence, kv_head, job.summary_bias.data() + kv_head * job.sums.groups()),
        queries_(job.in, s_, HeadBlock(s_, 0, 1)),
        p_(tokens_.most_tokens() * kQueries),
        d_(tokens_.most_tokens() * kQueries),
        capped_(tokens_.most_tokens() * kQueries),
        keys_(tokens_.most_tokens() * s_.padded_dim),
        d_keys_(tokens_.most_tokens() * s_.padded_dim),
        d_values_(tokens_.most_tokens() * s_.padded_dim),
        d_scores_(tokens_.most_tokens()),
        widths_(with_widths() * tokens_.most_tokens() * kQueries),
        d_widths_(with_widths() * tokens_.most_tokens() * kQueries),
        variances_(with_widths() * tokens_.most_tokens() * s_.padded_dim),
        d_variances_(with_widths() * tokens_.most_tokens() * s_.padded_dim),
        squares_(with_widths() * s_.padded_dim * kQueries) {}

  void run(Index run) {
    const Index end = std::min((run + 1) * GroupSums::kRun, job_.sums.seq_len());
    number_ = job_.sums.run_of(sequence_, kv_head_, run);
    sets_.clear();
    tokens_.start(run);
    for (Index begin = run * GroupSums::kRun; begin < end; begin += kQueries)
      tile(begin, std::min(end, begin + kQueries));
    give_inside(run);
  }

 private:
  bool with_widths() const { return !job_.settings().summary_width.empty(); }

  struct OwedBySet {
    Index number;
    GroupSums::Tokens distant;
    Owed owed;
  };

  void tile(Index begin, Index end) {
    bool begun = false;
    const Index row = sequence_ * s_.seq_len + begin;
    tokens_.for_each(begin, end, [&] {
      if (!begun)
        queries_.begin(in_order_, row, row + end - begin, job_.result, job_.d_out,
                       {true, true, true});
      begun = true;
      step(begin, end - begin);
    });
    if (begun && job_.wanted().q) queries_.end(job_.tokens.q, true);
  }

  void step(Index begin, Index rows) {
    const simd::Kernels& kernels = simd::kernels();
    const Index tokens = tokens_.tokens(), dim = s_.head_dim;
    const Visibility& seen = tokens_.seen();
    const Real softcap = job_.in.options.softcap;
    std::fill_n(d_keys_.data(), tokens * s_.padded_dim, Real(0));
    std::fill_n(d_values_.data(), tokens * s_.padded_dim, Real(0));
    std::fill_n(d_scores_.data(), tokens, Real(0));
    kernels.pack(tokens_.keys().data(), dim, tokens, dim, 1, keys_.data());
    if (with_widths()) {
      std::fill_n(d_variances_.data(), tokens * s_.padded_dim, Real(0));
      kernels.pack(tokens_.variances().data(), dim, tokens, dim, 1, variances_.data());
    }
    for (Index g = 0; g < s_.heads_per_kv_head; ++g) {
      tally(s_, seen, rows, with_widths() ? 8 : 5);
      scores(g, begin, p_.data());
      tokens_.products(tokens_.values(), queries_.d_outs(g), d_.data());
      queries_.through_softmax(g, seen, 0, nullptr, simd::GateUse::score, p_.data(), d_.data(),
                               nullptr);
      simd::Panels squared_rows;
      if (with_widths()) squared_rows = squares_of(queries_.query_rows(g));
      for (const KeyBand& band : seen.bands()) {
        const Index depth = std::min(band.end_query, rows) - band.first_query;
        const Index at = band.begin * kQueries + band.first_query;
        for (Index key = band.begin; key < band.end; ++key)  // through log n and summary_bias
          for (Index q = 0; q < depth; ++q)
            d_scores_.data()[key] += d_.data()[key * kQueries + band.first_query + q];
        if (with_widths()) through_widths(g, band, depth, squared_rows);
        if (softcap > 0) through_soft_cap(band, softcap);
        kernels.product(band.end - band.begin, s_.padded_dim, depth, p_.data() + at, kQueries, 1,
                        queries_.d_out_rows(g), band.first_query,
                        d_values_.data() + band.begin * s_.padded_dim, s_.padded_dim,
                        {.any = true});
        kernels.product(band.end - band.begin, s_.padded_dim, depth, d_.data() + at, kQueries, 1,
                        queries_.query_rows(g), band.first_query,
                        d_keys_.data() + band.begin * s_.padded_dim, s_.padded_dim, {.any = true});
      }
      queries_.add_gradient(g, seen, d_.data(), {keys_.data(), tokens, s_.padded_dim});
      if (with_widths())
        queries_.add_gradient_of_squares(
            g, seen, d_widths_.data(), {variances_.data(), tokens, s_.padded_dim}, squares_.data());
    }
    for (const SummaryTokenSets::Set& set : tokens_.sets()) owe(set);
  }

  /// Finished scores of the summary tokens that are read.
  void scores(Index g, Index begin, Real* to) {
    const SummarySettings& options = job_.settings();
    tokens_.scores(queries_.queries(g), job_.in.options.softcap, to);
    if (job_.in.options.softcap > 0) std::copy_n(to, tokens_.tokens() * kQueries, capped_.data());
    if (with_widths()) {
      const simd::Panels queries = squares_of(queries_.queries(g));
      tokens_.widths(queries, to, job_.in.options.softcap, widths_.data());
      simd::kernels().scale_row(widths_.data(), share_of(g), tokens_.tokens() * kQueries, to, true);
    }
    tokens_.add_bias(to, nullptr);
    const Index head = kv_head_ * s_.heads_per_kv_head + g;
    for (const SummaryTokenSets::Set& set : tokens_.sets())
      tokens_.hide_read(set, begin, job_.selected, options.query_heads_select() ? head : kv_head_,
                        options.selected_of(head), options.unselected_groups, to);
  }

  Real share_of(Index g) const {
    return job_.settings().summary_width_of(kv_head_ * s_.heads_per_kv_head + g);
  }
  simd::Panels squares_of(simd::Panels x) {
    for (Index i = 0; i < x.rows * x.columns; ++i) squares_.data()[i] = x.data[i] * x.data[i];
    x.data = squares_.data();
    return x;
  }
  /// From the scores to the widths, their share of the scores, and on to variances and, through the
  /// slope of the soft-cap, to the scores without them.
  void through_widths(Index g, const KeyBand& band, Index depth, const simd::Panels& squared_rows) {
    const Real share = share_of(g), softcap = job_.in.options.softcap;
    for (Index key = band.begin; key < band.end; ++key)
      for (Index at = key * kQueries + band.first_query; at < key * kQueries + band.end_query;
           ++at) {
        Real& d = d_.data()[at];
        d_widths_.data()[at] = share * d;
        if (softcap <= 0) continue;
        const Real s = capped_.data()[at] / softcap, slope = 1 - s * s;
        d_widths_.data()[at] *= slope * slope;
        if (slope > 0) d -= 4 * share * d * s / (softcap * slope) * widths_.data()[at];
      }
    simd::kernels().product(band.end - band.begin, s_.padded_dim, depth,
                            d_widths_.data() + band.begin * kQueries + band.first_query, kQueries,
                            1, squared_rows, band.first_query,
                            d_variances_.data() + band.begin * s_.padded_dim, s_.padded_dim,
                            {.any = true});
  }

  void through_soft_cap(const KeyBand& band, Real softcap) {
    for (Index key = band.begin; key < band.end; ++key)
      for (Index q = band.first_query; q < band.end_query; ++q) {
        const Real s = capped_.data()[key * kQueries + q] / softcap;
        d_.data()[key * kQueries + q] *= 1 - s * s;
      }
  }

  /// From a set's gradients to what it owes.
  void owe(const SummaryTokenSets::Set& set) {
    const simd::Kernels& kernels = simd::kernels();
    const Index groups = job_.sums.groups(), dim = s_.head_dim;
    if (sets_.empty() || sets_.back().number != set.number)
      sets_.push_back({set.number, set.distant, Owed(job_.sums)});
    Owed& owed = sets_.back().owed;  // a set that continues from tile to tile owes for both
    for (Index c = 0; c < tokens_.width(); ++c) {
      const Real* d_key = d_keys_.data() + (set.first + c) * s_.padded_dim;
      const Real* d_value = d_values_.data() + (set.first + c) * s_.padded_dim;
      const Real d_score = d_scores_.data()[set.first + c];
      Real share = 1;
      if (c < groups) {
        const Index n = tokens_.counts(set)[c];
        if (n == 0) continue;
        share = 1 / static_cast<Real>(n);
        const Real through_squares =
            with_widths() ? owe_squares(set.first + c, share, owed.squares.data() + c * dim) : 0;
        const Real through_means =
            through_squares +
            kernels.dot_row(tokens_.keys().data() + (set.first + c) * dim, d_key, dim) +
            kernels.dot_row(tokens_.values().data() + (set.first + c) * dim, d_value, dim);
        owed.shares.data()[c] += share * (d_score - through_means);
        job_.d_summary_bias.data()[number_ * groups + c] += d_score;
      }
      kernels.scale_row(d_key, share, dim, owed.keys.data() + c * dim, true);
      kernels.scale_row(d_value, share, dim, owed.values.data() + c * dim, true);
    }
  }

  /// From a variance to the mean key, which it adds, and to what is owed to half of each square;
  /// returns (mean of squares) . (its gradient).
  Real owe_squares(Index token, Real share, Real* owed) {
    const Real* key = tokens_.keys().data() + token * s_.head_dim;
    const Real* variance = tokens_.variances().data() + token * s_.head_dim;  // halved
    const Real* d_variance = d_variances_.data() + token * s_.padded_dim;
    Real* d_key = d_keys_.data() + token * s_.padded_dim;
    Real through = 0;
    for (Index d = 0; d < s_.head_dim; ++d) {
      d_key[d] -= key[d] * d_variance[d];
      owed[d] += share * d_variance[d];
      through += (variance[d] + key[d] * key[d] / 2) * d_variance[d];
    }
    return through;
  }

  /// Gives the tokens that enter or leave the distant zone inside the run what the sets before or
  /// after do not owe them, and leaves what all sets owe together.
  void give_inside(Index run) {
    Owed& all = job_.owed[number_];
    for (std::size_t i = sets_.size(); i-- > 0;) {
      const OwedBySet& set = sets_[i];
      const GroupSums::Tokens before =
          i > 0 ? sets_[i - 1].distant : job_.sums.distant_of(run * GroupSums::kRun);
      all.add(set.owed);
      give(job_, sequence_, kv_head_, std::max(set.distant.first, before.last), set.distant.last,
           all);
      const Index left = std::min(set.distant.first, before.last);
      if (before.first >= left) continue;
      Owed minus(job_.sums);
      minus.add(all, -1);
      give(job_, sequence_, kv_head_, before.first, left, minus);
    }
  }

  BackwardJob& job_;
  const AttentionPlan in_order_;
  const Index sequence_, kv_head_;
  const Sizes s_;
  SummaryTokenSets tokens_;
  BackwardQueries queries_;
  Scratch p_, d_, capped_;            // [tokens, queries]
  Scratch keys_, d_keys_, d_values_;  // [tokens, padded_dim]
  Scratch d_scores_;                  // [tokens]
  // Where widths count: like p_; like keys_; of a head's queries.
  Scratch widths_, d_widths_, variances_, d_variances_, squares_;
  Index number_ = 0;             // of the run, among all
  std::vector<OwedBySet> sets_;  // of the run
};

/// What runs owe to the tokens that were in the distant zone when they began, and to the sinks.
void give_across_runs(BackwardJob& job, Index sequence, Index kv_head) {
  const GroupSums& sums = job.sums;
  const Index runs = sums.runs(), groups = sums.groups(), sinks = sums.settings().sinks;
  const Index dim = sums.head_dim();
  const auto owed_by = [&](Index run) -> const Owed& {
    return job.owed[sums.run_of(sequence, kv_head, run)];
  };
  const Index window = sums.settings().sliding_window;
  Owed later(sums);
  for (Index run = runs - 2; run >= 0; --run) {  // those that stay get what later runs owe
    const auto [first, last] = sums.entering(run);
    later.add(owed_by(run + 1));
    if (window == 0) {
      give(job, sequence, kv_head, first, last, later);
      continue;
    }
    for (Index t = first; t < last;) {  // to the last run at whose beginning the token is seen
      const Index last_run = std::min(runs - 1, (t + window - 1) / GroupSums::kRun);
      const Index next = std::min(last, (last_run + 1) * GroupSums::kRun - window + 1);
      Owed between(sums);
      for (Index r = run + 1; r <= last_run; ++r) between.add(owed_by(r));
      const Index end = last_run == runs - 1 ? last : std::max(t + 1, next);
      give(job, sequence, kv_head, t, end, between);
      t = end;
    }
  }
  for (Index run = 0; run < runs; ++run)
    for (Index sink = 0; sink < std::min(sinks, sums.seq_len()); ++sink) {
      const Index to = ((sequence * sums.seq_len() + sink) * sums.kv_heads() + kv_head) * dim;
      pay(owed_by(run).keys, groups + sink, job.tokens.k, to);
      pay(owed_by(run).values, groups + sink, job.tokens.v, to);
    }
}

}  // namespace

SummaryTokens::Gradients SummaryTokens::backward(const AttentionResult& result, const Tensor& d_out,
                                                 std::span<const std::uint8_t> selected,
                                                 bool shares_wanted,
                                                 AttentionGradients onto) const {
  const Index heads = in.q.dim(0) * sums.kv_heads(), runs = sums.runs();
  const Index groups = sums.groups();
  BackwardJob job{*this,
                  result,
                  d_out,
                  {selected, in.q.dim(0), in.q.dim(1),
                   settings().query_heads_select() ? in.q.dim(2) : in.k.dim(2)},
                  std::move(onto)};
  if (shares_wanted)
    job.shares = Tensor::zeros({in.q.dim(0), sums.seq_len(), sums.kv_heads(), groups});
  job.d_summary_bias = Tensor::zeros({heads * runs, groups});
  for (Index i = 0; i < heads * runs; ++i) job.owed.emplace_back(sums);
  // A token enters in one run and may leave in another: with a sliding window one after the other.
  const Index together = sums.settings().sliding_window > 0 ? runs : 1;
  parallel_chunks(heads * runs, together, [&](Index begin, Index end) {
    const Index head = begin / runs;
    BackwardTask task(job, head / sums.kv_heads(), head % sums.kv_heads());
    for (Index number = begin; number < end; ++number) task.run(number % runs);
  });
  parallel_chunks(heads, 1, [&](Index head, Index) {
    give_across_runs(job, head / sums.kv_heads(), head % sums.kv_heads());
  });
  Tensor d_summary_bias = Tensor::zeros(summary_bias.shape());
  for (Index number = 0; number < heads * runs; ++number)
    for (Index c = 0; c < groups; ++c)
      d_summary_bias.data()[number / runs % sums.kv_heads() * groups + c] +=
          job.d_summary_bias[number * groups + c];
  return {.tokens = job.tokens, .summary_bias = d_summary_bias, .shares = job.shares};
}

}  // namespace focus
