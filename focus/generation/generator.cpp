#include "focus/generation/generator.h"

#include "autograd/base/check.h"

namespace focus {

Generator::Generator(Decoder& decoder, FocusModel* focus, const AttentionMode& mode, bool cached)
    : decoder_(decoder) {
  if (focus != nullptr) focus->mode = mode;
  if (cached) cache_.emplace(decoder, focus, mode);
}

Tensor Generator::next_logits(std::span<const std::int32_t> ids) {
  check(!ids.empty(), "generator: no ids");
  const NoGrad guard;
  const Index before = size();
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  const Tensor hidden = cache_ ? decoder_.hidden_states(ids, 1, before).value()
                               : decoder_.hidden_states(ids_, 1).value();
  const Index width = hidden.cols();
  const std::span<const Real> last = hidden.span().last(static_cast<std::size_t>(width));
  const Index vocab_size = decoder_.config().vocab_size;
  return decoder_.logits(Tensor::from({1, width}, last)).value().reshape({vocab_size});
}

}  // namespace focus
