#include "focus/evaluation/leakage.h"

#include <algorithm>
#include <cstring>

#include "autograd/base/check.h"
#include "data/tensors/tensor_source.h"

namespace focus {
namespace {

/// The first position before `cut` at which two runs' logits differ in a bit; nullopt where none.
std::optional<Index> first_difference(const Tensor& before, const Tensor& after, Index cut) {
  const auto vocab = static_cast<std::size_t>(before.cols());
  for (Index t = 0; t < cut; ++t)
    if (std::memcmp(before.data() + t * before.cols(), after.data() + t * before.cols(),
                    vocab * sizeof(Real)) != 0)
      return t;
  return std::nullopt;
}

}  // namespace

LeakageProbe::LeakageProbe(const Decoder& decoder, Index context, std::int64_t cuts,
                           std::uint64_t seed)
    : decoder_(decoder),
      vocab_size_(static_cast<std::int32_t>(decoder.config().vocab_size)),
      cuts_(cuts),
      rng_(seed),
      ids_(static_cast<std::size_t>(context)) {
  check(context >= 2, "leak test: {} tokens are too few: no token precedes a later one", context);
  for (auto& id : ids_) id = random_id();
}

std::optional<LeakageProbe::Leak> LeakageProbe::run() {
  const NoGrad guard;
  const auto context = static_cast<Index>(ids_.size());
  const Tensor before = logits(ids_);
  for (std::int64_t c = 1; c <= cuts_; ++c) {
    const Index cut = std::clamp<Index>(context * c / (cuts_ + 1), 1, context - 1);
    std::vector<std::int32_t> changed = ids_;
    for (auto id = changed.begin() + cut; id != changed.end(); ++id)
      *id = (*id + 1 + random_id() % std::max<std::int32_t>(1, vocab_size_ - 1)) % vocab_size_;
    if (const auto at = first_difference(before, logits(changed), cut)) return Leak{cut, *at};
  }
  return std::nullopt;
}

std::int32_t LeakageProbe::random_id() {
  return static_cast<std::int32_t>(rng_.below(static_cast<std::uint64_t>(vocab_size_)));
}

Tensor LeakageProbe::logits(const std::vector<std::int32_t>& tokens) const {
  Tensor result = decoder_.logits(decoder_.hidden_states(tokens, 1)).value();
  require_finite(result.span(), "leak test", "logits");  // NaN has the bits of NaN
  return result;
}

}  // namespace focus
