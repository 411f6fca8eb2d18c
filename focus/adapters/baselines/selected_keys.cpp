#include "focus/adapters/baselines/selected_keys.h"

#include <numeric>

#include "autograd/attention/tiled_attention.h"
#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/simd/kernels.h"

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

std::int64_t LocalZone::distant_blocks(Index seq_len, Index sliding_window) const {
  std::int64_t blocks = 0;
  for (Index token = 0; token < seq_len; ++token) {
    const KeyRange keys = distant(token, sliding_window);
    blocks += keys.end / block - keys.begin / block;
  }
  return blocks;
}

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
  std::fill_n(weights, stride, kNotRead);
  std::copy(scores + seen.begin, scores + seen.end, weights + seen.begin);
  Real max = kNotRead, sum = 0;
  simd::kernels().softmax_row(weights, stride, max, sum);
  simd::kernels().scale_row(weights, 1 / sum, stride, weights, false);
}

namespace {

/// Goes over a run from its scores to the rows of out, and returns the pairs read.
std::int64_t attend_run(QueryRun run, KeyReader& reader, Real* out) {
  const simd::Kernels& kernels = simd::kernels();
  const HeadView& head = run.head;
  const Index rows = run.rows();
  std::vector<Real> scores(head.query_heads * rows * run.stride, 0);
  run.scores = scores.data();
  scores_of_run(head, run.options, run.begin, run.end, scores.data(), run.stride);
  reader.enter(run);
  std::int64_t pairs = 0;
  std::vector<Real> sums(head.query_heads * rows);
  for (Index i = run.begin; i < run.end; ++i)
    for (Index h = 0; h < head.query_heads; ++h) {
      Real* row = scores.data() + (h * rows + i - run.begin) * run.stride;
      const KeyRange seen = seen_keys(i, run.options.sliding_window);
      std::fill_n(row, seen.begin, kNotRead);
      std::fill(row + seen.end, row + run.stride, kNotRead);
      reader.read(i, h, row);
      pairs += run.stride - std::count(row, row + run.stride, kNotRead);
      Real max = kNotRead, sum = 0;
      kernels.softmax_row(row, run.stride, max, sum);
      reader.reweigh(i, h, row, sum);
      sums[h * rows + i - run.begin] = sum;
    }
  for (Index h = 0; h < head.query_heads; ++h) {
    Real* to = out + run.begin * head.q_stride + h * head.head_dim;
    serial::gemm(rows, head.head_dim, run.end, scores.data() + h * rows * run.stride, run.stride,
                 head.v, head.kv_stride, to, head.q_stride);
    kernels.divide_rows(rows, head.head_dim, to, head.q_stride, sums.data() + h * rows, 1, to,
                        head.q_stride);
  }
  return pairs;
}

}  // namespace

Variable attend_selected(std::string_view op, const MechanismInputs& in,
                         const std::function<std::unique_ptr<KeyReader>()>& make_reader,
                         PairCounts* pairs, Index run_queries) {
  const Tensor &q = in.q.value(), &k = in.k.value(), &v = in.v.value();
  check_attention_inputs({q, k, v, in.options});
  check(!grad_enabled() || !(in.q.requires_grad() || in.k.requires_grad() || in.v.requires_grad()),
        "{}: selects tokens at inference and has no gradient; train with another attention", op);
  const Index batch = q.dim(0), seq_len = q.dim(1), runs = (seq_len - 1) / run_queries + 1;
  Tensor out(q.shape());
  std::vector<std::int64_t> read(batch * runs, 0);
  parallel_chunks(batch * runs, 1, [&, out = out.data()](Index task, Index) {
    const Index begin = task % runs * run_queries, end = std::min(seq_len, begin + run_queries);
    const auto reader = make_reader();
    for (Index kv_head = 0; kv_head < k.dim(2); ++kv_head) {
      const HeadView head = head_view(q, k, v, task / runs, kv_head);
      read[task] += attend_run({head, task / runs, kv_head, begin, end, in.options, nullptr,
                                simd::padded(simd::kernels(), end)},
                               *reader, out + (head.q - q.data()));
    }
  });
  if (pairs != nullptr) {
    *pairs = all_pairs(in);
    pairs->attended = (std::reduce(read.begin(), read.end()) + q.dim(2) / 2) / q.dim(2);
  }
  return Variable(out);
}

void LargestBlocks::enter(const QueryRun& run) {
  run_ = &run;
  score_(run, scores_);
}

void LargestBlocks::read(Index token, Index query_head, Real* scores) {
  if (query_head == 0 || scores_.heads > 1) {
    const Index size = local_.block;
    const KeyRange seen = seen_keys(token, run_->options.sliding_window);
    const KeyRange distant = local_.distant(token, run_->options.sliding_window);
    marks_.assign(run_->stride, 0);
    const auto mark = [&](Index begin, Index end) {
      if (begin < end) std::fill_n(marks_.begin() + begin, end - begin, std::uint8_t{1});
    };
    mark(seen.begin, distant.begin);
    mark(distant.end, seen.end);
    const Real* of_blocks =
        scores_.numbers.data() +
        ((scores_.heads > 1 ? query_head : 0) * run_->rows() + token - run_->begin) *
            scores_.stride;
    if (distant.size() > 0)
      for (const Index block :
           largest_of(of_blocks, {distant.begin / size, distant.end / size}, count_, order_))
        mark(std::max(block * size, distant.begin), std::min((block + 1) * size, distant.end));
  }
  for (std::size_t j = 0; j < marks_.size(); ++j) scores[j] = marks_[j] != 0 ? scores[j] : kNotRead;
}

Variable attend_largest(std::string_view op, const MechanismInputs& in, const LocalZone& local,
                        Index count, const LargestBlocks::Score& score, PairCounts* pairs) {
  return attend_selected(
      op, in, [&] { return std::make_unique<LargestBlocks>(local, count, score); }, pairs);
}

KeyBlocks::KeyBlocks(const Tensor& k, Index size, Index numbers_of_block,
                     const std::function<void(const Real* keys, Index stride, Real* to)>& make)
    : blocks(k.dim(1) / size), width(numbers_of_block), kv_heads(k.dim(2)) {
  const Index stride = kv_heads * k.dim(3), all = k.dim(0) * kv_heads;
  numbers.resize(all * blocks * width, 0);
  parallel_chunks(all, 1, [&](Index n, Index) {
    const Real* keys = k.data() + n / kv_heads * k.dim(1) * stride + n % kv_heads * k.dim(3);
    for (Index block = 0; block < blocks; ++block)
      make(keys + block * size * stride, stride, numbers.data() + (n * blocks + block) * width);
  });
}

std::span<const Index> largest_of(const Real* values, KeyRange places, Index count,
                                  std::vector<Index>& order) {
  order.resize(places.size());
  std::iota(order.begin(), order.end(), places.begin);
  if (count >= places.size()) return order;
  std::ranges::nth_element(order, order.begin() + count, [values](Index a, Index b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  return std::span(order).first(count);
}

}  // namespace focus
