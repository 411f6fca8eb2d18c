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

}  // namespace

SharedPrefix::SharedPrefix(Decoder& decoder) : decoder_(decoder), layers_(decoder.layers().size()) {
  for (const Block& block : decoder.layers()) own_.push_back(block.self_attn.mechanism);
  attached_.emplace(decoder, [this](const MechanismInputs& in) { return attend(in); });
}

Index SharedPrefix::hold(std::span<const std::int32_t> ids) {
  const auto differs = std::ranges::mismatch(ids_, ids).in2;
  const auto kept = static_cast<std::size_t>(differs - ids.begin());
  for (Layer& layer : layers_)
    for (std::vector<Real>& held : layer)
      if (!ids_.empty()) held.resize(held.size() / ids_.size() * kept);
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

Variable SharedPrefix::attend(const MechanismInputs& in) {
  check(in.first_position == size(),
        "shared prefix: a token at position {}, but {} tokens are cached", in.first_position,
        size());
  Layer& held = layers_[static_cast<std::size_t>(in.layer)];
  const Variable h = behind(held[0], in.h), q = behind(held[1], in.q);
  const Variable k = behind(held[2], in.k), v = behind(held[3], in.v);
  const AttentionMechanism& own = own_[static_cast<std::size_t>(in.layer)];
  const Variable out =
      own ? own({h, q, k, v, in.options, in.layer, 0}) : attention(q, k, v, in.options);
  if (holding_)
    for (std::size_t i = 0; const Variable* x : {&in.h, &in.q, &in.k, &in.v}) {
      const auto values = x->value().span();
      held[i].insert(held[i].end(), values.begin(), values.end());
      ++i;
    }
  return last_tokens(out, in.h.dim(1));
}

}  // namespace focus
