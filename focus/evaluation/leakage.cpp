#include "focus/evaluation/leakage.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/base/random.h"
#include "data/tensors/tensor_source.h"

namespace focus {

std::optional<Leak> find_leak(const Decoder& decoder, Index context, std::int64_t cuts,
                              std::uint64_t seed) {
  check(context >= 2, "leak test: {} tokens are too few: no token precedes a later one", context);
  const NoGrad guard;
  Rng rng(seed);
  const auto vocab_size = static_cast<std::int32_t>(decoder.config().vocab_size);
  const auto random_id = [&] {
    return static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab_size)));
  };
  const auto logits = [&](const std::vector<std::int32_t>& tokens) {
    Tensor result = decoder.logits(decoder.hidden_states(tokens, 1)).value();
    require_finite(result.span(), "leak test", "logits");  // NaN has the bits of NaN
    return result;
  };
  std::vector<std::int32_t> ids(static_cast<std::size_t>(context));
  for (auto& id : ids) id = random_id();
  const Tensor before = logits(ids);
  const Index width = before.cols();
  for (std::int64_t c = 1; c <= cuts; ++c) {
    const Index cut = std::clamp<Index>(context * c / (cuts + 1), 1, context - 1);
    std::vector<std::int32_t> changed = ids;
    for (auto id = changed.begin() + cut; id != changed.end(); ++id)
      *id = (*id + 1 + random_id() % std::max<std::int32_t>(1, vocab_size - 1)) % vocab_size;
    const Tensor after = logits(changed);
    for (Index t = 0; t < cut; ++t)
      if (std::memcmp(before.data() + t * width, after.data() + t * width,
                      static_cast<std::size_t>(width) * sizeof(Real)) != 0)
        return Leak{cut, t};
  }
  return std::nullopt;
}

}  // namespace focus
