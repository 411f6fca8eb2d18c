#pragma once

#include "data/tokens/batches.h"
#include "layers/decoder.h"

namespace focus {

/// What a batch of pairs says of a model, as TRL logs it: a pair's reward is beta times how much
/// more probable the model holds an answer than the reference.
struct PreferenceFigures {
  double loss = 0;      // mean of -log sigmoid(margin)
  double accuracy = 0;  // share of the pairs whose margin is above 0
  double margin = 0;    // mean reward of the chosen answers less that of the rejected
};

/// Direct preference optimisation (Rafailov et al., 2023, eq. 7): the mean over the pairs of
///   -log sigmoid(beta ((log p(chosen) - log p(rejected)) - (the same of the reference)))
/// where p is of an answer's tokens, those that count. Documents 2i and 2i + 1 of the batch are the
/// chosen and the rejected answer. `hidden` and `reference` [tokens, hidden_size] are states of the
/// batch; the reference's are of `teacher`, null: of `decoder` without what is trained. -> [1],
/// differentiable in `hidden`
Variable preference_loss(const Decoder& decoder, const Variable& hidden, const Tensor& reference,
                         const Decoder* teacher, const Batch& batch, double beta,
                         PreferenceFigures& figures);

}  // namespace focus
