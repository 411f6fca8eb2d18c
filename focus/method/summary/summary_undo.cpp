// What SummaryCache does so that tokens can be taken back.
#include <algorithm>

#include "autograd/base/check.h"
#include "focus/method/summary/summary_cache.h"

namespace focus {

/// Whether a group is as it was: tokens that come and go leave their count.
bool SummaryCache::is_same(Span rows, const Sums& sums, const Group& group) {
  return rows == group.rows.span() && sums.count == group.sums.count &&
         sums.removed == group.sums.removed;
}

// A checkpoint that truncate() has gone behind stays, for its memory, and holds nothing: size -1.

/// Takes the oldest one's place, of which it copies only what has changed.
void SummaryCache::add_checkpoint() {
  if (checkpoints_.size() == 2) {
    checkpoints_.push_back(std::move(checkpoints_.front()));
    checkpoints_.pop_front();
  } else {
    checkpoints_.emplace_back().heads.resize(heads_.size());
  }
  Checkpoint& now = checkpoints_.back();
  now.size = size_;
  now.distant_end = distant_end_;
  const Checkpoint& oldest = checkpoints_.front().size < 0 ? now : checkpoints_.front();
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    Head& head = heads_[h];
    Checkpoint::OfHead& of = now.heads[h];
    of.sinks = head.sinks.span();
    of.local = head.local.span();
    of.groups.resize(head.groups.size(), {{}, {.of = {}, .count = -1}});
    for (std::size_t c = 0; c < head.groups.size(); ++c) {
      const Group& group = head.groups[c];
      auto& [rows, sums] = of.groups[c];
      if (!is_same(rows, sums, group)) sums = group.sums;
      rows = group.rows.span();
    }
  }
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    heads_[h].local.keep = oldest.heads[h].local.first;
    for (std::size_t c = 0; c < heads_[h].groups.size(); ++c)
      heads_[h].groups[c].rows.keep = oldest.heads[h].groups[c].first.first;
  }
}

void SummaryCache::set_rows(Rows& rows, Span span) const {
  rows.first = span.first - rows.gone;
  rows.end = span.end - rows.gone;
  rows.keys.resize(rows.end * padded_dim_);
  rows.values.resize(rows.end * padded_dim_);
}

void SummaryCache::go_back(const Checkpoint& to) {
  size_ = to.size;
  distant_end_ = to.distant_end;
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    Head& head = heads_[h];
    set_rows(head.sinks, to.heads[h].sinks);
    set_rows(head.local, to.heads[h].local);
    head.local_groups.resize(head.local.end);
    for (std::size_t c = 0; c < head.groups.size(); ++c) {
      Group& group = head.groups[c];
      const auto& [rows, sums] = to.heads[h].groups[c];
      if (is_same(rows, sums, group)) continue;
      set_rows(group.rows, rows);
      if (options_.sliding_window > 0) group.positions.resize(group.rows.end);
      group.sums = sums;
      set_mean(head, c);
    }
  }
}

Index SummaryCache::least_size() const {
  // Local tokens alone leave no trace, but none has been among them that forget() let go.
  Index least = size_;
  while (options_.sliding_window == 0 && least > 1 &&
         options_.distant_end(least - 2) == distant_end_)
    --least;
  for (const Checkpoint& checkpoint : checkpoints_)
    if (checkpoint.size >= 0) least = std::min(least, checkpoint.size);
  return least;
}

void SummaryCache::truncate(Index tokens) {
  check(tokens >= least_size() && tokens <= size_,
        "cache: truncate() to {} of {} tokens; it can leave {} or more", tokens, size_,
        least_size());
  if (tokens == size_) return;
  while (!checkpoints_.empty() && checkpoints_.back().size > tokens) {
    Checkpoint spare = std::move(checkpoints_.back());
    checkpoints_.pop_back();
    spare.size = -1;
    for (Checkpoint::OfHead& head : spare.heads)
      for (auto& [rows, sums] : head.groups) sums.count = -1;
    checkpoints_.push_front(std::move(spare));
  }
  if (options_.sliding_window == 0 && tokens > 0 &&
      options_.distant_end(tokens - 1) == distant_end_) {
    for (Head& head : heads_) {
      const Index more = std::max(tokens, options_.sinks) - size_;  // of local rows, 0 or less
      const Span local = head.local.span();
      set_rows(head.local, {local.first, local.end + std::min<Index>(0, more)});
      head.local_groups.resize(head.local.end);
      set_rows(head.sinks, {0, std::min(tokens, head.sinks.end)});
    }
    size_ = tokens;
    return;
  }
  // The tokens behind the checkpoint once more.
  const Checkpoint& from = checkpoints_.back();
  const Index count = tokens - from.size, dim = sizes_.head_dim;
  std::vector<Real> k(count * sizes_.kv_heads * dim), v(k.size());
  std::vector<std::uint8_t> group_ids(count * sizes_.kv_heads);
  for (Index t = 0; t < count; ++t)
    for (Index h = 0; h < sizes_.kv_heads; ++h) {
      const Head& head = heads_[h];
      const Index at = t * sizes_.kv_heads + h, position = from.size + t;
      const bool sink = position < options_.sinks;
      const Rows& rows = sink ? head.sinks : head.local;
      const Index row = sink ? position : head.local.end - (size_ - position);
      std::copy_n(rows.keys.data() + row * padded_dim_, dim, k.begin() + at * dim);
      std::copy_n(rows.values.data() + row * padded_dim_, dim, v.begin() + at * dim);
      group_ids[at] = sink ? 0 : head.local_groups[row];
    }
  go_back(from);
  if (count > 0) append(k.data(), v.data(), group_ids, count);
}

}  // namespace focus
