#pragma once

#include "data/tokens/batches.h"
#include "layers/decoder.h"

namespace focus {

/// `context` with the batch's documents, if its windows consist of documents.
ForwardContext pass_over(const Batch& batch, ForwardContext context = {});

/// The number of target tokens.
Index count_targets(const Batch& batch);

/// Mean cross-entropy of the target tokens, in nats: [1]. As in transformers with labels of -100
/// for other tokens, position_ids from 0 in each document and separately masked documents.
Variable batch_loss(const Decoder& decoder, const Batch& batch, const ForwardContext& context = {});

}  // namespace focus
