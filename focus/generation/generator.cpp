#include "focus/generation/generator.h"

#include "autograd/base/check.h"
#include "layers/family.h"

namespace focus {
namespace {

/// Whether the keys of the tokens before are rotated as a longer text's are. Under longrope a text
/// that outgrows the original length rotates all by other factors, as in transformers' Phi-3. Under
/// dynamic scaling every length has its own, and keys stay as they were, as there too.
bool keeps_keys(const ModelConfig& config, Index before, Index after) {
  return config.rope.scaling != RopeConfig::Scaling::longrope || same_angles(config, before, after);
}

}  // namespace

Generator::Generator(Decoder& decoder, FocusModel* focus, const AttentionSpec& mode,
                     std::optional<CacheDtype> cache)
    : decoder_(decoder) {
  if (focus != nullptr) focus->mode = mode;
  if (cache) cache_.emplace(decoder, focus, mode, *cache);
}

Tensor Generator::next_logits(std::span<const std::int32_t> ids) {
  check(!ids.empty(), "generator: no token ids");
  const NoGrad guard;
  const Index before = size();
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  const bool goes_on = cache_ && keeps_keys(decoder_.config(), before, size());
  const Tensor hidden = goes_on ? decoder_.hidden_states(ids, 1, before).value()
                                : decoder_.hidden_states(ids_, 1).value();
  const Index width = hidden.cols();
  const std::span<const Real> last = hidden.span().last(static_cast<std::size_t>(width));
  const Index vocab_size = decoder_.config().vocab_size;
  return decoder_.logits(Tensor::from({1, width}, last)).value().reshape({vocab_size});
}

}  // namespace focus
