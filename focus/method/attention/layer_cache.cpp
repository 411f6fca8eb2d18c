#include "focus/method/attention/layer_cache.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/simd/kernels.h"
#include "focus/method/grouping/group_statistics.h"

namespace focus {
namespace {

constexpr Real kMasked = -std::numeric_limits<Real>::infinity();

/// Members of a block, and of a bucket's first stores, so that a small bucket is small: 16, 16, 32.
constexpr Index kBlock = 64, kFirstStore = 16;
/// Members of the largest store.
constexpr Index kLargestStore = 1024;
/// Keys that one task goes over, and multiply-adds that are worth waking a thread for.
constexpr Index kChunkKeys = 256, kTaskWork = 1 << 17;

/// Members that each block of a store has room for.
Index block_capacity(const auto& store) { return std::min(store.capacity, kBlock); }

/// Columns of each panel of a packed matrix of so many columns, of which the panel's or the
/// matrix's number divides the other.
Index panel_width(Index columns) { return std::min(simd::kernels().panel, columns); }

/// Where column `column` of a transposed matrix [depth, columns] in panels begins; its numbers lie
/// panel_width(columns) apart.
Index column_in_panels(Index column, Index depth, Index columns) {
  const Index width = panel_width(columns);
  return column / width * width * depth + column % width;
}

/// Panels of keys in blocks that so many members take.
Index q8_panels(Index members) { return (members + simd::kQ8Panel - 1) / simd::kQ8Panel; }

/// Writes x [n] as row `row` of a matrix [rows, columns] in panels or q8_0, which begins at `at`.
void put_row(const Real* x, Index n, Index row, Index rows, Index columns, CacheNumbers& to,
             Index at) {
  if (to.in_blocks()) return to.put(x, n, at + row * columns);
  const Index panel = simd::kernels().panel;
  for (Index column = 0; column < n; column += panel) {
    const Index width = std::min(panel, columns - column);
    to.put(x + column, std::min(width, n - column), at + column * rows + row * width);
  }
}

/// Row vectors a [m, depth] times the columns [first, end) of a transposed matrix in panels, where
/// `first` starts a panel, into those columns of rows of kBlock numbers, or added to them.
void multiply_columns(Index m, Index depth, const Real* a, const CacheNumbers& of, Index at,
                      Index columns, Index first, Index end, Into into, Real* rows) {
  of.multiply(m, simd::padded(simd::kernels(), end - first), depth, a, depth,
              {at + first * depth, depth, columns - first}, 0, rows + first, kBlock,
              into == Into::add);
}

}  // namespace

LayerCache::LayerCache(const Sizes& sizes, const AttentionOptions& options, GateOptions gate,
                       CacheDtype dtype)
    : sizes_(sizes),
      options_(options),
      gate_(std::move(gate)),
      factor_(gate_),
      dtype_(dtype),
      padded_dim_(padded_in_cache(dtype, sizes.head_dim)) {
  sizes.validate();
  last_g_.resize(sizes.groups);
}

Index LayerCache::scratch_size() const { return queries() * (padded_dim_ + 2 + kBlock); }

/// A store holds a block or at most a quarter of the members before it, so that no more of a cache
/// lies unused.
void LayerCache::add_store(Bucket& c) {
  const Index begin = std::ssize(c.positions);
  const Index quarter = std::bit_floor(static_cast<std::uint64_t>(begin / 4));
  const Index members =
      begin < kBlock ? std::max(kFirstStore, begin) : std::clamp(quarter, kBlock, kLargestStore);
  // Zeros: what lies behind the last member is multiplied too, and then masked.
  const Index rows = sizes_.kv_heads * members;
  c.stores.push_back(
      {begin, members, in_blocks() ? CacheNumbers() : CacheNumbers(dtype_, rows * sizes_.head_dim),
       in_blocks() ? Q8Columns(sizes_.kv_heads * q8_panels(members), sizes_.head_dim) : Q8Columns(),
       CacheNumbers(dtype_, rows * padded_dim_),
       CacheNumbers(CacheDtype::float32, gate_.gated ? sizes_.groups * members : 0)});
  bytes_ += c.stores.back().bytes();
}

void LayerCache::append(const Real* k, const Real* v, const Real* g, std::uint64_t mask) {
  if (size_ < gate_.sinks) mask = kEveryGroup;
  Bucket& c = buckets_[mask];
  const Index member = std::ssize(c.positions), dim = sizes_.head_dim;
  if (member == 0 || member == c.stores.back().begin + c.stores.back().capacity) add_store(c);
  Store& store = c.stores.back();
  const Index capacity = block_capacity(store), width = panel_width(capacity);
  const Index slot = (member - store.begin) % capacity, first = member - store.begin - slot;
  for (Index h = 0; h < sizes_.kv_heads; ++h) {
    if (in_blocks())
      store.q8_keys.put(k + h * dim, dim,
                        h * q8_panels(store.capacity) + (first + slot) / simd::kQ8Panel,
                        slot % simd::kQ8Panel);
    else
      store.keys.put(k + h * dim, dim,
                     keys_at(store, first, h) + column_in_panels(slot, dim, capacity), width);
    put_row(v + h * dim, dim, slot, capacity, padded_dim_, store.values,
            values_at(store, first, h));
  }
  if (gate_.gated) {
    store.assignments.put(g, sizes_.groups,
                          first * sizes_.groups + column_in_panels(slot, sizes_.groups, capacity),
                          width);
    std::copy_n(g, sizes_.groups, last_g_.begin());
  }
  last_mask_ = mask;
  c.positions.push_back(size_++);
}

void LayerCache::truncate(Index tokens) {
  check(tokens >= 0 && tokens <= size_, "cache: truncate() to {} of {} tokens", tokens, size_);
  for (auto& [mask, c] : buckets_) {
    c.positions.erase(std::ranges::lower_bound(c.positions, tokens), c.positions.end());
    // A store begins where its bucket had no room; what lies behind the last member is masked.
    for (; !c.stores.empty() && c.stores.back().begin >= std::ssize(c.positions);
         c.stores.pop_back())
      bytes_ -= c.stores.back().bytes();
  }
  size_ = tokens;
}

/// The runs of keys that the last token reads, and the chunks of them that are one task each: they
/// depend on the cache alone, so the bits do not depend on the threads.
void LayerCache::collect_slices() {
  slices_.clear();
  chunks_.assign(1, 0);
  keys_read_ = 0;
  const Index position = size_ - 1, local = position - gate_.local_window;
  const Index visible =
      options_.sliding_window > 0 ? position - options_.sliding_window + 1 : Index(0);
  Index chunk_keys = 0;
  for (const auto& [mask, of_mask] : buckets_) {
    const auto& c = of_mask;  // clang 14 lets no lambda capture a binding
    const bool meets = (mask & last_mask_) != 0;
    const auto members_before = [&](Index p) {
      return std::ranges::lower_bound(c.positions, p) - c.positions.begin();
    };
    const Index end = std::ssize(c.positions);
    const Index first = members_before(meets ? visible : std::max(visible, local));
    const Index distant = meets && gate_.gated ? members_before(local) : 0;
    const Index sinks = distant > 0 ? members_before(gate_.sinks) : 0;
    for (const Store& store : c.stores)
      for (Index at = std::max<Index>(0, (first - store.begin) / kBlock * kBlock);
           at < store.capacity && store.begin + at < end; at += kBlock) {
        const Index begin = store.begin + at, slot = std::max<Index>(0, first - begin);
        const Index last = std::min(end - begin, block_capacity(store));
        if (slot >= last) continue;
        slices_.push_back({&store, at, slot, std::clamp(sinks - begin, slot, last),
                           std::clamp(distant - begin, slot, last), last});
        keys_read_ += last - slot;
        chunk_keys += last - slot;
        if (chunk_keys >= kChunkKeys) {
          chunks_.push_back(std::ssize(slices_));
          chunk_keys = 0;
        }
      }
  }
  if (chunk_keys > 0) chunks_.push_back(std::ssize(slices_));
}

/// factors_ [slices, kBlock]: the gate's of each slice's distant members, 1 of the local ones; the
/// same for all heads.
void LayerCache::compute_factors() {
  const simd::Kernels& kernels = simd::kernels();
  const auto slices = std::ssize(slices_);
  if (std::ssize(factors_) < slices * kBlock) factors_.resize(slices * kBlock);
  parallel_chunks(slices, 64, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) {
      const Slice& slice = slices_[i];
      if (slice.distant == slice.begin) continue;
      Real* factors = factors_.data() + i * kBlock;
      const Index n = simd::padded(kernels, slice.distant);
      std::fill_n(factors, n, factor_.start());
      multiply_columns(1, sizes_.groups, last_g_.data(), slice.store->assignments,
                       slice.first * sizes_.groups, block_capacity(*slice.store), 0, slice.distant,
                       Into::add, factors);
      factor_.finish(factors, n);
      std::fill(factors + slice.distant, factors + slice.end, Real(1));
      std::fill(factors + slice.begin, factors + slice.sinks, Real(1));
    }
  });
}

Index LayerCache::multiply_keys(const Slice& slice, Index kv_head, Real* scores) const {
  const Store& store = *slice.store;
  const Index m = queries(), dim = sizes_.head_dim, capacity = block_capacity(store);
  if (!in_blocks()) {
    const Index width = panel_width(capacity), first = slice.begin / width * width;
    multiply_columns(m, dim, scaled_q_.data() + kv_head * m * dim, store.keys,
                     keys_at(store, slice.first, kv_head), capacity, first, slice.end, Into::assign,
                     scores);
    return first;
  }
  constexpr Index kPanel = simd::kQ8Panel;
  const Index first = slice.begin / kPanel * kPanel;
  const Index panels = kv_head * q8_panels(store.capacity) + slice.first / kPanel;
  for (Index at = first; at < slice.end; at += kPanel)
    store.q8_keys.multiply(m, rounded_q_.from(kv_head * m), panels + at / kPanel, scores + at,
                           kBlock);
  return first;
}

/// The queries of one key head over the slices of one chunk, unnormalised.
void LayerCache::attend_chunk(Index kv_head, Index chunk, Real* scratch) const {
  const simd::Kernels& kernels = simd::kernels();
  const Index m = queries();
  Real* out = scratch;
  Real* max = out + m * padded_dim_;
  Real* sum = max + m;
  Real* scores = sum + m;  // [m, kBlock]
  std::fill_n(out, m * padded_dim_, Real(0));
  std::fill_n(max, m, kMasked);
  std::fill_n(sum, m, Real(0));
  for (Index i = chunks_[chunk]; i < chunks_[chunk + 1]; ++i) {
    const Slice& slice = slices_[i];
    const Store& store = *slice.store;
    const Index first = multiply_keys(slice, kv_head, scores);
    for (Index h = 0; h < m; ++h) {
      Real* row = scores + h * kBlock;
      // A row does not see the tokens behind it.
      const Index seen = size_ - (rows_ - 1 - h / query_heads()) - store.begin - slice.first;
      const Index end = std::clamp(seen, slice.begin, slice.end);
      std::fill(row + end, row + slice.end, Real(0));
      if (end == slice.begin) continue;
      const Index columns = simd::padded(kernels, end - first);
      if (options_.softcap > 0) kernels.softcap_row(row + first, columns, options_.softcap);
      const Real* factors = slice.distant > slice.begin ? factors_.data() + i * kBlock : nullptr;
      const auto gate = [&] {
        for (Index c = slice.begin; c < end; ++c) row[c] *= factors[c];
      };
      if (factors && factor_.use() == simd::GateUse::score) gate();
      std::fill(row + first, row + slice.begin, kMasked);
      std::fill(row + end, row + first + columns, kMasked);
      Real total = sum[h];
      const Real factor = kernels.softmax_row(row + first, columns, max[h], total);
      if (factors && factor_.use() == simd::GateUse::weight) {
        total = factor * sum[h] +
                kernels.dot_row(row + slice.begin, factors + slice.begin, end - slice.begin);
        gate();
      }
      sum[h] = total;
      if (factor != 1)
        for (Index d = 0; d < padded_dim_; ++d) out[h * padded_dim_ + d] *= factor;
    }
    store.values.multiply(m, padded_dim_, slice.end - slice.begin, scores + slice.begin, kBlock,
                          {values_at(store, slice.first, kv_head), block_capacity(store),
                           padded_dim_, in_blocks() ? padded_dim_ : 0},
                          slice.begin, out, padded_dim_, true);
  }
}

/// The softmax over all chunks of one head from those over each, in the chunks' order.
void LayerCache::merge_chunks(Index row, Index head, Real* out) const {
  const Index heads = query_heads(), kv_head = head / heads, dim = sizes_.head_dim,
              h = row * heads + head % heads;
  const auto part = [&](Index chunk) {
    return scratch_.data() + (kv_head * num_chunks() + chunk) * scratch_size();
  };
  const Index max_at = queries() * padded_dim_ + h, sum_at = max_at + queries();
  Real top = kMasked, sum = 0;
  for (Index c = 0; c < num_chunks(); ++c) top = std::max(top, part(c)[max_at]);
  std::fill_n(out, dim, Real(0));
  for (Index c = 0; c < num_chunks(); ++c) {
    const Real factor = std::exp(part(c)[max_at] - top);
    sum += factor * part(c)[sum_at];
    for (Index d = 0; d < dim; ++d) out[d] += factor * part(c)[h * padded_dim_ + d];
  }
  for (Index d = 0; d < dim; ++d) out[d] /= sum;
}

void LayerCache::attend(const Real* q, Real* out, Index rows) {
  check(size_ >= rows && rows > 0, "cache: attend() of {} tokens, but there are {}", rows, size_);
  check(rows == 1 || takes_rows(), "cache: these rows attend one by one");
  rows_ = rows;
  const Index dim = sizes_.head_dim, width = query_heads() * dim;
  scaled_q_.resize(rows * sizes_.heads * dim);
  for (Index row = 0; row < rows; ++row)
    for (Index h = 0; h < sizes_.kv_heads; ++h)
      std::transform(
          q + (row * sizes_.kv_heads + h) * width, q + (row * sizes_.kv_heads + h + 1) * width,
          scaled_q_.begin() + (h * rows + row) * width, [&](Real x) { return x * options_.scale; });
  if (in_blocks()) rounded_q_.round(rows * sizes_.heads, dim, scaled_q_.data());
  collect_slices();
  if (gate_.gated) compute_factors();
  const Index tasks = sizes_.kv_heads * num_chunks(), size = scratch_size();
  if (std::ssize(scratch_) < tasks * size) scratch_.resize(tasks * size);
  const Index work = 2 * kChunkKeys * dim * queries();
  parallel_chunks(tasks, std::max<Index>(1, kTaskWork / work), [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task)
      attend_chunk(task / num_chunks(), task % num_chunks(), scratch_.data() + task * size);
  });
  for (Index i = 0; i < rows * sizes_.heads; ++i)
    merge_chunks(i / sizes_.heads, i % sizes_.heads, out + i * dim);
  const Index pairs = rows * keys_read_ - rows * (rows - 1) / 2;
  count_multiply_adds(static_cast<std::uint64_t>(2 * pairs * dim * sizes_.heads));
}

}  // namespace focus
