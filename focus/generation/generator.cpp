#include "focus/generation/generator.h"

#include "autograd/base/check.h"
#include "focus/method/attention/focus_attention.h"
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

RoutedCache::RoutedCache(Decoder& decoder, FocusModel* focus, const AttentionSpec& mode,
                         CacheDtype dtype)
    : focus_(focus),
      mode_(focus == nullptr ? mode : focus->runnable_mode(mode)),
      dtype_(dtype),
      layers_(decoder.layers().size()),
      summary_layers_(decoder.layers().size()) {
  check(mode.kind != AttentionKind::soft,
        "cache: soft attention reads every key; generate with dense, hard or summary");
  if (mode.kind != AttentionKind::dense) {
    check(focus != nullptr, "cache: hard and summary attention need a Focus adapter");
    check(mode_.balance != Balance::sequence,
          "cache: with sequence balance a token's groups depend on later tokens; generation needs "
          "carried");
  }
  attached_.emplace(decoder, [this](const MechanismInputs& in) { return attend(in); });
}

Index RoutedCache::held(std::size_t layer) const {
  if (summary_layers_[layer]) return summary_layers_[layer]->size();
  return layers_[layer] ? layers_[layer]->size() : 0;
}

std::size_t RoutedCache::bytes() const {
  std::size_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer ? layer->bytes() : 0;
  for (const auto& layer : summary_layers_) bytes += layer ? layer->bytes() : 0;
  return bytes;
}

double RoutedCache::share_read() const {
  return keys_held_ == 0 ? 1 : static_cast<double>(keys_read_) / static_cast<double>(keys_held_);
}

template <class Cache, class Append, class Attend>
Tensor RoutedCache::go_on(const MechanismInputs& in, Cache& cache, Append&& append,
                          Attend&& attend) {
  const Index seq_len = in.q.dim(1), width = in.q.dim(2) * in.q.dim(3);
  Tensor out(in.q.shape());
  for (Index t = 0; t < seq_len; ++t) {
    append(t);
    attend(in.q.value().data() + t * width, out.data() + t * width);
    keys_read_ += cache.keys_read();
    keys_held_ += cache.size();
  }
  return out;
}

Variable RoutedCache::attend(const MechanismInputs& in) {
  check(in.h.dim(0) == 1, "cache: {} sequences, but only one is supported", in.h.dim(0));
  check(!grad_enabled(), "cache: it does not support gradients; use NoGrad around the pass");
  const auto layer = static_cast<std::size_t>(in.layer);
  check(in.first_position == 0 || held(layer) == in.first_position,
        "cache: a token at position {}, but the cache holds {} tokens", in.first_position,
        held(layer));
  if (mode_.kind == AttentionKind::summary) return attend_summary(in);
  std::optional<LayerCache>& cache = layers_[layer];
  const Index heads = in.q.dim(2), kv_heads = in.k.dim(2), head_dim = in.q.dim(3);
  // Dense: all tokens are in one bucket.
  GateOptions gate{.local_window = 0, .gated = false, .membership = {}};
  Tensor g;
  if (mode_.kind != AttentionKind::dense) {
    const Routing routing = focus_->grouping().route(in, *mode_.balance);
    gate = gate_options(focus_->config(), mode_, routing);
    g = routing.assignments.value();
  }
  const Index groups = g.defined() ? g.cols() : 0;
  if (in.first_position == 0) {
    GateOptions without_masks = gate;
    without_masks.membership.clear();
    cache.emplace(LayerCache::Sizes{heads, kv_heads, head_dim, groups}, in.options,
                  std::move(without_masks), dtype_);
  }
  const Real *k = in.k.value().data(), *v = in.v.value().data();
  const auto append = [&](Index t) {
    cache->append(k + t * kv_heads * head_dim, v + t * kv_heads * head_dim,
                  g.defined() ? g.data() + t * groups : nullptr,
                  g.defined() ? gate.membership[t] : std::uint64_t{1});
  };
  if (in.first_position > 0)
    return go_on(in, *cache, append, [&](const Real* q, Real* out) { cache->attend(q, out); });
  for (Index t = 0; t < in.k.dim(1); ++t) append(t);
  return g.defined() ? sparse_attention(in.q, in.k, in.v, g, in.options, gate)
                     : attention(in.q, in.k, in.v, in.options);
}

Variable RoutedCache::attend_summary(const MechanismInputs& in) {
  const Index heads = in.q.dim(2), kv_heads = in.k.dim(2), head_dim = in.q.dim(3);
  const GroupIds group_ids = focus_->grouping().group_ids(in, *mode_.balance);
  const Variable summary_bias = focus_->grouping().summary_bias(in.layer, kv_heads);
  std::optional<SummaryCache>& cache = summary_layers_[in.layer];
  SummarySettings options;
  if (in.first_position == 0) {
    options = focus_->summary_of(mode_, in.layer);
    cache.emplace(SummaryCache::Sizes{heads, kv_heads, head_dim, group_ids.groups}, in.options,
                  options, dtype_);
  }
  const Real *k = in.k.value().data(), *v = in.v.value().data();
  const std::span<const std::uint8_t> of_keys(group_ids.ids);
  if (in.first_position == 0) {
    cache->append(k, v, of_keys, in.k.dim(1));
    return summary_attention(in.q, in.k, in.v, group_ids, summary_bias, in.options, options);
  }
  const auto of_token = static_cast<std::size_t>(group_ids.heads);
  return go_on(
      in, *cache,
      [&](Index t) {
        cache->append(k + t * kv_heads * head_dim, v + t * kv_heads * head_dim,
                      of_keys.subspan(t * of_token, of_token));
      },
      [&](const Real* q, Real* out) { cache->attend(q, summary_bias.value(), out); });
}

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
  const std::span<const Real> last = hidden.span().last(width);
  const Index vocab_size = decoder_.config().vocab_size;
  return decoder_.logits(Tensor::from({1, width}, last)).value().reshape({vocab_size});
}

}  // namespace focus
