#include "focus/generation/sequence_cache.h"

#include <algorithm>

#include "autograd/base/check.h"
#include "focus/method/attention/focus_attention.h"
#include "focus/method/documents.h"
#include "layers/family.h"

namespace focus {
namespace {

/// Whether the keys of the tokens before are rotated as a longer text's are. Under longrope a text
/// that outgrows the original length rotates all by other factors, as in transformers' Phi-3. Under
/// dynamic scaling every length has its own, and keys stay as they were, as there too.
bool keeps_keys(const ModelConfig& config, Index before, Index after) {
  return config.rope.scaling != RopeConfig::Scaling::longrope || same_angles(config, before, after);
}

/// What each token of a pass attends to that continues what a layer's cache holds: append(token)
/// lets it enter, attend(q, out, tokens) reads, at most so many together; several read all keys.
template <class Cache, class Append, class Attend>
Tensor go_on(const MechanismInputs& in, const Cache& cache, Index together, std::int64_t& keys_read,
             std::int64_t& keys_held, Append&& append, Attend&& attend) {
  const Index seq_len = in.q.dim(1), width = in.q.dim(2) * in.q.dim(3);
  Tensor out(in.q.shape());
  for (Index t = 0; t < seq_len; t += together) {
    const Index tokens = std::min(together, seq_len - t);
    for (Index i = t; i < t + tokens; ++i) append(i);
    attend(in.q.value().data() + t * width, out.data() + t * width, tokens);
    const Index held = tokens * cache.size() - tokens * (tokens - 1) / 2;
    keys_read += tokens == 1 ? cache.keys_read() : held;
    keys_held += held;
  }
  return out;
}
/// Tokens that dense attention reads a cache once for, and those that wait at most.
constexpr Index kTogether = 16, kMostWaiting = 32;

/// The caches that a part fills.
void for_each_cache(const CachedDecoder::Part& part, auto&& f) {
  f(*part.cache);
  if (part.also != nullptr) f(*part.also);
}

/// Where a part's rows go, and the tokens of its sequence afterwards.
struct Place {
  Index begin, length;
};

/// Empties the caches of a pass that throws: some layers may have taken its tokens.
class Unfinished {
 public:
  explicit Unfinished(std::span<const CachedDecoder::Part> parts) : parts_(parts) {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    for (const CachedDecoder::Part& part : parts_)
      for_each_cache(part, [](SequenceCache& cache) { cache.clear(); });
  }
  void done() { parts_ = {}; }

 private:
  std::span<const CachedDecoder::Part> parts_;
};

}  // namespace

Index SequenceCache::held(std::size_t layer) const {
  if (summary_layers_[layer]) return summary_layers_[layer]->size() + waiting_[layer].tokens;
  return layers_[layer] ? layers_[layer]->size() : 0;
}

std::size_t SequenceCache::bytes() const {
  std::size_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer ? layer->bytes() : 0;
  for (const auto& layer : summary_layers_) bytes += layer ? layer->bytes() : 0;
  for (const auto& [tokens, h, k, v] : waiting_)
    bytes += (h.capacity() + k.capacity() + v.capacity()) * sizeof(Real);
  return bytes;
}

double SequenceCache::share_read() const {
  return keys_held_ == 0 ? 1 : static_cast<double>(keys_read_) / static_cast<double>(keys_held_);
}

void SequenceCache::clear() {
  for (auto& layer : layers_) layer.reset();
  for (auto& layer : summary_layers_) layer.reset();
  waiting_.assign(waiting_.size(), {});
  ids_.clear();
}

void SequenceCache::truncate(Index tokens) {
  for (auto& layer : layers_)
    if (layer) layer->truncate(tokens);
  for (std::size_t i = 0; i < summary_layers_.size(); ++i) {
    std::optional<SummaryCache>& layer = summary_layers_[i];
    if (!layer) continue;
    auto& [waiting, h, k, v] = waiting_[i];
    const Index left = std::clamp<Index>(tokens - layer->size(), 0, waiting);
    if (waiting > 0)
      for (std::vector<Real>* of : {&h, &k, &v}) of->resize(std::ssize(*of) / waiting * left);
    waiting = left;
    layer->truncate(std::min(tokens, layer->size()));
  }
  ids_.resize(static_cast<std::size_t>(tokens));
}

Index SequenceCache::least_size() const {
  Index least = 0;
  for (const auto& layer : summary_layers_)
    if (layer) least = std::max(least, layer->least_size());
  return least;
}

SequenceCache CachedDecoder::cache(const AttentionSpec& wanted, std::optional<CacheDtype> dtype,
                                   Index undo) const {
  if (!dtype) return {wanted, dtype, undo, 0};
  const AttentionSpec mode = focus_ == nullptr ? wanted : focus_->runnable_mode(wanted);
  check(mode.kind != AttentionKind::soft,
        "cache: soft attention reads every key; generate with dense, hard or summary");
  if (mode.kind != AttentionKind::dense) {
    check(focus_ != nullptr, "cache: hard and summary attention need a Focus adapter");
    check(mode.balance != Balance::sequence,
          "cache: with sequence balance a token's groups depend on later tokens; generation needs "
          "carried");
  }
  check(*dtype != CacheDtype::q4 ||
            (mode.kind == AttentionKind::summary && focus_->grouping().key_centroids(0).defined()),
        "cache: q4 needs summary attention with groups of keys, from whose centroids it keeps what "
        "keys differ by; attention is {} (q8_0 takes every attention)",
        mode.name());
  return {mode, dtype, undo, decoder_.layers().size()};
}

Tensor CachedDecoder::hidden_states(std::span<const Part> parts) {
  check(!grad_enabled(), "cache: it does not support gradients; use NoGrad around the pass");
  Index tokens = 0;
  std::vector<Place> places;
  for (const Part& part : parts) {
    check(!part.ids.empty(), "cache: no token ids");
    check(part.also == nullptr || part.also->size() == part.cache->size(),
          "cache: one of {} tokens beside one of {}", part.also ? part.also->size() : 0,
          part.cache->size());
    places.push_back({tokens, part.cache->size() + std::ssize(part.ids)});
    tokens += std::ssize(part.ids);
  }
  Tensor out({tokens, decoder_.config().hidden_size});
  Unfinished unfinished(parts);
  const auto same = [&](std::size_t i, std::size_t j) {
    return i == j || (parts[i].cache->dtype() && parts[j].cache->dtype() &&
                      same_angles(decoder_.config(), places[i].length, places[j].length));
  };
  for (std::size_t first = 0; first < parts.size(); ++first) {
    // All that have its angles go in its pass.
    bool earlier = false;
    for (std::size_t i = 0; i < first; ++i) earlier |= same(i, first);
    if (earlier) continue;
    std::vector<std::size_t> members;
    for (std::size_t i = first; i < parts.size(); ++i)
      if (same(i, first)) members.push_back(i);
    std::vector<Part> pass;
    std::vector<std::vector<std::int32_t>> whole(members.size());
    for (std::size_t m = 0; m < members.size(); ++m) {
      const Part& part = pass.emplace_back(parts[members[m]]);
      const Index before = part.cache->size();
      if (before == 0 ||
          (part.cache->dtype() && keeps_keys(decoder_.config(), before, places[members[m]].length)))
        continue;
      whole[m] = part.cache->ids();
      whole[m].insert(whole[m].end(), part.ids.begin(), part.ids.end());
      pass.back().ids = whole[m];
      for_each_cache(part, [](SequenceCache& cache) { cache.clear(); });
    }
    const Tensor hidden = run(pass);
    const Index width = hidden.cols();
    Index end = 0;
    for (std::size_t m = 0; m < members.size(); ++m) {
      end += std::ssize(pass[m].ids);
      const Index rows = std::ssize(parts[members[m]].ids);
      std::copy_n(hidden.data() + (end - rows) * width, rows * width,
                  out.data() + places[members[m]].begin * width);
    }
  }
  unfinished.done();
  return out;
}

/// Parts with the same angles.
Tensor CachedDecoder::run(std::span<const Part> parts) const {
  std::vector<std::int32_t> ids;
  std::vector<Index> starts = {0}, firsts;
  for (const Part& part : parts) {
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    starts.push_back(std::ssize(ids));
    firsts.push_back(part.cache->size());
  }
  const auto attend_part = [&](const MechanismInputs& rows, Index begin, Index) {
    const auto at = std::ranges::lower_bound(starts, begin) - starts.begin();
    const MechanismInputs in{rows.h, rows.q, rows.k, rows.v, rows.options, rows.layer, firsts[at]};
    if (parts[at].also != nullptr) attend(in, *parts[at].also, false);
    return attend(in, *parts[at].cache, true);
  };
  std::optional<AttachedMechanism> attached;
  if (parts[0].cache->dtype())
    attached.emplace(decoder_,
                     [&](const MechanismInputs& in) { return by_document(in, attend_part); });
  const Variable hidden =
      parts.size() == 1
          ? decoder_.hidden_states(ids, 1, firsts[0])
          : decoder_.hidden_states(ids, 1, 0,
                                   {.documents = std::make_shared<const std::vector<Index>>(starts),
                                    .first_positions = firsts});
  for (const Part& part : parts)
    for_each_cache(part, [&](SequenceCache& cache) {
      cache.ids_.insert(cache.ids_.end(), part.ids.begin(), part.ids.end());
    });
  return hidden.value().reshape({std::ssize(ids), hidden.value().cols()});
}

Variable CachedDecoder::attend(const MechanismInputs& in, SequenceCache& of, bool reads) const {
  const auto layer = static_cast<std::size_t>(in.layer);
  check(of.held(layer) == in.first_position,
        "cache: a token at position {}, but the cache holds {} tokens", in.first_position,
        of.held(layer));
  if (of.mode_.kind == AttentionKind::summary) return attend_summary(in, of, reads);
  std::optional<LayerCache>& cache = of.layers_[layer];
  const Index heads = in.q.dim(2), kv_heads = in.k.dim(2), head_dim = in.q.dim(3);
  // Dense: all tokens are in one bucket.
  GateOptions gate{.local_window = 0, .gated = false, .membership = {}};
  Tensor g;
  if (of.mode_.kind != AttentionKind::dense) {
    const Routing routing = focus_->grouping().route(in, *of.mode_.balance);
    gate = gate_options(focus_->config(), of.mode_, routing);
    g = routing.assignments.value();
  }
  const Index groups = g.defined() ? g.cols() : 0;
  if (in.first_position == 0) {
    GateOptions without_masks = gate;
    without_masks.membership.clear();
    cache.emplace(LayerCache::Sizes{heads, kv_heads, head_dim, groups}, in.options,
                  std::move(without_masks), *of.dtype_);
  }
  const Real *k = in.k.value().data(), *v = in.v.value().data();
  const auto append = [&](Index t) {
    cache->append(k + t * kv_heads * head_dim, v + t * kv_heads * head_dim,
                  g.defined() ? g.data() + t * groups : nullptr,
                  g.defined() ? gate.membership[t] : std::uint64_t{1});
  };
  if (reads && in.first_position > 0)
    return go_on(in, *cache,
                 of.mode_.kind == AttentionKind::dense && cache->takes_rows() ? kTogether : 1,
                 of.keys_read_, of.keys_held_, append,
                 [&](const Real* q, Real* out, Index tokens) { cache->attend(q, out, tokens); });
  for (Index t = 0; t < in.k.dim(1); ++t) append(t);
  if (!reads) return {};
  return g.defined() ? sparse_attention(in.q, in.k, in.v, g, in.options, gate)
                     : attention(in.q, in.k, in.v, in.options);
}

/// Grouping a few tokens takes nearly as long as many: it reads all centroids.
void CachedDecoder::take_waiting(const MechanismInputs& in, SequenceCache& of) const {
  auto& [tokens, h, k, v] = of.waiting_[in.layer];
  const Variable all_h(Tensor::from({1, tokens, in.h.value().cols()}, h));
  const Variable all_k(Tensor::from({1, tokens, in.k.dim(2), in.k.dim(3)}, k));
  const GroupIds group_ids = focus_->grouping().group_ids(
      {all_h, in.q, all_k, in.v, in.options, in.layer, in.first_position}, *of.mode_.balance);
  of.summary_layers_[in.layer]->append(k.data(), v.data(), group_ids.ids, tokens);
  tokens = 0;
  h.clear();
  k.clear();
  v.clear();
}

Variable CachedDecoder::attend_summary(const MechanismInputs& in, SequenceCache& of,
                                       bool reads) const {
  const Index heads = in.q.dim(2), kv_heads = in.k.dim(2), head_dim = in.q.dim(3);
  if (in.first_position > 0) {
    auto& [waiting, h, k, v] = of.waiting_[in.layer];
    if (!reads)
      for (const auto& [to, from] :
           {std::pair(&h, &in.h), std::pair(&k, &in.k), std::pair(&v, &in.v)})
        to->insert(to->end(), from->value().span().begin(), from->value().span().end());
    waiting += reads ? 0 : in.k.dim(1);
    if (waiting > 0 && (reads || waiting >= kMostWaiting)) take_waiting(in, of);
    if (!reads) return {};
  }
  const GroupIds group_ids = focus_->grouping().group_ids(in, *of.mode_.balance);
  const Variable summary_bias = focus_->grouping().summary_bias(in.layer, kv_heads);
  std::optional<SummaryCache>& cache = of.summary_layers_[in.layer];
  SummarySettings options;
  if (in.first_position == 0) {
    options = focus_->summary_of(of.mode_, in.layer);
    cache.emplace(SummaryCache::Sizes{heads, kv_heads, head_dim, group_ids.groups}, in.options,
                  options, *of.dtype_, of.undo_, focus_->grouping().key_centroids(in.layer));
  }
  const Real *k = in.k.value().data(), *v = in.v.value().data();
  const std::span<const std::uint8_t> of_keys(group_ids.ids);
  if (in.first_position == 0) {
    cache->append(k, v, of_keys, in.k.dim(1));
    if (!reads) return {};
    return summary_attention(in.q, in.k, in.v, group_ids, summary_bias, in.options, options);
  }
  const auto of_token = static_cast<std::size_t>(group_ids.heads);
  return go_on(
      in, *cache, 1, of.keys_read_, of.keys_held_,
      [&](Index t) {
        cache->append(k + t * kv_heads * head_dim, v + t * kv_heads * head_dim,
                      of_keys.subspan(t * of_token, of_token));
      },
      [&](const Real* q, Real* out, Index) { cache->attend(q, summary_bias.value(), out); });
}

}  // namespace focus
