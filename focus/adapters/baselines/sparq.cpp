#include "focus/adapters/baselines/sparq.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/attention/tiled_attention.h"
#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "focus/adapters/baselines/selected_keys.h"
#include "focus/adapters/mechanism.h"

namespace focus {
namespace {

constexpr Index kQueries = 32;  // of a task

/// Sums of the values of the tokens before each: [seq_len + 1, head_dim].
std::vector<double> value_sums(const HeadView& head, Index seq_len) {
  std::vector<double> sums(static_cast<std::size_t>((seq_len + 1) * head.head_dim), 0);
  for (Index t = 0; t < seq_len; ++t)
    for (Index d = 0; d < head.head_dim; ++d)
      sums[static_cast<std::size_t>((t + 1) * head.head_dim + d)] =
          sums[static_cast<std::size_t>(t * head.head_dim + d)] +
          static_cast<double>(head.value(t)[d]);
  return sums;
}

/// The `count` entries that are the largest by `value`, the first of equals, in their order.
template <class F>
std::vector<Index> largest(Index begin, Index end, Index count, F&& value) {
  std::vector<Index> order(static_cast<std::size_t>(end - begin));
  std::iota(order.begin(), order.end(), begin);
  if (count < end - begin) {
    std::ranges::nth_element(order, order.begin() + count, [&](Index a, Index b) {
      return value(a) != value(b) ? value(a) > value(b) : a < b;
    });
    order.resize(static_cast<std::size_t>(std::max<Index>(0, count)));
    std::ranges::sort(order);
  }
  return order;
}

class Task {
 public:
  Task(const HeadView& head, const AttentionOptions& options, const SparqConfig& config,
       const std::vector<double>& sums, Index begin, Index end)
      : head_(head), options_(options), config_(config), sums_(sums), begin_(begin), end_(end) {
    approximate();
  }

  /// Writes the heads' rows of out and returns the pairs attended.
  std::int64_t run(Real* out) {
    std::int64_t attended = 0;
    for (Index i = begin_; i < end_; ++i) {
      const std::vector<Index> selected = select(i);
      attended += head_.query_heads * static_cast<Index>(selected.size());
      for (Index h = 0; h < head_.query_heads; ++h)
        attend(i, h, selected, out + i * head_.q_stride + h * head_.head_dim);
    }
    return attended;
  }

 private:
  /// s^ of the task's queries and all keys up to its end.
  void approximate() {
    const Index d = head_.head_dim, rows = end_ - begin_;
    approximate_.resize(static_cast<std::size_t>(head_.query_heads * rows * end_));
    std::vector<Real> reduced(static_cast<std::size_t>(rows * head_.query_heads * d), 0);
    std::vector<Real> scales(static_cast<std::size_t>(rows * head_.query_heads));
    for (Index i = begin_; i < end_; ++i) {
      const auto magnitude = [&](Index c) {
        Real sum = 0;
        for (Index h = 0; h < head_.query_heads; ++h) sum += std::abs(head_.query(i, h)[c]);
        return sum;
      };
      const std::vector<Index> kept = largest(0, d, std::min(d, config_.rank), magnitude);
      for (Index h = 0; h < head_.query_heads; ++h) {
        const Real* q = head_.query(i, h);
        const Index row = h * rows + i - begin_;
        Real all = 0, some = 0;
        for (Index c = 0; c < d; ++c) all += std::abs(q[c]);
        for (const Index c : kept) {
          some += std::abs(q[c]);
          reduced[static_cast<std::size_t>(row * d + c)] = q[c];
        }
        const bool whole = static_cast<Index>(kept.size()) == d || some == 0;
        scales[static_cast<std::size_t>(row)] =
            whole ? options_.scale : options_.scale * std::sqrt(all / some);
      }
    }
    serial::gemm_nt(head_.query_heads * rows, end_, d, reduced.data(), d, head_.k, head_.kv_stride,
                    approximate_.data(), end_);
    for (Index row = 0; row < head_.query_heads * rows; ++row) {
      const Index i = begin_ + row % rows, first = first_visible(i, options_.sliding_window);
      Real* s = approximate_.data() + row * end_;
      std::vector<Real> visible(s + first, s + i + 1);
      for (Real& x : visible) x = capped(scales[static_cast<std::size_t>(row)] * x, options_);
      softmax_in_place(visible);
      std::ranges::copy(visible, s + first);
    }
  }
  const Real* approximate_row(Index i, Index h) const {
    return approximate_.data() + (h * (end_ - begin_) + i - begin_) * end_;
  }

  /// i2 of token i, in order.
  std::vector<Index> select(Index i) const {
    const Index first = first_visible(i, options_.sliding_window), count = i + 1 - first;
    const Index tokens = std::min(count, config_.tokens);
    const Index local = std::min(tokens, config_.last_keys);
    const auto weight = [&](Index j) {
      Real sum = 0;
      for (Index h = 0; h < head_.query_heads; ++h) sum += approximate_row(i, h)[j];
      return sum;
    };
    std::vector<Index> selected = largest(first, i + 1 - local, tokens - local, weight);
    for (Index j = i + 1 - local; j <= i; ++j) selected.push_back(j);
    return selected;
  }

  void attend(Index i, Index h, const std::vector<Index>& selected, Real* out) const {
    const Index first = first_visible(i, options_.sliding_window), d = head_.head_dim;
    std::vector<Real> weights;
    double share = 0;
    for (const Index j : selected) {
      weights.push_back(score(head_.query(i, h), head_.key(j), d, options_));
      share += static_cast<double>(approximate_row(i, h)[j]);
    }
    softmax_in_place(weights);
    if (!config_.reallocate || static_cast<Index>(selected.size()) == i + 1 - first) share = 1;
    std::fill_n(out, d, Real(0));
    for (std::size_t n = 0; n < selected.size(); ++n)
      for (Index c = 0; c < d; ++c) out[c] += weights[n] * head_.value(selected[n])[c];
    for (Index c = 0; c < d; ++c) {
      const double mean = (sums_[static_cast<std::size_t>((i + 1) * d + c)] -
                           sums_[static_cast<std::size_t>(first * d + c)]) /
                          static_cast<double>(i + 1 - first);
      out[c] = static_cast<Real>(share * static_cast<double>(out[c]) + (1 - share) * mean);
    }
  }

  const HeadView& head_;
  const AttentionOptions& options_;
  const SparqConfig& config_;
  const std::vector<double>& sums_;
  Index begin_, end_;
  std::vector<Real> approximate_;  // [query_heads, end - begin, end]
};

}  // namespace

void SparqConfig::validate() const {
  check(tokens >= 1 && rank >= 1 && last_keys >= 0,
        "sparq: tokens and rank must be at least 1, last_keys at least 0");
}

Variable sparq_attention(const Variable& q, const Variable& k, const Variable& v,
                         const AttentionOptions& options, const SparqConfig& config,
                         PairCounts* pairs) {
  check_attention_inputs({q.value(), k.value(), v.value(), options});
  refuse_gradients("sparq", q, k, v);
  const Index batch = q.dim(0), seq_len = q.dim(1), kv_heads = k.dim(2);
  std::vector<std::vector<double>> sums(static_cast<std::size_t>(batch * kv_heads));
  const auto view = [&](Index n) {
    return head_view(q.value(), k.value(), v.value(), n / kv_heads, n % kv_heads);
  };
  parallel_chunks(batch * kv_heads, 1, [&](Index first, Index last) {
    for (Index n = first; n < last; ++n)
      sums[static_cast<std::size_t>(n)] = value_sums(view(n), seq_len);
  });
  Tensor out(q.shape());
  const Index tasks = (seq_len + kQueries - 1) / kQueries;
  std::vector<std::int64_t> attended(static_cast<std::size_t>(batch * kv_heads * tasks));
  parallel_chunks(static_cast<Index>(attended.size()), 1,
                  [&, out = out.data()](Index first, Index last) {
                    for (Index task = first; task < last; ++task) {
                      const Index n = task / tasks, begin = task % tasks * kQueries;
                      const HeadView head = view(n);
                      attended[static_cast<std::size_t>(task)] =
                          Task(head, options, config, sums[static_cast<std::size_t>(n)], begin,
                               std::min(seq_len, begin + kQueries))
                              .run(out + (head.q - q.value().data()));
                    }
                  });
  if (pairs != nullptr)
    *pairs = pairs_of_heads(batch, seq_len, q.dim(2), options.sliding_window,
                            std::reduce(attended.begin(), attended.end()));
  return Variable(out);
}

namespace {

class SparqMechanism final : public Mechanism {
 public:
  using Settings = SparqConfig;
  SparqMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("sparq", settings, shape), config_(settings) {}

  std::string name() const override {
    return fmt::format("sparq k={} r={}{}", config_.tokens, config_.rank,
                       config_.reallocate ? " mean" : "");
  }

 protected:
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    return sparq_attention(in.q, in.k, in.v, in.options, config_, pairs);
  }
  /// Every pair by `rank` numbers of the query.
  double multiply_adds_to_select(const MechanismInputs& in,
                                 const PairCounts& pairs) const override {
    return static_cast<double>(pairs.all * in.q.dim(2) * std::min(config_.rank, in.q.dim(3)));
  }

 private:
  const Settings config_;
};

}  // namespace

AdapterKind sparq_kind() {
  return mechanism_kind<SparqMechanism>("sparq", "token selection at inference (SparQ)",
                                        AdapterRole::selection);
}

}  // namespace focus
