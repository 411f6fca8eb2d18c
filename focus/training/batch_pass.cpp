#include "focus/training/batch_pass.h"

#include <algorithm>
#include <utility>

namespace focus {

ForwardContext pass_over(const Batch& batch, ForwardContext context) {
  if (!batch.documents.empty())
    context.documents = std::make_shared<const std::vector<Index>>(batch.documents);
  return context;
}

Index count_targets(const Batch& batch) {
  return std::ranges::count_if(batch.targets(), [](std::int32_t target) { return target >= 0; });
}

Variable batch_loss(const Decoder& decoder, const Batch& batch, const ForwardContext& context) {
  return decoder.cross_entropy(
      decoder.hidden_states(batch.ids, batch.batch, 0, pass_over(batch, context)), batch.targets());
}

}  // namespace focus
