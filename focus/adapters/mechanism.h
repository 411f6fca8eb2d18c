#pragma once

#include "focus/adapter.h"

namespace focus {

/// Another attention on all layers of a decoder: one of the paper's baselines, or a mechanism of
/// the reader's own. What it holds beside the weights are constants, and in one that is trained on
/// a frozen base (the indexer) parameters, which visit_parameters() says.
///
/// A new one derives from this, says what attend() computes, and gets a line in the table of kinds
/// (focus/kinds.cpp).
class Mechanism : public Adapter {
 public:
  struct Layer {
    Tensor constants;  // centroids, random features or hash directions; undefined where none
    std::int64_t updates = 0;
  };

  /// Throws std::invalid_argument where a setting is out of range.
  Mechanism(std::string_view kind, AnySettings settings, const ModelConfig& shape);

  std::string_view kind() const final { return kind_; }
  const AnySettings& settings() const { return settings_; }

  void attach(Decoder& decoder) final;
  void detach() final { attached_.reset(); }
  void start_counting() final;
  void stop_counting() final { counting_ = false; }
  AttentionCounts counts() const final { return {.pairs = pairs_, .layers = {}}; }
  /// Its kind, settings, each layer's constants and its own parameters in kMechanismGroup; with
  /// parameters the base's fingerprint too.
  void write(StoreWriter& store, const std::string& base_fingerprint) final;
  void restore(const StoreReader& store) final;
  /// Takes the parameters of another of its kind. Throws std::invalid_argument where their shapes
  /// differ.
  void copy_parameters(Mechanism& other);

  /// The output before o_proj, shaped like q, of layer `in.layer`; each row of `in` is a sequence
  /// from its first token on. Where `pairs` is given it is empty, and becomes what one head
  /// attended of the causal pairs, over the sequences.
  virtual Variable attend(const MechanismInputs& in, PairCounts* pairs) = 0;

  std::vector<Layer> layers;

 protected:
  /// Multiply-adds that all heads of a layer need to choose the pairs that are counted, beside
  /// those of the pairs themselves. 0 where nothing is looked at to choose.
  virtual double multiply_adds_to_select(const MechanismInputs&, const PairCounts&) const {
    return 0;
  }

  const Tensor& constants(const MechanismInputs& in) const { return layers[in.layer].constants; }

 private:
  std::string kind_;
  AnySettings settings_;
  std::optional<AttachedMechanism> attached_;
  bool counting_ = false;
  PairCounts pairs_;
};

/// The group of a checkpoint file that holds a mechanism.
inline constexpr const char* kMechanismGroup = "/attention";

/// AdapterKind::open of mechanisms.
std::optional<SavedAdapter> open_mechanism(const AdapterKind& kind, const StoreReader& store,
                                           const ModelConfig& shape);

/// Every causal pair of the sequences: what a mechanism attends that leaves none out.
PairCounts all_pairs(const MechanismInputs& in);

/// A mechanism of that kind with these settings. Throws std::invalid_argument where they or the
/// shape do not fit, std::logic_error where the kind is not a mechanism.
std::unique_ptr<Mechanism> make_mechanism(std::string_view kind, const AnySettings& settings,
                                          const ModelConfig& shape);

/// What a layer of a mechanism draws at random, its own in every layer.
Rng layer_rng(std::int64_t seed, Index layer);

/// What the mechanisms of the table derive from: S, their settings, has a visit and the kind's name
/// as S::kKind.
template <class S>
class MechanismWith : public Mechanism {
 public:
  using Settings = S;
  MechanismWith(const S& settings, const ModelConfig& shape)
      : Mechanism(S::kKind, settings, shape), config_(settings) {}

 protected:
  const S config_;
};

/// The settings of the keys that are read whatever a mechanism selects.
void visit_local(auto&& f, Index& local_window, Index& sinks) {
  f("local_window", local_window, "pairs with i - j <= local_window are always attended",
    {0, 1 << 27});
  f("sinks", sinks, "first tokens of a sequence (attention sinks), always attended", {0, 1 << 27});
}

/// A row of the table: mechanism M, made by M(settings, shape).
template <class M>
AdapterKind mechanism_kind(std::string_view help, AdapterRole role = AdapterRole::attention) {
  return {.name = M::Settings::kKind,
          .help = help,
          .defaults = typename M::Settings{},
          .role = role,
          .store_group = kMechanismGroup,
          .make = [](const AnySettings& settings, const ModelConfig& shape, Decoder*,
                     Rng&) -> std::unique_ptr<Adapter> {
            return std::make_unique<M>(settings.as<typename M::Settings>(), shape);
          },
          .open = &open_mechanism};
}

}  // namespace focus
