#include "focus/rivals/rival_model.h"

#include "autograd/check.h"

namespace focus {
namespace {

Rng layer_rng(std::int64_t seed, Index layer) {
  return Rng(static_cast<std::uint64_t>(seed) * 1000003 + static_cast<std::uint64_t>(layer));
}

/// What a layer holds before training.
Tensor constants_of(const WindowConfig&, const ModelConfig&, Index) { return {}; }
Tensor constants_of(const SparqConfig&, const ModelConfig&, Index) { return {}; }
Tensor constants_of(const PerformerConfig& c, const ModelConfig& shape, Index layer) {
  Rng rng = layer_rng(c.seed, layer);
  return orthogonal_features(c.num_features, shape.head_dim, rng);
}
Tensor constants_of(const RoutingTransformerConfig& c, const ModelConfig& shape, Index layer) {
  Rng rng = layer_rng(c.seed, layer);
  return random_centroids(c, shape.num_key_value_heads, shape.head_dim, rng);
}
Tensor constants_of(const MagicPigConfig& c, const ModelConfig& shape, Index layer) {
  Rng rng = layer_rng(c.seed, layer);
  return hash_directions(c, shape.head_dim, rng);
}

void refuse(const RivalConfig& config, const ModelConfig& shape) {
  if (std::holds_alternative<PerformerConfig>(config)) {
    check(shape.attn_logit_softcapping == 0,
          "performer: {} soft-caps its attention scores (attn_logit_softcapping {}), which random "
          "features cannot; choose another attention",
          shape.model_type, shape.attn_logit_softcapping);
    check(shape.widest_window() == 0,
          "performer: {} has layers with a sliding window of {}, which sums over all tokens before "
          "cannot keep; choose another attention",
          shape.model_type, shape.widest_window());
  }
  if (const auto* routing = std::get_if<RoutingTransformerConfig>(&config))
    check(!routing->shared_qk || shape.num_attention_heads == shape.num_key_value_heads,
          "routing_transformer: shared_qk has a key for each query head, but {} heads share {} "
          "keys here; set shared_qk=false",
          shape.num_attention_heads, shape.num_key_value_heads);
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

}  // namespace

std::string kind_of(const RivalConfig& config) {
  return std::visit([](const auto& c) { return std::string(c.kName); }, config);
}

RivalModel::RivalModel(RivalConfig config, const ModelConfig& shape) : config_(std::move(config)) {
  std::visit([](const auto& c) { c.validate(); }, config_);
  refuse(config_, shape);
  for (Index i = 0; i < shape.num_hidden_layers; ++i)
    layers.push_back(
        {std::visit([&](const auto& c) { return constants_of(c, shape, i); }, config_)});
  routed_.resize(layers.size());
}

std::string RivalModel::name() const {
  return std::visit(
      Overloaded{
          [](const WindowConfig& c) { return fmt::format("window w={}", c.local_window); },
          [](const PerformerConfig& c) { return fmt::format("performer m={}", c.num_features); },
          [](const RoutingTransformerConfig& c) {
            return fmt::format("routing {}{}{}", c.num_clusters, c.shared_qk ? " shared" : "",
                               c.choice == ClusterChoice::balanced ? " balanced" : "");
          },
          [](const SparqConfig& c) {
            return fmt::format("sparq k={} r={}{}", c.tokens, c.rank, c.reallocate ? " mean" : "");
          },
          [](const MagicPigConfig& c) {
            return fmt::format("magicpig K={} L={}", c.bits, c.tables);
          }},
      config_);
}

bool RivalModel::causal() const {
  const auto* routing = std::get_if<RoutingTransformerConfig>(&config_);
  return routing == nullptr || routing->choice == ClusterChoice::nearest;
}

void RivalModel::compose(Decoder& decoder) {
  check(decoder.layers().size() == layers.size(), "{}: {} layers for a decoder of {}",
        kind_of(config_), layers.size(), decoder.layers().size());
  for (Block& block : decoder.layers())
    block.self_attn.mechanism = [this](const MechanismInputs& in) { return attend(in); };
}

Variable RivalModel::attend(const MechanismInputs& in) {
  check(in.first_position == 0, "{}: layer {} has no cache of the {} tokens before",
        kind_of(config_), in.layer, in.first_position);
  const auto at = static_cast<std::size_t>(in.layer);
  const Tensor& constants = layers[at].constants;
  const Index batch = in.q.dim(0), seq_len = in.q.dim(1), window = in.options.sliding_window;
  const auto all_pairs = [&] {
    PairCounts counts;
    for (Index s = 0; s < batch; ++s) counts += count_pairs({}, seq_len, seq_len, window);
    return counts;
  };
  PairCounts counts;
  const Variable out = std::visit(
      Overloaded{[&](const WindowConfig& c) {
                   for (Index s = 0; gather_statistics && s < batch; ++s)
                     counts += count_window_pairs(seq_len, c.local_window, window);
                   return window_attention(in.q, in.k, in.v, in.options, c);
                 },
                 [&](const PerformerConfig&) {
                   counts = all_pairs();
                   return performer_attention(in.q, in.k, in.v, constants, in.options);
                 },
                 [&](const RoutingTransformerConfig& c) {
                   const Tensor vectors = routing_vectors(in.q.value(), in.k.value(), c.shared_qk);
                   const std::vector<std::uint64_t> members =
                       cluster_members(vectors, constants, c);
                   if (grad_enabled()) routed_[at] = vectors;
                   if (gather_statistics) {
                     const auto sequences = vectors.dim(0);
                     std::int64_t attended = 0;
                     for (Index s = 0; s < sequences; ++s)
                       attended += count_pairs(std::span(members).subspan(
                                                   static_cast<std::size_t>(s * seq_len),
                                                   static_cast<std::size_t>(seq_len)),
                                               seq_len, c.local_window, window)
                                       .attended;
                     counts = all_pairs();
                     const Index kv_heads = in.k.dim(2);
                     counts.attended = (attended + kv_heads / 2) / kv_heads;
                   }
                   return routing_attention(in.q, in.k, in.v, in.options, members, c);
                 },
                 [&](const SparqConfig& c) {
                   return sparq_attention(in.q, in.k, in.v, in.options, c, &counts);
                 },
                 [&](const MagicPigConfig& c) {
                   return magicpig_attention(in.q, in.k, in.v, constants, in.options, c, &counts);
                 }},
      config_);
  if (gather_statistics) pairs += counts;
  return out;
}

void RivalModel::update() {
  const auto* routing = std::get_if<RoutingTransformerConfig>(&config_);
  if (routing == nullptr) return;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!routed_[i].defined()) continue;
    layers[i].constants =
        updated_centroids(layers[i].constants, routed_[i], routing->decay, layers[i].updates++);
    routed_[i] = {};
  }
}

}  // namespace focus
