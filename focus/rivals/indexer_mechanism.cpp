#include <cmath>

#include "autograd/check.h"
#include "focus/mechanism.h"
#include "focus/rivals/indexer.h"
#include "layers/module.h"

namespace focus {
namespace {

/// The indexer of a layer.
struct LayerIndexer {
  Variable q;  // [heads * 16, hidden_size]
  Variable k;  // [16, hidden_size]
  Variable w;  // [heads, hidden_size]
  void visit(auto&& f) {
    f("q", q);
    f("k", k);
    f("w", w);
  }
};

class IndexerMechanism final : public Mechanism {
 public:
  using Settings = IndexerConfig;
  IndexerMechanism(const Settings& settings, const ModelConfig& shape)
      : Mechanism("indexer", settings, shape), config_(settings), shape_(shape) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Rng rng = layer_rng(config_.seed, static_cast<Index>(i));
      const auto drawn = [&](Index rows) {
        Tensor t({rows, shape.hidden_size});
        const double spread = 1 / std::sqrt(static_cast<double>(shape.hidden_size));
        for (Real& x : t.span()) x = static_cast<Real>(spread * rng.normal());
        return Variable(t);
      };
      indexers_.push_back({.q = drawn(config_.heads * Settings::kDim),
                           .k = drawn(Settings::kDim),
                           .w = drawn(config_.heads)});
    }
  }

  std::string name() const override {
    return fmt::format("indexer k={} w={}", config_.tokens, config_.local_window);
  }

  void for_each_own(const std::function<void(const std::string&, Variable&)>& f) override {
    for (std::size_t i = 0; i < indexers_.size(); ++i)
      for_each_parameter(indexers_[i], f, fmt::format("indexer.layers.{}", i));
  }
  void set_trainable(bool wanted) override {
    trains_ = wanted;
    for (LayerIndexer& indexer : indexers_) set_requires_grad(indexer, wanted);
  }
  /// The mean of the layers' losses.
  Variable after_forward() override {
    Variable sum = std::exchange(loss_, {});
    return sum.defined() ? scale(sum, 1 / static_cast<Real>(layers.size())) : sum;
  }

 protected:
  /// Where it is trained the model attends as it was, and the indexer looks on.
  Variable attend(const MechanismInputs& in, PairCounts* pairs) override {
    const IndexVectors index = vectors(in);
    if (trains_ && grad_enabled()) {
      const Variable loss = indexer_loss(index, in.q.value(), in.k.value(), in.options);
      loss_ = loss_.defined() ? add(loss_, loss) : loss;
      if (pairs != nullptr) *pairs += all_pairs(in);
      return attention(in.q, in.k, in.v, in.options);
    }
    return indexer_attention(in.q, in.k, in.v, index, in.options, config_, pairs);
  }
  /// Its projections of every token, and every distant pair by its heads.
  double multiply_adds_to_choose(const MechanismInputs& in, const PairCounts&) const override {
    if (trains_ && grad_enabled()) return 0;  // it looks on
    const LayerIndexer& of = indexers_[static_cast<std::size_t>(in.layer)];
    const Index tokens = in.h.dim(0) * in.h.dim(1);
    const std::int64_t distant =
        in.h.dim(0) * distant_blocks(near_zone(config_), 1, in.h.dim(1), in.options.sliding_window);
    return static_cast<double>(
        tokens * (of.q.value().size() + of.k.value().size() + of.w.value().size()) +
        distant * config_.heads * (Settings::kDim + 1));
  }

 private:
  IndexVectors vectors(const MechanismInputs& in) const {
    const LayerIndexer& of = indexers_[static_cast<std::size_t>(in.layer)];
    const Variable h(in.h.value());  // the model learns nothing by it
    const Index batch = h.dim(0), seq_len = h.dim(1);
    const Real to_one = 1 / std::sqrt(static_cast<Real>(config_.heads * Settings::kDim));
    IndexVectors index{
        .q = reshape(linear(h, of.q, {}), {batch, seq_len, config_.heads, Settings::kDim}),
        .k = reshape(linear(h, of.k, {}), {batch, seq_len, 1, Settings::kDim}),
        .w = scale(linear(h, of.w, {}), to_one)};
    if (!shape_.learned_positions) {
      const RotaryTable table = rotary_table(shape_.rope, Settings::kRotated, seq_len);
      index.q = rope(index.q, table);
      index.k = rope(index.k, table);
    }
    return index;
  }

  const Settings config_;
  const ModelConfig shape_;
  std::vector<LayerIndexer> indexers_;  // one a layer
  bool trains_ = false;
  Variable loss_;  // of the layers so far
};

}  // namespace

AdapterKind indexer_kind() {
  AdapterKind kind = mechanism_kind<IndexerMechanism>(
      "indexer", "attention indexer: a small indexer chooses keys, trained on a frozen base (DSA)",
      false);
  kind.has_parameters = true;
  return kind;
}

}  // namespace focus
