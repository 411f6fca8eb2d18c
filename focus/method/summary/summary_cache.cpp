#include "focus/method/summary/summary_cache.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/simd/kernels.h"

namespace focus {
namespace {

constexpr Real kNone = -std::numeric_limits<Real>::infinity();
/// Tokens that leave a group's sums before these are summed again: what rounding leaves is not
/// carried on.
constexpr Index kMostRemoved = 64;
/// Multiply-adds that are worth waking a thread for.
constexpr Index kTaskWork = 1 << 16;
/// What adding a number of a token's key and value costs, in multiply-adds.
constexpr Index kAppendWork = 8;

/// How many pieces of so much work are one task.
Index tasks(Index work) { return std::max<Index>(1, kTaskWork / std::max<Index>(1, work)); }

}  // namespace

SummaryCache::SummaryCache(const Sizes& sizes, const AttentionOptions& options,
                           const SummarySettings& summary, CacheDtype dtype, Index undo,
                           Tensor centroids)
    : sizes_(sizes),
      attention_(options),
      options_(with_sliding_window(summary, options.sliding_window)),
      padded_dim_(padded_in_cache(dtype, sizes.head_dim)),
      undo_(undo),
      centroids_(std::move(centroids)),
      heads_(sizes.kv_heads),
      distant_end_(options_.sinks) {
  sizes.validate();
  Group empty(dtype);
  empty.sums.of.assign((options_.uses_width() ? 3 : 2) * sizes.head_dim, 0.0);
  for (Head& head : heads_) {
    head.groups.assign(sizes.groups, empty);
    for (Group& group : head.groups)
      if (dtype == CacheDtype::q4)
        group.rows.centroid = centroids_.data() + ((&head - heads_.data()) * sizes.groups +
                                                   (&group - head.groups.data())) *
                                                      sizes.head_dim;
    head.means.end = sizes.groups;
    head.means.keys.resize(sizes.groups * padded_dim_);
    head.means.values.resize(sizes.groups * padded_dim_);
    if (options_.uses_width()) head.variances.assign(sizes.groups * padded_dim_, Real(0));
    head.log_counts.assign(head.groups.size(), kNone);
  }
  if (undo_ > 0) add_checkpoint();
}

std::size_t SummaryCache::bytes() const {
  const auto of_rows = [](const Rows& rows) { return rows.keys.bytes() + rows.values.bytes(); };
  std::size_t bytes = 0;
  for (const Head& head : heads_) {
    bytes += of_rows(head.sinks) + of_rows(head.local) + of_rows(head.means) +
             head.local_groups.capacity() + head.variances.capacity() * sizeof(Real);
    for (const Group& group : head.groups)
      bytes += of_rows(group.rows) +
               (1 + checkpoints_.size()) * group.sums.of.size() * sizeof(double) +
               group.positions.capacity() * sizeof(Index);
  }
  return bytes;
}

void SummaryCache::add_row(Rows& rows, const Real* k, const Real* v) const {
  const auto put = [&](CacheNumbers& to, const Real* from) {
    // Grows by a quarter: a cache is mostly lists, and half of them empty would be its double.
    const Index begin = to.size(), size = begin + padded_dim_;
    if (size > to.capacity()) to.reserve(size + size / 4);
    to.resize(size);
    to.put(from, sizes_.head_dim, begin);
  };
  if (rows.centroid != nullptr) {
    thread_local std::vector<Real> rest;
    rest.resize(sizes_.head_dim);
    std::transform(k, k + sizes_.head_dim, rows.centroid, rest.begin(), std::minus());
    k = rest.data();
  }
  put(rows.keys, k);
  put(rows.values, v);
  ++rows.end;
}

Index SummaryCache::drop_front(Rows& rows, Index count) const {
  rows.first += count;
  // Moved together when most of it has left: each row is moved a bounded number of times.
  const Index unused = std::min(rows.first, rows.keep - rows.gone);
  if (unused < rows.end - unused + 64) return 0;
  rows.keys.drop_front(unused * padded_dim_);
  rows.values.drop_front(unused * padded_dim_);
  rows.first -= unused;
  rows.end -= unused;
  rows.gone += unused;
  return unused;
}

void SummaryCache::set_mean(Head& head, std::size_t number) const {
  const Group& group = head.groups[number];
  const auto count = static_cast<double>(group.sums.count);
  head.log_counts[number] = count > 0 ? static_cast<Real>(std::log(count)) : kNone;
  const double share = count > 0 ? 1 / count : 0;
  const Index row = static_cast<Index>(number) * padded_dim_, dim = sizes_.head_dim;
  Real* key = head.means.keys.data() + row;
  Real* value = head.means.values.data() + row;
  const double* sums = group.sums.of.data();
  for (Index d = 0; d < dim; ++d) {
    key[d] = static_cast<Real>(share * sums[d]);
    value[d] = static_cast<Real>(share * sums[dim + d]);
  }
  if (head.variances.empty()) return;
  for (Index d = 0; d < dim; ++d) {
    const double mean = share * sums[d];
    head.variances[row + d] =
        static_cast<Real>(std::max(0.0, share * sums[2 * dim + d] - mean * mean) / 2);
  }
}

/// In steps that end where a checkpoint does and, where the order of sums or the local rows count,
/// with a block: none of its tokens is distant at once.
void SummaryCache::append(const Real* k, const Real* v, std::span<const std::uint8_t> group_ids,
                          Index tokens) {
  const Index row = sizes_.kv_heads * sizes_.head_dim, ids = std::ssize(group_ids) / tokens;
  const Index end = size_ + tokens, begin = size_;
  while (size_ < end) {
    const Index at = size_ - begin, of_block = (size_ / options_.block + 1) * options_.block;
    Index stop = options_.sliding_window > 0 ? std::min(end, of_block) : end;
    if (undo_ > 0) {
      const Index first_kept = std::max<Index>(0, end / undo_ - 2) * undo_;
      if (size_ < first_kept) checkpoints_.clear();
      stop = std::min(
          stop, size_ < first_kept ? first_kept : std::min(of_block, (size_ / undo_ + 1) * undo_));
    }
    append_step(k + at * row, v + at * row, group_ids.subspan(at * ids, (stop - size_) * ids),
                stop - size_);
    if (undo_ > 0 && size_ % undo_ == 0) add_checkpoint();
  }
}

void SummaryCache::append_step(const Real* k, const Real* v,
                               std::span<const std::uint8_t> group_ids, Index tokens) {
  const Index dim = sizes_.head_dim, of_token = std::ssize(group_ids) / tokens;
  parallel_chunks(sizes_.kv_heads, tasks(tokens * dim * kAppendWork), [&](Index begin, Index end) {
    for (Index h = begin; h < end; ++h)
      append(heads_[h], {.k = k + h * dim,
                         .v = v + h * dim,
                         .stride = sizes_.kv_heads * dim,
                         .group_ids = group_ids.data() + (of_token == 1 ? 0 : h),
                         .id_stride = of_token,
                         .count = tokens});
  });
  size_ += tokens;
  distant_end_ = options_.distant_end(size_ - 1);
}

void SummaryCache::append(Head& head, const NewTokens& tokens) const {
  const Index last = size_ + tokens.count - 1;
  const Index distant_begin = options_.distant_begin(last),
              distant_end = options_.distant_end(last);
  std::vector<bool> changed(distant_end > distant_end_ ? head.groups.size() : 0);
  // Local tokens become distant, and some of those that come now are so at once.
  const Index moved = std::max<Index>(0, std::min(distant_end, size_) - distant_end_);
  if (moved > 0) sum_again(head);
  for (Index i = 0; i < moved; ++i) {
    const std::size_t group = head.local_groups[head.local.first + i];
    const Index row = (head.local.first + i) * padded_dim_;
    add_distant(head.groups[group], head.local.keys.data() + row, head.local.values.data() + row,
                distant_end_ + i);
    changed[group] = true;
  }
  if (moved > 0) {
    const Index gone = drop_front(head.local, moved);
    head.local_groups.erase(head.local_groups.begin(), head.local_groups.begin() + gone);
  }
  if (keeps_lists()) make_room(head, tokens, distant_begin - size_, distant_end - size_);
  for (Index t = 0; t < tokens.count; ++t) {
    const Index position = size_ + t;
    const Real *key = tokens.k + t * tokens.stride, *value = tokens.v + t * tokens.stride;
    const std::uint8_t group = tokens.group_ids[t * tokens.id_stride];
    if (position < options_.sinks) {
      add_row(head.sinks, key, value);
    } else if (position >= distant_end) {
      add_row(head.local, key, value);
      head.local_groups.push_back(group);
    } else if (position >= distant_begin) {
      add_distant(head.groups[group], key, value, position);
      changed[group] = true;
    }
    head.last_group = group;
  }
  for (std::size_t c = 0; c < changed.size(); ++c)
    if (changed[c]) set_mean(head, c);
  if (options_.sliding_window > 0) forget(head, distant_begin);
}

/// For the new tokens [first, end) in the lists of their groups.
void SummaryCache::make_room(Head& head, const NewTokens& tokens, Index first, Index end) const {
  std::vector<Index> more(end > 1 ? head.groups.size() : 0, 0);
  for (Index t = std::max<Index>(0, first); t < end && !more.empty(); ++t)
    ++more[tokens.group_ids[t * tokens.id_stride]];
  for (std::size_t c = 0; c < more.size(); ++c) {
    if (more[c] < 2) continue;
    Rows& rows = head.groups[c].rows;
    const Index numbers = more[c] * padded_dim_;
    rows.keys.reserve(rows.keys.size() + numbers);
    rows.values.reserve(rows.values.size() + numbers);
  }
}

void SummaryCache::add_distant(Group& group, const Real* key, const Real* value,
                               Index position) const {
  ++group.sums.count;
  if (!keeps_lists()) return add_to_sums(group, key, value, 1);
  add_row(group.rows, key, value);
  add_row_to_sums(group, group.rows.end - 1, 1);
  if (options_.sliding_window > 0) group.positions.push_back(position);
}

/// With a sliding window: distant tokens before that position leave.
void SummaryCache::forget(Head& head, Index before) const {
  for (std::size_t c = 0; c < head.groups.size(); ++c) {
    Group& group = head.groups[c];
    const auto seen = group.positions.begin() + group.rows.first;
    const Index leave = std::lower_bound(seen, group.positions.end(), before) - seen;
    if (leave == 0) continue;
    for (Index i = 0; i < leave; ++i) add_row_to_sums(group, group.rows.first + i, -1);
    group.sums.count -= leave;
    group.sums.removed += leave;
    const Index gone = drop_front(group.rows, leave);
    group.positions.erase(group.positions.begin(), group.positions.begin() + gone);
    set_mean(head, c);
  }
}

/// The sums that many tokens have left, when a block of tokens becomes distant: at any other time
/// the bits would depend on where append() cuts.
void SummaryCache::sum_again(Head& head) const {
  for (std::size_t c = 0; c < head.groups.size(); ++c) {
    Group& group = head.groups[c];
    if (group.sums.removed < kMostRemoved) continue;
    group.sums.removed = 0;
    std::ranges::fill(group.sums.of, 0.0);
    for (Index row = group.rows.first; row < group.rows.end; ++row) add_row_to_sums(group, row, 1);
    set_mean(head, c);
  }
}

void SummaryCache::add_row_to_sums(Group& group, Index row, double times) const {
  thread_local AlignedVector<Real> wide, value;
  const Rows& rows = group.rows;
  const Real* key = rows.keys.read(row * padded_dim_, padded_dim_, wide);
  if (rows.centroid != nullptr)
    std::transform(key, key + sizes_.head_dim, rows.centroid, wide.begin(), std::plus());
  add_to_sums(group, key, rows.values.read(row * padded_dim_, padded_dim_, value), times);
}

void SummaryCache::add_to_sums(Group& group, const Real* key, const Real* value,
                               double times) const {
  const Index dim = sizes_.head_dim;
  double* sums = group.sums.of.data();
  for (Index d = 0; d < dim; ++d) {
    sums[d] += times * static_cast<double>(key[d]);
    sums[dim + d] += times * static_cast<double>(value[d]);
  }
  if (std::ssize(group.sums.of) == 2 * dim) return;
  for (Index d = 0; d < dim; ++d)
    sums[2 * dim + d] += times * static_cast<double>(key[d]) * static_cast<double>(key[d]);
}

void SummaryCache::add_scores(const Run& run, const Real* q, std::vector<Real>& scores) const {
  const std::size_t before = scores.size();
  scores.resize(before + run.count());
  Real* of_run = scores.data() + before;
  run.rows->keys.dot_rows(q, run.count(), run.first * padded_dim_, padded_dim_, sizes_.head_dim,
                          of_run);
  if (run.rows->centroid != nullptr) {
    const Real of_centroid = simd::kernels().dot_row(q, run.rows->centroid, sizes_.head_dim);
    for (Index i = 0; i < run.count(); ++i) of_run[i] += of_centroid;
  }
  if (attention_.softcap > 0)
    for (Index i = 0; i < run.count(); ++i) of_run[i] = soft_cap(of_run[i], attention_.softcap);
}

/// Adds a share of their widths to the scores of a query head's summary tokens, which are the last
/// of the reading and without bias, and to the reading what selection has more.
void SummaryCache::count_widths(const Head& head, const Real* q, Real share,
                                Reading& reading) const {
  thread_local std::vector<Real> squares;
  squares.assign(q, q + sizes_.head_dim);
  for (Real& x : squares) x *= x;
  const auto a = static_cast<Real>(options_.width);
  const Real softcap = attention_.softcap;
  Real* score = &*(reading.scores.end() - sizes_.groups);
  reading.widths.resize(reading.widths.size() + sizes_.groups);
  Real* widths = &*(reading.widths.end() - sizes_.groups);
  simd::kernels().dot_rows(squares.data(), sizes_.groups, head.variances.data(), padded_dim_,
                           sizes_.head_dim, widths);
  for (Index c = 0; c < sizes_.groups; ++c) {
    const Real slope = softcap > 0 ? 1 - score[c] * score[c] / (softcap * softcap) : 1;
    const Real width = widths[c] * slope * slope;
    score[c] += share * width;
    widths[c] = (a - share) * width;
  }
}

/// Estimated masses of the groups, up to what keeps their order: the scores of a query head that
/// selects alone, or the sum over all of a key head of e^score / sum of e^score.
void SummaryCache::masses(const Reading& reading, std::vector<double>& mass) const {
  const Index groups = sizes_.groups;
  thread_local std::vector<double> estimates;
  estimates.resize(groups);
  mass.assign(groups, 0.0);
  for (Index head = 0; head < reading.heads; ++head) {
    const auto scores = std::span(reading.scores).subspan(head * reading.row, reading.row);
    for (Index c = 0; c < groups; ++c) {
      const Real width = reading.widths.empty() ? 0 : reading.widths[head * groups + c];
      estimates[c] = static_cast<double>(scores[reading.exact + c] + width);
    }
    if (selects_alone()) return mass.swap(estimates);
    const auto local = scores.first(reading.exact);
    double most = *std::ranges::max_element(estimates), sum = 0;
    for (const Real s : local) most = std::max(most, static_cast<double>(s));
    for (const Real s : local) sum += std::exp(static_cast<double>(s) - most);
    for (double& score : estimates) sum += score = std::exp(score - most);
    for (Index c = 0; c < groups; ++c) mass[c] += estimates[c] / sum;
  }
}

/// The m groups of largest estimated mass, the first of equals; groups without tokens are left out.
void SummaryCache::select(const Head& head, Reading& reading) const {
  std::vector<Index>& best = reading.groups;
  best.clear();
  if (options_.reads_own_group()) return best.push_back(head.last_group);
  const Index m = options_.selected_of(reading.first_head);
  if (m == 0) return;
  thread_local std::vector<double> mass;
  masses(reading, mass);
  for (Index c = 0; c < sizes_.groups; ++c) {
    if (head.log_counts[c] == kNone) continue;
    if (std::ssize(best) == m) {
      if (mass[c] <= mass[best.back()]) continue;
      best.pop_back();
    }
    best.insert(
        std::ranges::upper_bound(best, mass[c], std::greater(), [&](Index of) { return mass[of]; }),
        c);
  }
}

/// Scores of the local and summary tokens for `heads` query heads that share a key head, q being
/// those of all, and their selection.
void SummaryCache::read(Index first_head, Index heads, const Real* q, const Tensor& summary_bias,
                        Reading& reading) const {
  const Index kv_head = first_head / (sizes_.heads / sizes_.kv_heads), dim = sizes_.head_dim;
  const Head& head = heads_[kv_head];
  const Real* bias = summary_bias.data() + kv_head * sizes_.groups;
  const Index position = size_ - 1;
  q += first_head * dim;
  // The local tokens that are seen; sinks among them while there is no distant zone.
  reading.first_head = first_head;
  reading.heads = heads;
  reading.sinks = all(head.sinks);
  reading.local = all(head.local);
  reading.scores.clear();
  reading.widths.clear();
  reading.sinks.first = options_.distant_end(position) == options_.sinks
                            ? std::min(reading.sinks.end, options_.local_begin(position))
                            : std::min(reading.sinks.end, options_.first_sink(position));
  reading.local.first +=
      std::max<Index>(0, options_.local_begin(position) - std::max(distant_end_, options_.sinks));
  reading.exact = reading.sinks.count() + reading.local.count();
  reading.row = reading.exact + sizes_.groups;
  for (Index h = 0; h < heads; ++h) {
    add_scores(reading.sinks, q + h * dim, reading.scores);
    add_scores(reading.local, q + h * dim, reading.scores);
    add_scores(all(head.means), q + h * dim, reading.scores);
    if (options_.uses_width())
      count_widths(head, q + h * dim, options_.summary_width_of(first_head + h), reading);
    for (Index c = 0; c < sizes_.groups; ++c)
      reading.scores[h * reading.row + reading.exact + c] += head.log_counts[c] + bias[c];
  }
  const bool as_token = options_.unselected_groups == UnselectedGroups::summary;
  Index keys = reading.exact;
  if (as_token) keys += sizes_.groups - std::ranges::count(head.log_counts, kNone);
  select(head, reading);
  for (const Index c : reading.groups) {
    const Index n = head.groups[c].sums.count;
    keys += n - (as_token && n > 0);
  }
  reading.keys = keys * heads;
}

/// One of the query heads of a reading; q and out are its own.
void SummaryCache::attend_query(const Head& head, const Reading& reading, Index query_head,
                                const Real* q, Real* out) const {
  const auto of_head = reading.scores.begin() + query_head * reading.row;
  thread_local std::vector<Real> weights, sum;
  weights.assign(of_head, of_head + reading.row);
  if (options_.unselected_groups == UnselectedGroups::drop)
    std::fill(weights.begin() + reading.exact, weights.end(), kNone);
  for (const Index c : reading.groups) {
    weights[reading.exact + c] = kNone;
    add_scores(all(head.groups[c].rows), q, weights);
  }
  Real max = kNone, total = 0;
  weights.resize(simd::padded(simd::kernels(), std::ssize(weights)), kNone);
  simd::kernels().softmax_row(weights.data(), std::ssize(weights), max, total);
  sum.assign(padded_dim_, Real(0));
  const Real* weight = weights.data();
  const auto take = [&](const Run& run) {  // sum += weights V
    const Index rows = run.count();
    run.rows->values.multiply(1, padded_dim_, rows, weight, rows,
                              {run.first * padded_dim_, rows, padded_dim_, padded_dim_}, 0,
                              sum.data(), padded_dim_, true);
    weight += rows;
  };
  take(reading.sinks);
  take(reading.local);
  take(all(head.means));
  for (const Index c : reading.groups) take(all(head.groups[c].rows));
  for (Index d = 0; d < sizes_.head_dim; ++d) out[d] = sum[d] / total;
}

void SummaryCache::attend(const Real* q, const Tensor& summary_bias, Real* out) {
  check(size_ > 0, "cache: attend() before any token");
  const Index dim = sizes_.head_dim, heads = sizes_.heads / sizes_.kv_heads;
  scaled_q_.resize(sizes_.heads * dim);
  std::transform(q, q + sizes_.heads * dim, scaled_q_.begin(),
                 [&](Real x) { return x * attention_.scale; });
  const Index scored = size_ - distant_end_ + sizes_.groups;
  const Index lists = options_.most_selected() * size_ / sizes_.groups;
  // What query heads that select alone read, or else those of a key head together.
  const Index together = selects_alone() ? 1 : heads;
  const auto attend_to = [&](const Reading& reading, Index head) {
    attend_query(heads_[head / heads], reading, head % together, scaled_q_.data() + head * dim,
                 out + head * dim);
  };
  const Index of_reading = together * dim * scored, of_query = dim * (scored + 2 * lists);
  readings_.resize(sizes_.heads / together);
  const bool at_once = together == 1;
  parallel_chunks(std::ssize(readings_), tasks(of_reading + (at_once ? of_query : 0)),
                  [&](Index begin, Index end) {
                    for (Index n = begin; n < end; ++n) {
                      read(n * together, together, scaled_q_.data(), summary_bias, readings_[n]);
                      if (at_once) attend_to(readings_[n], n);
                    }
                  });
  if (!at_once)
    parallel_chunks(sizes_.heads, tasks(of_query), [&](Index begin, Index end) {
      for (Index h = begin; h < end; ++h) attend_to(readings_[h / heads], h);
    });
  pairs_read_ = 0;
  for (const Reading& reading : readings_) pairs_read_ += reading.keys;
  count_multiply_adds(static_cast<std::uint64_t>(2 * pairs_read_ * dim));
}

}  // namespace focus
