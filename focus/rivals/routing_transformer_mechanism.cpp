#include "autograd/check.h"
#include "focus/mechanism.h"
#include "focus/rivals/routing_transformer.h"

namespace focus {
namespace {

class RoutingTransformerMechanism final : public Mechanism {
 public:
  using Settings = RoutingTransformerConfig;
  RoutingTransformerMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("routing_transformer", settings, shape),
        config_(settings),
        routed_(layers.size()) {
    check(!config_.shared_qk || shape.num_attention_heads == shape.num_key_value_heads,
          "routing_transformer: shared_qk has a key for each query head, but {} heads share {} "
          "keys here; set shared_qk=false",
          shape.num_attention_heads, shape.num_key_value_heads);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Rng rng = layer_rng(config_.seed, static_cast<Index>(i));
      layers[i].constants =
          random_centroids(config_, shape.num_key_value_heads, shape.head_dim, rng);
    }
  }

  std::string name() const override {
    return fmt::format("routing {}{}{}", config_.num_clusters, config_.shared_qk ? " shared" : "",
                       causal() ? "" : " balanced");
  }
  bool causal() const override { return config_.choice == ClusterChoice::nearest; }
  bool divides() const override { return false; }  // its centroids move from part to part

  /// Lets the batch of the last forward pass with a graph enter the centroids.
  Variable after_forward() override {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (!routed_[i].defined()) continue;
      layers[i].constants =
          updated_centroids(layers[i].constants, routed_[i], config_.decay, layers[i].updates++);
      routed_[i] = {};
    }
    return {};
  }

 protected:
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    const Tensor vectors = routing_vectors(in.q.value(), in.k.value(), config_.shared_qk);
    const std::vector<std::uint64_t> members = cluster_members(vectors, constants(in), config_);
    if (grad_enabled()) routed_[static_cast<std::size_t>(in.layer)] = vectors;
    if (pairs != nullptr) *pairs += count(in, members, vectors.dim(0));
    return routing_attention(in.q, in.k, in.v, in.options, members, config_);
  }
  /// Each key head's routing vectors with its centroids.
  double multiply_adds_to_choose(const MechanismInputs& in, const PairCounts&) const override {
    return static_cast<double>(in.k.dim(0) * in.k.dim(1) * constants(in).size());
  }

 private:
  /// `sequences` of them for each key head: the mean over the heads.
  PairCounts count(const MechanismInputs& in, std::span<const std::uint64_t> members,
                   Index sequences) const {
    const auto seq_len = static_cast<std::size_t>(in.q.dim(1));
    std::int64_t attended = 0;
    for (Index s = 0; s < sequences; ++s)
      attended += count_pairs(members.subspan(static_cast<std::size_t>(s) * seq_len, seq_len),
                              in.q.dim(1), config_.local_window, in.options.sliding_window)
                      .attended;
    PairCounts counts = all_pairs(in);
    const Index kv_heads = in.k.dim(2);
    counts.attended = (attended + kv_heads / 2) / kv_heads;
    return counts;
  }

  const Settings config_;
  std::vector<Tensor> routed_;  // of each layer, the vectors that have yet to enter its centroids
};

}  // namespace

AdapterKind routing_transformer_kind() {
  return mechanism_kind<RoutingTransformerMechanism>(
      "routing_transformer", "attention routing_transformer: k-means clusters");
}

}  // namespace focus
