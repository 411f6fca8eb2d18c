#include "focus/generation/generator.h"

#include "layers/logit_rows.h"

namespace focus {

Generator::Generator(Decoder& decoder, FocusModel* focus, const AttentionSpec& mode,
                     std::optional<CacheDtype> cache)
    : decoder_(decoder, focus), cache_(decoder_.cache(mode, cache)) {
  if (focus != nullptr) focus->mode = mode;
}

Tensor Generator::next_logits(std::span<const std::int32_t> ids) {
  const NoGrad guard;
  const CachedDecoder::Part part{.cache = &cache_, .ids = ids};
  const Tensor hidden = decoder_.hidden_states(std::span(&part, 1));
  const Decoder& decoder = decoder_.decoder();
  return decoder.logits(rows_of(hidden, hidden.rows() - 1, 1))
      .value()
      .reshape({decoder.config().vocab_size});
}

}  // namespace focus
