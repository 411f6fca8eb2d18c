#pragma once

#include "data/tokens/batches.h"
#include "layers/decoder.h"

namespace focus {

/// `context`, with the documents of the batch where windows hold such.
ForwardContext pass_over(const Batch& batch, ForwardContext context = {});

/// Tokens of the batch that the loss is of.
Index count_targets(const Batch& batch);

/// Their mean cross-entropy, in nats: [1]. What transformers returns for labels that are -100 where
/// the loss is not, with position_ids that begin anew in each document, which does not see others.
Variable batch_loss(const Decoder& decoder, const Batch& batch, const ForwardContext& context = {});

}  // namespace focus
