#include "focus/adapters/mechanism.h"

#include <algorithm>
#include <map>

#include "autograd/base/check.h"
#include "focus/method/documents.h"

namespace focus {
namespace {

constexpr const char* kMechanismParameters = "/attention/parameters";
constexpr const char* kMechanismConfig = "/attention/config.yaml";

std::string mechanism_layer_path(std::size_t layer) {
  return fmt::format("{}/layer_{:03}", kMechanismGroup, layer);
}

}  // namespace

Mechanism::Mechanism(std::string_view kind, AnySettings settings, const ModelConfig& shape)
    : layers(static_cast<std::size_t>(shape.num_hidden_layers)),
      kind_(kind),
      settings_(std::move(settings)) {
  settings_.validate();
}

void Mechanism::attach(Decoder& decoder) {
  check(decoder.layers().size() == layers.size(), "{}: {} layers for a decoder of {}", kind_,
        layers.size(), decoder.layers().size());
  attached_.reset();  // or it would be put back when the new one goes
  attached_.emplace(decoder, [this](const MechanismInputs& in) {
    check(in.first_position == 0, "{}: layer {} has no cache of the {} tokens before", kind_,
          in.layer, in.first_position);
    return by_document(in, [this](const MechanismInputs& part, Index, Index) {
      PairCounts of_pass;
      Variable out = attend(part, counting_ ? &of_pass : nullptr);
      if (counting_)
        of_pass.selection_cost = pairs_worth(multiply_adds_to_select(part, of_pass), part);
      pairs_ += of_pass;
      return out;
    });
  });
}

void Mechanism::start_counting() {
  pairs_ = {};
  counting_ = true;
}

void Mechanism::write(StoreWriter& store, const std::string& base_fingerprint) {
  store.attribute(kMechanismGroup, "kind", kind_);
  store.text(kMechanismConfig, dump_config(settings_));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    store.attribute(mechanism_layer_path(i), "updates", layers[i].updates);
    if (layers[i].constants.defined())
      store.tensor(mechanism_layer_path(i) + "/constants", layers[i].constants);
  }
  bool is_trained = false;
  visit_parameters([&](const std::string& name, Variable& p) {
    is_trained = true;
    store.tensor(store_path(kMechanismParameters, name), p.value());
  });
  if (is_trained) store.attribute(kMechanismGroup, "base_fingerprint", base_fingerprint);
}

void Mechanism::restore(const StoreReader& store) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].updates = store.int_attribute(mechanism_layer_path(i), "updates");
    if (layers[i].constants.defined())
      layers[i].constants =
          store.tensor(mechanism_layer_path(i) + "/constants", layers[i].constants.shape());
  }
  visit_parameters([&](const std::string& name, Variable& p) {
    // Into the numbers that are there: an optimiser holds them too.
    const Tensor stored = store.tensor(store_path(kMechanismParameters, name), p.shape());
    std::ranges::copy(stored.span(), p.mutable_value().data());
  });
}

void Mechanism::copy_parameters(Mechanism& other) {
  std::map<std::string, Tensor> theirs;
  other.visit_parameters([&](const std::string& name, Variable& p) { theirs[name] = p.value(); });
  visit_parameters([&](const std::string& name, Variable& p) {
    const Tensor& value = theirs[name];
    check(value.defined() && value.shape() == p.shape(),
          "{}: {} is {}, but the model was trained with {}; give the settings that it was trained "
          "with",
          kind_, name, p.shape(), value.defined() ? value.shape() : Shape({0}));
    p.mutable_value() = value;
  });
}

std::unique_ptr<Mechanism> make_mechanism(std::string_view kind, const AnySettings& settings,
                                          const ModelConfig& shape) {
  Rng rng(0);
  auto made = find_attention(kind, "attention").make(settings, shape, nullptr, rng);
  auto* const mechanism = dynamic_cast<Mechanism*>(made.get());
  if (mechanism == nullptr) throw std::logic_error(fmt::format("unknown mechanism {}", kind));
  static_cast<void>(made.release());  // it is the same
  return std::unique_ptr<Mechanism>(mechanism);
}

std::optional<SavedAdapter> open_mechanism(const AdapterKind& kind, const StoreReader& store,
                                           const ModelConfig& shape) {
  const std::string stored = store.string_attribute(kMechanismGroup, "kind");
  if (find_attention(stored, store.describe()).name != kind.name) return std::nullopt;
  AnySettings settings = kind.defaults;
  read_config_text(store.text(kMechanismConfig), store.describe() + ": " + kMechanismConfig, {},
                   settings);
  const std::shared_ptr<Mechanism> described = make_mechanism(kind.name, settings, shape);
  SavedAdapter saved{.kind = &kind,
                     .where = store.describe(),
                     .name = described->name(),
                     .causal = described->causal(),
                     .base_fingerprint = {},
                     .read = {}};
  if (store.has_attribute(kMechanismGroup, "base_fingerprint"))
    saved.base_fingerprint = store.string_attribute(kMechanismGroup, "base_fingerprint");
  saved.read = [&kind, store, settings](Decoder& decoder) -> std::unique_ptr<Adapter> {
    auto mechanism = make_mechanism(kind.name, settings, decoder.config());
    mechanism->restore(store);
    return mechanism;
  };
  return saved;
}

PairCounts all_pairs(const MechanismInputs& in) {
  PairCounts counts;
  for (Index s = 0; s < in.q.dim(0); ++s)
    counts += count_pairs({}, in.q.dim(1), in.q.dim(1), in.options.sliding_window);
  return counts;
}

Rng layer_rng(std::int64_t seed, Index layer) {
  return Rng(static_cast<std::uint64_t>(seed) * 1000003 + static_cast<std::uint64_t>(layer));
}

}  // namespace focus
