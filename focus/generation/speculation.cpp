#include "focus/generation/speculation.h"

#include "autograd/base/profile.h"
#include "autograd/gemm/packed_product.h"
#include "layers/family.h"

namespace focus {
namespace {

static_assert(Speculation::kMostRows <= packed::kFewRows);

/// Tokens that truncate() takes back at least: those of a pass, and so many that what this keeps is
/// seldom copied.
constexpr Index kUndo = 4 * Speculation::kMostRows;
/// Passes between two that have no drafts while these pay; and, while they do not, between two that
/// have some, at first and at most: what they may cost is small beside all the others.
constexpr Index kAlone = 24, kFirstWait = 32, kLongestWait = 1024;
/// Passes without drafts that show what these take.
constexpr Index kFirstAlone = 4;
/// A share of right guesses from which one more says nothing new.
constexpr double kLikely = 0.9;
/// Tokens at a text's end that are looked for in it, and the fewest that count.
constexpr Index kLongestMatch = 16, kShortestMatch = 2;

}  // namespace

Speculation::Speculation(CachedDecoder& decoder, const Drafting& by, CacheDtype dtype, Index undo)
    : decoder_(decoder), by_(by), wait_(kFirstWait) {
  if (by.attention) cache_.emplace(decoder.cache(*by.attention, dtype, std::max(undo, kUndo)));
}

void Speculation::note(Index drafts, Index right, double seconds) {
  of_rows_[drafts + 1].add(seconds);
  for (Index i = 0; i < std::min(drafts, right + 1); ++i) right_ += ((i < right) - right_) / 8;
  const bool free = drafts > 0 && !cache_;  // then soon once more
  if (free && right == drafts && right_ < kLikely) since_tried_ = wait_;
}

/// Where none had so many rows, as if each further row took as long as with those that are known.
double Speculation::of_pass(Index rows) const {
  if (of_rows_[rows].least > 0) return of_rows_[rows].least;
  Index known = rows;
  while (known > 2 && of_rows_[known].least == 0) --known;
  for (Index more = rows; of_rows_[known].least == 0 && more <= kMostRows; ++more) known = more;
  const double of_row =
      (of_rows_[known].least - of_rows_[1].least) / static_cast<double>(known - 1);
  return of_rows_[1].least + std::max(0.0, of_row) * static_cast<double>(rows - 1);
}

/// How many drafts make the most tokens a second.
Index Speculation::worth(Index most) {
  if (most <= 0) return 0;
  if (by_.always > 0) return std::min(by_.always, most);
  if (++passes_ <= kFirstAlone) return 0;
  const auto tried = [](const Seconds& of) { return of.least > 0; };
  if (std::none_of(of_rows_.begin() + 2, of_rows_.end(), tried)) return std::min<Index>(2, most);
  if (++since_alone_ >= kAlone) return since_alone_ = 0;
  Index best = 0;
  double best_rate = 1 / of_rows_[1].least, tokens = 1, likely = 1;
  for (Index count = 1; count <= most; ++count) {
    likely *= right_;
    tokens += likely;
    const double seconds = of_pass(count + 1) + static_cast<double>(count) * of_draft_.least;
    if (tokens / seconds > best_rate) {
      best_rate = tokens / seconds;
      best = count;
    }
  }
  if (best > 0) {
    wait_ = kFirstWait;
    return best;
  }
  since_alone_ = 0;
  if (++since_tried_ < wait_) return 0;
  since_tried_ = 0;
  wait_ = std::min(2 * wait_, kLongestWait);
  return 1;
}

/// What came after the longest run of tokens that ends the text where it came last before.
std::vector<std::int32_t> Speculation::from_text(std::span<const std::int32_t> ids,
                                                 Index count) const {
  const Index size = std::ssize(ids);
  Index longest = kShortestMatch - 1, at = 0;
  for (Index end = size - 1; end > 0 && longest < kLongestMatch; --end) {
    Index same = 0;
    while (same < std::min(end, kLongestMatch) && ids[end - 1 - same] == ids[size - 1 - same])
      ++same;
    if (same <= longest) continue;
    longest = same;
    at = end;
  }
  if (at == 0) return {};
  const auto found = ids.subspan(at, std::min(count, size - at));
  return {found.begin(), found.end()};
}

std::vector<std::int32_t> Speculation::from_model(const Continuation& text, Index count) {
  std::vector<std::int32_t> ids = text.ids();
  const Index before = std::ssize(ids);
  Rng rng = text.rng();
  const double start = now();
  for (Index i = 0; i < count; ++i) {
    const CachedDecoder::Part part{.cache = &*cache_, .ids = std::span(ids).last(1)};
    Tensor logits = decoder_.decoder().logits(decoder_.hidden_states({&part, 1})).value();
    ids.push_back(text.drawn(logits.span(), ids, rng));
  }
  cache_->truncate(before - 1);
  of_draft_.add((now() - start) / static_cast<double>(count));
  return {ids.begin() + before, ids.end()};
}

std::vector<std::int32_t> Speculation::draft(const Continuation& text, Index most) {
  const Index size = std::ssize(text.ids());
  const ModelConfig& config = decoder_.decoder().config();
  most =
      std::min({most, kMostRows - 1, config.max_position_embeddings - size,
                text.options().max_new_tokens + static_cast<Index>(text.prompt_size()) - size - 1});
  // Rows of a pass are rotated alike, as if each were alone.
  if (most > 0 && !same_angles(config, size, size + most)) return {};
  const Index count = worth(most);
  if (count == 0) return {};
  return cache_ ? from_model(text, count) : from_text(text.ids(), count);
}

}  // namespace focus
