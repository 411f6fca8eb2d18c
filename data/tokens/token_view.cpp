#include "data/tokens/token_view.h"

#include <algorithm>
#include <numeric>

#include "autograd/base/check.h"
#include "autograd/base/random.h"

namespace focus {

TokenView::TokenView(TokenFile file)
    : file_(std::move(file)), ranges_({{0, file_.size()}}), starts_({0, file_.size()}) {
  for (Index i = 0; i < file_.num_documents(); ++i) documents_.push_back(file_.document(i).end);
}

TokenView::TokenView(TokenFile file, const std::vector<TokenRange>& ranges)
    : file_(std::move(file)), starts_({0}) {
  Index previous_end = 0;
  for (const TokenRange& range : ranges) {
    check(range.begin >= previous_end && range.end >= range.begin && range.end <= file_.size(),
          "TokenView: range {} to {} of {} tokens follows one that ends at {}", range.begin,
          range.end, file_.size(), previous_end);
    previous_end = range.end;
    documents_.push_back(documents_.back() + range.size());
    if (!ranges_.empty() && ranges_.back().end == range.begin) {
      ranges_.back().end = range.end;
      starts_.back() += range.size();
    } else {
      ranges_.push_back(range);
      starts_.push_back(starts_.back() + range.size());
    }
  }
}

std::int32_t TokenView::operator[](Index i) const {
  std::int32_t id = 0;
  copy(i, {&id, 1});
  return id;
}

template <class F>
void TokenView::for_runs(Index begin, Index count, F&& f) const {
  check(begin >= 0 && begin + count <= size(), "TokenView: tokens {} to {} are out of range of {}",
        begin, begin + count, size());
  auto range = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) -
                                        starts_.begin() - 1);
  for (Index done = 0; done < count; ++range) {
    const Index offset = begin + done - starts_[range];
    const Index here = std::min(ranges_[range].size() - offset, count - done);
    f(ranges_[range].begin + offset, here, done);
    done += here;
  }
}

void TokenView::copy(Index begin, std::span<std::int32_t> out) const {
  for_runs(begin, static_cast<Index>(out.size()), [&](Index first, Index count, Index done) {
    file_.copy(first, out.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count)));
  });
}

void TokenView::copy_counts(Index begin, std::span<std::uint8_t> out) const {
  for_runs(begin, static_cast<Index>(out.size()), [&](Index first, Index count, Index done) {
    for (Index i = 0; i < count; ++i)
      out[static_cast<std::size_t>(done + i)] = file_.counts(first + i) ? 1 : 0;
  });
}

TokenSplit split_by_document(const TokenFile& file, double valid_fraction, std::uint64_t seed) {
  check(valid_fraction >= 0 && valid_fraction < 1,
        "split_by_document: the validation fraction is {}, it must be at least 0 and below 1",
        valid_fraction);
  if (valid_fraction == 0) return {TokenView(file), TokenView(file, {})};
  const auto count = static_cast<std::size_t>(file.num_documents());
  check(count >= 2,
        "split_by_document: {} document cannot be split: name a document separator, give more "
        "files, or give a separate validation text",
        count);

  std::vector<Index> order(count);
  std::iota(order.begin(), order.end(), Index{0});
  Rng rng(seed);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);

  const double wanted = valid_fraction * static_cast<double>(file.size());
  std::vector<bool> is_valid(count, false);
  double chosen = 0;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    const auto tokens = static_cast<double>(file.document(order[i]).size());
    // A document is taken where that brings the share nearer to what was asked.
    if (i > 0 && chosen + tokens / 2 > wanted) continue;
    is_valid[static_cast<std::size_t>(order[i])] = true;
    chosen += tokens;
    if (chosen >= wanted) break;
  }

  std::vector<TokenRange> train, valid;
  for (std::size_t i = 0; i < count; ++i)
    (is_valid[i] ? valid : train).push_back(file.document(static_cast<Index>(i)));
  return {TokenView(file, train), TokenView(file, valid)};
}

}  // namespace focus
