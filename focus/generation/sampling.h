#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "autograd/base/random.h"
#include "autograd/tensor.h"

namespace focus {

/// Tokens that must not come next, as transformers' generate forbids them.
struct TokenRules {
  std::vector<std::int32_t> suppress_tokens = {}, begin_suppress_tokens = {};  // the latter: first
  std::vector<std::vector<std::int32_t>> bad_words_ids = {};  // no such run of tokens
  Index no_repeat_ngram_size = 0;  // no run of this many tokens comes twice in a text; 0: any may

  /// Makes -inf of the logits of what must not follow `text`, whose first `prompt` tokens were
  /// given. A bad word that is one of `ends` alone is allowed.  logits [vocab_size]
  void forbid(std::span<Real> logits, std::span<const std::int32_t> text, std::size_t prompt,
              std::span<const std::int32_t> ends) const;
};

/// How the next token is drawn from the logits.
struct SamplingOptions {
  double temperature = 0;         // the logits are divided by it; 0: always the highest (greedy)
  Index top_k = 0;                // only the k highest; 0: all
  double top_p = 1;               // only the fewest of those that together have this probability
  double min_p = 0;               // only those of this share of the highest probability; 0: all
  double repetition_penalty = 1;  // of tokens that the text has already; 1: none
  TokenRules rules = {};

  /// Throws std::invalid_argument naming what is out of range.
  void validate() const;
};

/// Divides the logits above 0 of the ids in `text` by the penalty and multiplies the others with
/// it, each id once (Keskar et al. 2019).  logits [vocab_size]
void penalise_repetitions(std::span<Real> logits, std::span<const std::int32_t> text,
                          double penalty);

/// An id drawn from softmax(logits / temperature) over the top_k highest logits, of these the
/// fewest whose probabilities, renormalised, reach top_p (Holtzman et al. 2020), and of these those
/// of min_p, renormalised again. A tie goes to the lower id. Neither the penalty nor the rules are
/// applied here. Greedy draws no random number, else one.  logits [vocab_size]
std::int32_t sample(std::span<const Real> logits, const SamplingOptions& options, Rng& rng);

/// A token's log-probability in nats, and the most probable ids with theirs, falling; of equal ones
/// the lower id first.
struct TokenLogprob {
  std::int32_t id = 0;
  double logprob = 0;
  std::vector<std::pair<std::int32_t, double>> top = {};
};
/// By softmax(logits), with `top` most probable ones.
TokenLogprob log_probability(std::span<const Real> logits, std::int32_t id, Index top);

}  // namespace focus
