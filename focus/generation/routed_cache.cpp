#include "focus/generation/routed_cache.h"

#include "autograd/check.h"
#include "focus/attention/sparse_attention.h"

namespace focus {

RoutedCache::RoutedCache(Decoder& decoder, FocusModel* focus, const AttentionMode& mode)
    : focus_(focus), mode_(mode), layers_(decoder.layers().size()) {
  check(mode.kind != AttentionMode::Kind::soft,
        "cache: soft attention reads every key; generation is dense or hard");
  if (mode.kind == AttentionMode::Kind::hard) {
    check(focus != nullptr, "cache: hard attention needs a Focus adapter");
    check(mode.balance != Balance::sequence,
          "cache: with sequence balance a token's groups depend on later tokens; generation needs "
          "carried");
  }
  composed_.emplace(decoder, [this](const MechanismInputs& in) { return attend(in); });
}

Index RoutedCache::size() const { return layers_[0] ? layers_[0]->size() : 0; }

std::size_t RoutedCache::bytes() const {
  std::size_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer ? layer->bytes() : 0;
  return bytes;
}

double RoutedCache::share_read() const {
  return keys_held_ == 0 ? 1 : static_cast<double>(keys_read_) / static_cast<double>(keys_held_);
}

Variable RoutedCache::attend(const MechanismInputs& in) {
  check(in.h.dim(0) == 1, "cache: {} sequences, one is held", in.h.dim(0));
  check(!grad_enabled(), "cache: it has no gradient; put a NoGrad around the pass");
  std::optional<LayerCache>& cache = layers_[static_cast<std::size_t>(in.layer)];
  check(in.first_position == 0 || (cache && cache->size() == in.first_position),
        "cache: a token at position {}, but it holds {} tokens", in.first_position,
        cache ? cache->size() : 0);
  const Index seq_len = in.q.dim(1), heads = in.q.dim(2), kv_heads = in.k.dim(2);
  const Index head_dim = in.q.dim(3);
  // Dense: all tokens are of one class.
  GateOptions gate{.local_window = 0, .gated = false, .membership = {}};
  Tensor g;
  if (mode_.kind == AttentionMode::Kind::hard) {
    const Routing routing = route(in.h, focus_->layers()[static_cast<std::size_t>(in.layer)],
                                  focus_->config(), mode_.balance);
    gate = hard_gate_options(focus_->config(), mode_, routing);
    g = routing.assignments.value();
  }
  const Index groups = g.defined() ? g.cols() : 0;
  if (in.first_position == 0) {
    GateOptions without_sets = gate;
    without_sets.membership.clear();
    cache.emplace(LayerCache::Sizes{heads, kv_heads, head_dim, groups}, in.options,
                  std::move(without_sets));
  }
  Tensor out = in.first_position == 0 ? Tensor() : Tensor(in.q.shape());
  for (Index t = 0; t < seq_len; ++t) {
    cache->append(in.k.value().data() + t * kv_heads * head_dim,
                  in.v.value().data() + t * kv_heads * head_dim,
                  g.defined() ? g.data() + t * groups : nullptr,
                  g.defined() ? gate.membership[static_cast<std::size_t>(t)] : std::uint64_t{1});
    if (in.first_position == 0) continue;
    cache->attend(in.q.value().data() + t * heads * head_dim, out.data() + t * heads * head_dim);
    keys_read_ += cache->keys_read();
    keys_held_ += cache->size();
  }
  if (in.first_position > 0) return out;
  return g.defined() ? sparse_attention(in.q, in.k, in.v, g, in.options, gate)
                     : attention(in.q, in.k, in.v, in.options);
}

}  // namespace focus
