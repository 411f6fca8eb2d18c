#pragma once

#include <cstdint>
#include <span>

#include "autograd/base/random.h"
#include "autograd/tensor.h"

namespace focus {

/// How the next token is drawn from the logits.
struct SamplingOptions {
  double temperature = 0;         // the logits are divided by it; 0: always the highest (greedy)
  Index top_k = 0;                // only the k highest; 0: all
  double top_p = 1;               // only the fewest of those that together have this probability
  double repetition_penalty = 1;  // of tokens that the text has already; 1: none

  /// Throws std::invalid_argument naming what is out of range.
  void validate() const;
};

/// Divides the logits above 0 of the ids in `text` by the penalty and multiplies the others with
/// it, each id once (Keskar et al. 2019).  logits [vocab_size]
void penalise_repetitions(std::span<Real> logits, std::span<const std::int32_t> text,
                          double penalty);

/// An id drawn from softmax(logits / temperature) over the top_k highest logits, of these the
/// fewest whose probabilities, renormalised, reach top_p (Holtzman et al. 2020), renormalised
/// again. A tie goes to the lower id. The penalty is not applied here. Greedy draws no random
/// number, else one.  logits [vocab_size]
std::int32_t sample(std::span<const Real> logits, const SamplingOptions& options, Rng& rng);

}  // namespace focus
