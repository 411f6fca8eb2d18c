#include "focus/evaluation/scores/shared_prefix.h"

#include <algorithm>

#include "autograd/base/check.h"

namespace focus {
namespace {

/// `held` [tokens, ...] before each sequence of `x` [batch, seq_len, ...].
Variable behind(const std::vector<Real>& held, const Variable& x) {
  if (held.empty()) return x;
  const Index batch = x.dim(0), width = x.value().size() / (batch * x.dim(1));
  const Index tokens = static_cast<Index>(held.size()) / width;
  Tensor whole(x.shape().with(1, tokens + x.dim(1)));
  const Index own = x.dim(1) * width;
  for (Index b = 0; b < batch; ++b) {
    Real* const to = whole.data() + b * (tokens + x.dim(1)) * width;
    std::ranges::copy(held, to);
    std::copy_n(x.value().data() + b * own, own, to + tokens * width);
  }
  return Variable(whole);
}

/// The last `seq_len` tokens of each sequence.
Variable last_tokens(const Variable& x, Index seq_len) {
  if (x.dim(1) == seq_len) return x;
  const Index batch = x.dim(0), width = x.value().size() / (batch * x.dim(1));
  Tensor last(x.shape().with(1, seq_len));
  for (Index b = 0; b < batch; ++b)
    std::copy_n(x.value().data() + ((b + 1) * x.dim(1) - seq_len) * width, seq_len * width,
                last.data() + b * seq_len * width);
  return Variable(last);
}

void append(std::vector<Real>& held, const Variable& x) {
  const auto values = x.value().span();
  held.insert(held.end(), values.begin(), values.end());
}

}  // namespace

SharedPrefix::SharedPrefix(Decoder& decoder) : decoder_(decoder), layers_(decoder.layers().size()) {
  for (const Block& block : decoder.layers()) own_.push_back(block.self_attn.mechanism);
  attached_.emplace(decoder, [this](const MechanismInputs& in) { return attend(in); });
}

Index SharedPrefix::hold(std::span<const std::int32_t> ids) {
  const auto differs = std::ranges::mismatch(ids_, ids).in2;
  const auto kept = static_cast<std::size_t>(differs - ids.begin());
  for (Layer& layer : layers_)
    for (std::vector<Real>* held : {&layer.h, &layer.q, &layer.k, &layer.v})
      if (!ids_.empty()) held->resize(held->size() / ids_.size() * kept);
  ids_.resize(kept);
  if (kept == ids.size()) return 0;
  holding_ = true;
  hidden_states(ids.subspan(kept), 1);
  holding_ = false;
  ids_.assign(ids.begin(), ids.end());
  return static_cast<Index>(ids.size() - kept);
}

Tensor SharedPrefix::hidden_states(std::span<const std::int32_t> ids, Index batch) {
  const NoGrad guard;
  return decoder_.hidden_states(ids, batch, size()).value();
}

Variable SharedPrefix::attend_by_itself(const MechanismInputs& in) const {
  const AttentionMechanism& own = own_[static_cast<std::size_t>(in.layer)];
  return own ? own(in) : attention(in.q, in.k, in.v, in.options);
}

Variable SharedPrefix::attend(const MechanismInputs& in) {
  check(in.first_position == size(),
        "shared prefix: a token at position {}, but {} tokens are cached", in.first_position,
        size());
  Layer& held = layers_[static_cast<std::size_t>(in.layer)];
  const Variable h = behind(held.h, in.h), q = behind(held.q, in.q);
  const Variable k = behind(held.k, in.k), v = behind(held.v, in.v);
  const Variable out = attend_by_itself({h, q, k, v, in.options, in.layer, 0});
  if (holding_) {
    append(held.h, in.h);
    append(held.q, in.q);
    append(held.k, in.k);
    append(held.v, in.v);
  }
  return last_tokens(out, in.h.dim(1));
}

}  // namespace focus
