#pragma once

#include <algorithm>
#include <array>

#include "focus/generation/continuation.h"
#include "focus/generation/sequence_cache.h"

namespace focus {

/// Who guesses what a text's next tokens are, before one pass of the model computes them together
/// (speculative decoding, Leviathan et al. 2023).
struct Drafting {
  /// The model itself with this attention; without one, the text: what followed its last tokens
  /// where they came before.
  std::optional<AttentionSpec> attention = {};
  Index always = 0;  // so many tokens each time; 0: as many as pay
};

/// Guesses the next tokens of one text. What the text draws does not depend on it: a token is drawn
/// from the model's own logits, as ever, and a guess is right where it is that token. This is
/// rejection sampling with a draft that is certain of its guess. Guesses draw with the random
/// numbers that the text will draw with, so that they are right as often as the logits are alike.
class Speculation {
 public:
  /// Rows of a pass at most: each has the bits that it has alone (packed::kFewRows).
  static constexpr Index kMostRows = 8;

  /// The decoder must outlive it. `undo`: of CachedDecoder::cache(), at least.
  Speculation(CachedDecoder& decoder, const Drafting& by, CacheDtype dtype, Index undo);

  /// What takes the text's keys and values too (CachedDecoder::Part::also); null: nothing does.
  SequenceCache* also() { return cache_ ? &*cache_ : nullptr; }

  /// What may come after text.ids(), all but the last of which are in the caches: as many tokens as
  /// pay, by what was right and how long it took so far, and at most so many.
  std::vector<std::int32_t> draft(const Continuation& text, Index most);
  /// After a pass of that many drafts behind a token, the first `right` of which were right.
  void note(Index drafts, Index right, double seconds);

 private:
  Index worth(Index most);
  std::vector<std::int32_t> from_text(std::span<const std::int32_t> ids, Index count) const;
  std::vector<std::int32_t> from_model(const Continuation& text, Index count);

  /// What something takes when nothing disturbs it: rises slowly, since texts grow.
  struct Seconds {
    double least = 0;  // 0: unknown
    void add(double seconds) { least = least > 0 ? std::min(seconds, 1.02 * least) : seconds; }
  };
  /// What a pass of so many rows takes.
  double of_pass(Index rows) const;

  CachedDecoder& decoder_;
  const Drafting by_;
  std::optional<SequenceCache> cache_;
  std::array<Seconds, kMostRows + 1> of_rows_;  // of passes, by their rows
  Seconds of_draft_;
  double right_ = 0.9;  // share of guesses behind right ones that are right
  Index passes_ = 0;
  Index since_alone_ = 0;             // passes since one had no drafts
  Index since_tried_ = 0, wait_ = 0;  // passes without drafts, and after how many one has some
};

}  // namespace focus
