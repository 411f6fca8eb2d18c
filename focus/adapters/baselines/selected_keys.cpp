#include "focus/adapters/baselines/selected_keys.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/attention/tiled_attention.h"
#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/simd/kernels.h"
#include "autograd/soft_cap.h"

namespace focus {

HeadView head_view(const Tensor& q, const Tensor& k, const Tensor& v, Index sequence,
                   Index kv_head) {
  const Index seq_len = q.dim(1), heads = q.dim(2), head_dim = q.dim(3), kv_heads = k.dim(2);
  const Index query_heads = heads / kv_heads;
  const Index key = (sequence * seq_len * kv_heads + kv_head) * head_dim;
  return {.q = q.data() + (sequence * seq_len * heads + kv_head * query_heads) * head_dim,
          .k = k.data() + key,
          .v = v.data() + key,
          .q_stride = heads * head_dim,
          .kv_stride = kv_heads * head_dim,
          .query_heads = query_heads,
          .head_dim = head_dim};
}

Real capped(Real s, const AttentionOptions& options) { return soft_cap(s, options.softcap); }

Real score(const Real* q, const Real* k, Index head_dim, const AttentionOptions& options) {
  Real dot = 0;
  for (Index d = 0; d < head_dim; ++d) dot += q[d] * k[d];
  return capped(options.scale * dot, options);
}

void softmax_in_place(std::vector<Real>& scores) {
  const Real max = *std::ranges::max_element(scores);
  double sum = 0;
  for (Real& s : scores) {
    s = std::exp(s - max);
    sum += static_cast<double>(s);
  }
  for (Real& s : scores) s = static_cast<Real>(static_cast<double>(s) / sum);
}

void refuse_gradients(const char* op, const Variable& q, const Variable& k, const Variable& v) {
  check(!grad_enabled() || !(q.requires_grad() || k.requires_grad() || v.requires_grad()),
        "{}: selects tokens at inference and has no gradient; train with another attention", op);
}

std::int64_t distant_blocks(const LocalZone& local, Index size, Index seq_len,
                            Index sliding_window) {
  std::int64_t blocks = 0;
  for (Index token = 0; token < seq_len; ++token) {
    const KeyRange distant = local.distant(token, sliding_window);
    blocks += distant.end / size - distant.begin / size;
  }
  return blocks;
}

PairCounts pairs_of_heads(Index batch, Index seq_len, Index heads, Index sliding_window,
                          std::int64_t attended) {
  PairCounts counts;
  for (Index s = 0; s < batch; ++s) counts += count_pairs({}, seq_len, seq_len, sliding_window);
  counts.attended = (attended + heads / 2) / std::max<Index>(1, heads);
  return counts;
}

namespace {

constexpr Index kRunQueries = 32;

/// A run of queries from their scores to their outputs.
class RunOfQueries {
 public:
  RunOfQueries(const HeadView& head, const AttentionOptions& options, const LocalZone& local,
               Index sequence, Index kv_head, Index begin, Index end)
      : options_(options),
        local_(local),
        kernels_(simd::kernels()),
        stride_(simd::padded(kernels_, end)),
        scores_(static_cast<std::size_t>(head.query_heads * (end - begin) * stride_), 0),
        marks_(static_cast<std::size_t>(head.query_heads * stride_)),
        run_{.head = head,
             .sequence = sequence,
             .kv_head = kv_head,
             .begin = begin,
             .end = end,
             .sliding_window = options.sliding_window,
             .scores = scores_.data(),
             .stride = stride_} {
    scores_of_run(head, options, begin, end, scores_.data(), stride_);
  }

  /// Writes the heads' rows of out and returns the pairs read.
  std::int64_t attend(const SelectionOfRun& selection_of, Real* out) {
    const HeadView& head = run_.head;
    const KeySelection selection = selection_of(run_);
    std::int64_t pairs = 0;
    KeysRead read(marks_, stride_);
    std::vector<Real> sums(static_cast<std::size_t>(head.query_heads * (run_.end - run_.begin)));
    for (Index i = run_.begin; i < run_.end; ++i) {
      const Index first = first_visible(i, options_.sliding_window);
      const KeyRange distant = local_.distant(i, options_.sliding_window);
      read.begin({first, distant.begin}, distant, {distant.end, i + 1});
      if (distant.size() > 0) selection(i, distant, read);
      for (Index h = 0; h < head.query_heads; ++h)
        sums[static_cast<std::size_t>(h * (run_.end - run_.begin) + i - run_.begin)] =
            weigh(row(i, h), read.marks(h), pairs);
    }
    for (Index h = 0; h < head.query_heads; ++h) {
      Real* to = out + run_.begin * head.q_stride + h * head.head_dim;
      const Index rows = run_.end - run_.begin;
      serial::gemm(rows, head.head_dim, run_.end, row(run_.begin, h), stride_, head.v,
                   head.kv_stride, to, head.q_stride);
      kernels_.divide_rows(rows, head.head_dim, to, head.q_stride, sums.data() + h * rows, 1, to,
                           head.q_stride);
    }
    return pairs;
  }

 private:
  Real* row(Index token, Index query_head) {
    return scores_.data() + (query_head * (run_.end - run_.begin) + token - run_.begin) * stride_;
  }
  /// Scores become e^(s - max), 0 where they are not read. Returns their sum.
  Real weigh(Real* scores, const std::uint8_t* marks, std::int64_t& pairs) {
    constexpr Real kNone = -std::numeric_limits<Real>::infinity();
    Index count = 0;
    for (Index j = 0; j < stride_; ++j) {
      scores[j] = marks[j] != 0 ? scores[j] : kNone;
      count += marks[j];
    }
    pairs += count;
    Real max = kNone, sum = 0;
    kernels_.softmax_row(scores, stride_, max, sum);
    return sum;
  }

  const AttentionOptions& options_;
  const LocalZone& local_;
  const simd::Kernels& kernels_;
  Index stride_;
  std::vector<Real> scores_;         // [query_heads, end - begin, stride]
  std::vector<std::uint8_t> marks_;  // [query_heads, stride]
  QueryRun run_;
};

}  // namespace

void scores_of_run(const HeadView& head, const AttentionOptions& options, Index begin, Index end,
                   Real* scores, Index stride) {
  const simd::Kernels& kernels = simd::kernels();
  const Index rows = end - begin, all = head.query_heads * rows * stride;
  for (Index h = 0; h < head.query_heads; ++h)
    serial::gemm_nt(rows, end, head.head_dim, head.query(begin, h), head.q_stride, head.k,
                    head.kv_stride, scores + h * rows * stride, stride);
  kernels.scale_row(scores, options.scale, all, scores, false);
  if (options.softcap > 0) kernels.softcap_row(scores, all, options.softcap);
}

void weights_of_seen(const Real* scores, KeyRange seen, Real* weights, Index stride) {
  constexpr Real kNone = -std::numeric_limits<Real>::infinity();
  std::fill_n(weights, stride, kNone);
  std::copy(scores + seen.begin, scores + seen.end, weights + seen.begin);
  Real max = kNone, sum = 0;
  simd::kernels().softmax_row(weights, stride, max, sum);
  simd::kernels().scale_row(weights, 1 / sum, stride, weights, false);
}

void KeysRead::begin(KeyRange sinks, KeyRange distant, KeyRange local) {
  std::ranges::fill(marks_, std::uint8_t{0});
  distant_ = {0, local.end};
  add_for_all_heads(sinks);
  add_for_all_heads(local);
  distant_ = distant;
}

void KeysRead::add(Index query_head, KeyRange keys) {
  const Index begin = std::max(keys.begin, distant_.begin), end = std::min(keys.end, distant_.end);
  if (begin < end)
    std::fill_n(marks_.data() + query_head * stride_ + begin, end - begin, std::uint8_t{1});
}

void KeysRead::add_for_all_heads(KeyRange keys) {
  const auto heads = static_cast<Index>(marks_.size()) / stride_;
  for (Index h = 0; h < heads; ++h) add(h, keys);
}

std::span<const Index> LargestOf::operator()(const Real* values, KeyRange places, Index count) {
  order_.resize(static_cast<std::size_t>(places.size()));
  std::iota(order_.begin(), order_.end(), places.begin);
  if (count >= places.size()) return order_;
  std::ranges::nth_element(order_, order_.begin() + count, [values](Index a, Index b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  return std::span(order_).first(static_cast<std::size_t>(count));
}

Variable attend_selected(const char* op, const Variable& q, const Variable& k, const Variable& v,
                         const AttentionOptions& options, const LocalZone& local,
                         const SelectionOfRun& selection, PairCounts* pairs) {
  check_attention_inputs({q.value(), k.value(), v.value(), options});
  refuse_gradients(op, q, k, v);
  const Index batch = q.dim(0), seq_len = q.dim(1), kv_heads = k.dim(2);
  const Index runs = (seq_len + kRunQueries - 1) / kRunQueries;
  Tensor out(q.shape());
  std::vector<std::int64_t> read(static_cast<std::size_t>(batch * kv_heads * runs));
  parallel_chunks(static_cast<Index>(read.size()), 1, [&, out = out.data()](Index task, Index) {
    const Index sequence = task / runs / kv_heads, kv_head = task / runs % kv_heads;
    const Index begin = task % runs * kRunQueries, end = std::min(seq_len, begin + kRunQueries);
    const HeadView head = head_view(q.value(), k.value(), v.value(), sequence, kv_head);
    read[static_cast<std::size_t>(task)] =
        RunOfQueries(head, options, local, sequence, kv_head, begin, end)
            .attend(selection, out + (head.q - q.value().data()));
  });
  if (pairs != nullptr)
    *pairs = pairs_of_heads(batch, seq_len, q.dim(2), options.sliding_window,
                            std::reduce(read.begin(), read.end()));
  return Variable(out);
}

}  // namespace focus
