#include "focus/method/summary/group_sums.h"

#include <algorithm>

#include "autograd/base/parallel.h"
#include "autograd/simd/kernels.h"

namespace focus {

GroupSums::GroupSums(const Tensor& k, const Tensor& v, std::span<const std::uint8_t> group_ids,
                     Index id_heads, Index groups, const SummarySettings& settings,
                     bool with_squares)
    : k_(k),
      v_(v),
      group_ids_(group_ids),
      id_heads_(id_heads),
      groups_(groups),
      settings_(settings),
      parts_(with_squares ? 3 : 2),
      runs_((k.dim(1) + kRun - 1) / kRun),
      in_turn_(settings.sliding_window == 0 && k.dim(0) * k.dim(2) >= kManyHeads),
      run_sums_({k.dim(0) * k.dim(2) * runs_, groups, parts_, k.dim(3)}),
      run_counts_(k.dim(0) * k.dim(2) * runs_ * groups) {
  if (!in_turn_) compute();
}

void GroupSums::keep(const Walker& walker, Index run) {
  const Index size = walker.sum_.size();
  const Index number = run_of(walker.sequence_, walker.kv_head_, run);
  std::copy_n(walker.sum_.data(), size, run_sums_.data() + number * size);
  std::ranges::copy(walker.counts_, run_counts_.begin() + number * groups_);
}

void GroupSums::compute() {
  const Index heads = k_.dim(0) * k_.dim(2), size = groups_ * parts_ * head_dim();
  parallel_chunks(heads * runs_, 1, [&](Index number, Index) {
    const Index head = number / runs_;
    Real* sums = run_sums_.data() + number * size;
    Index* counts = run_counts_.data() + number * groups_;
    std::fill_n(sums, size, Real(0));
    const Tokens entered = entering(number % runs_);
    for (Index t = entered.first; t < entered.last; ++t)
      add(head / kv_heads(), head % kv_heads(), t, 1, sums, counts);
  });
  if (settings_.sliding_window > 0) return;
  // What the runs add becomes what they start with.
  constexpr Index kGroups = 32;  // at a time
  const Index parts = (groups_ + kGroups - 1) / kGroups, of_group = parts_ * head_dim();
  parallel_chunks(heads * parts, 1, [&](Index number, Index) {
    const Index head = number / parts, first = number % parts * kGroups;
    const Index count = std::min(kGroups, groups_ - first);
    std::vector<double> before(count * of_group, 0.0);
    std::vector<Index> counted(count, 0);
    for (Index run = head * runs_; run < (head + 1) * runs_; ++run) {
      Real* sums = run_sums_.data() + (run * groups_ + first) * of_group;
      for (double& sum : before) {
        const double added = static_cast<double>(*sums);
        *sums++ = static_cast<Real>(sum);
        sum += added;
      }
      Index* counts = run_counts_.data() + run * groups_ + first;
      for (Index& tokens : counted) {
        tokens += std::exchange(*counts, tokens);
        ++counts;
      }
    }
  });
}

GroupSums::Walker::Walker(const GroupSums& sums, Index sequence, Index kv_head)
    : sums_(sums),
      sequence_(sequence),
      kv_head_(kv_head),
      counts_(sums.groups(), 0),
      sum_(Tensor::zeros({sums.groups(), sums.parts_, sums.head_dim()})) {}

void GroupSums::Walker::clear() {
  std::ranges::fill(counts_, 0);
  std::ranges::fill(sum_.span(), Real(0));
}

void GroupSums::add(Index sequence, Index kv_head, Index token, int times, Real* sums,
                    Index* counts) const {
  const simd::Kernels& kernels = simd::kernels();
  const Index group = group_of(sequence, kv_head, token), dim = head_dim();
  Real* sum = sums + group * parts_ * dim;
  const auto factor = static_cast<Real>(times);
  const Real* k = key(sequence, kv_head, token);
  kernels.scale_row(k, factor, dim, sum, true);
  kernels.scale_row(value(sequence, kv_head, token), factor, dim, sum + dim, true);
  if (has_squares())
    for (Index d = 0; d < dim; ++d) sum[2 * dim + d] += factor * k[d] * k[d];
  counts[group] += times;
}

void GroupSums::Walker::start(Index run) {
  const Index size = sum_.size(), groups = sums_.groups();
  const Index first_run = sums_.run_of(sequence_, kv_head_, 0);
  const auto sums_at = [&](Index r) { return sums_.run_sums_.data() + (first_run + r) * size; };
  const auto counts_at = [&](Index r) {
    return sums_.run_counts_.begin() + (first_run + r) * groups;
  };
  tokens_ = sums_.distant_of(run * kRun);
  if (sums_.settings_.sliding_window == 0) {
    std::copy_n(sums_at(run), size, sum_.data());
    std::copy_n(counts_at(run), groups, counts_.begin());
    return;
  }
  // Anew from what whole runs add, so that no rounding is carried from window to window.
  clear();
  Index token = tokens_.first, r = 0;
  while (r < run && sums_.settings_.distant_end(r * kRun) < token) ++r;
  if (r < run) {
    for (const Index first = sums_.settings_.distant_end(r * kRun); token < first; ++token)
      add(token, 1);
    for (; r < run; ++r) {
      simd::kernels().scale_row(sums_at(r), 1, size, sum_.data(), true);
      for (Index c = 0; c < groups; ++c) counts_[c] += counts_at(r)[c];
    }
  } else {
    for (; token < tokens_.last; ++token) add(token, 1);
  }
}

bool GroupSums::Walker::go_to(Index query) {
  const Tokens next = sums_.distant_of(query);
  if (next.first == tokens_.first && next.last == tokens_.last) return false;
  if (next.first >= tokens_.last) {  // nothing stays
    clear();
    for (Index t = next.first; t < next.last; ++t) add(t, 1);
  } else {
    for (Index t = tokens_.last; t < next.last; ++t) add(t, 1);
    for (Index t = tokens_.first; t < next.first; ++t) add(t, -1);
  }
  tokens_ = next;
  return true;
}

}  // namespace focus
