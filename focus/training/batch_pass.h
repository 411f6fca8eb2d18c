#pragma once

#include <algorithm>
#include <memory>

#include "data/tokens/batches.h"
#include "layers/decoder.h"

namespace focus {

/// `context` with the batch's documents, if its windows consist of documents.
inline ForwardContext pass_over(const Batch& batch, ForwardContext context = {}) {
  if (!batch.documents.empty())
    context.documents = std::make_shared<const std::vector<Index>>(batch.documents);
  return context;
}

/// The number of target tokens.
inline Index count_targets(const Batch& batch) {
  return std::ranges::count_if(batch.targets(), [](std::int32_t target) { return target >= 0; });
}

/// Mean cross-entropy of the target tokens, in nats: [1]. As in transformers with labels of -100
/// for other tokens, position_ids from 0 in each document and separately masked documents.
inline Variable batch_loss(const Decoder& decoder, const Batch& batch,
                           const ForwardContext& context = {}) {
  return decoder.cross_entropy(
      decoder.hidden_states(batch.ids, batch.batch, 0, pass_over(batch, context)), batch.targets());
}

}  // namespace focus
