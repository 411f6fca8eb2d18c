#pragma once

#include <string>
#include <variant>
#include <vector>

#include "focus/rivals/magicpig.h"
#include "focus/rivals/performer.h"
#include "focus/rivals/routing_transformer.h"
#include "focus/rivals/sparq.h"
#include "focus/rivals/window_attention.h"
#include "layers/decoder.h"

namespace focus {

/// The attention mechanisms that the Focus paper compares with.
using RivalConfig = std::variant<WindowConfig, PerformerConfig, RoutingTransformerConfig,
                                 SparqConfig, MagicPigConfig>;

/// The name of its kind: "window", "performer", "routing_transformer", "sparq", "magicpig".
std::string kind_of(const RivalConfig& config);

/// One of them on all layers of a decoder. It has no parameters of its own; what it holds beside
/// the weights are constants.
class RivalModel {
 public:
  /// Throws std::invalid_argument where a setting is out of range, and where the decoder has what
  /// the mechanism cannot honour, naming both.
  RivalModel(RivalConfig config, const ModelConfig& shape);
  RivalModel(const RivalModel&) = delete;
  RivalModel& operator=(const RivalModel&) = delete;

  const RivalConfig& config() const { return config_; }
  /// "window 128", "performer m=256", "routing 8 shared balanced", "sparq k=32 r=16", ...
  std::string name() const;
  /// Whether what a token receives depends on nothing after it.
  bool causal() const;

  /// Makes every layer of the decoder attend through this model, which must outlive it.
  void compose(Decoder& decoder);
  /// Lets the batch of the last forward pass with a graph enter the centroids.
  void update();

  /// While true, forward passes add to `pairs`: those of one head, over layers and sequences.
  /// Performer's count as all: each has a weight, though none is computed.
  bool gather_statistics = false;
  PairCounts pairs;

  struct Layer {
    Tensor constants;  // centroids, random features or hash directions; undefined where none
    std::int64_t updates = 0;
  };
  std::vector<Layer> layers;

 private:
  Variable attend(const MechanismInputs& in);

  RivalConfig config_;
  std::vector<Tensor> routed_;  // of each layer, the vectors that update() has yet to see
};

}  // namespace focus
