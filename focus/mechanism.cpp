#include "focus/mechanism.h"

#include <algorithm>
#include <map>

#include "autograd/base/check.h"

namespace focus {
namespace {

constexpr const char* kParameters = "/rival/parameters";

std::string layer_path(std::size_t layer) { return fmt::format("/rival/layer_{:03}", layer); }

}  // namespace

Mechanism::Mechanism(std::string_view kind, AnySettings settings, const ModelConfig& shape)
    : layers(static_cast<std::size_t>(shape.num_hidden_layers)),
      kind_(kind),
      settings_(std::move(settings)) {
  settings_.validate();
}

void Mechanism::compose(Decoder& decoder) {
  check(decoder.layers().size() == layers.size(), "{}: {} layers for a decoder of {}", kind_,
        layers.size(), decoder.layers().size());
  composed_.reset();  // or it would be put back when the new one goes
  composed_.emplace(decoder, [this](const MechanismInputs& in) {
    check(in.first_position == 0, "{}: layer {} has no cache of the {} tokens before", kind_,
          in.layer, in.first_position);
    PairCounts of_pass;
    Variable out = attend(in, counting_ ? &of_pass : nullptr);
    if (counting_) of_pass.choosing = pairs_worth(multiply_adds_to_choose(in, of_pass), in);
    pairs_ += of_pass;
    return out;
  });
}

void Mechanism::start_counting() {
  pairs_ = {};
  counting_ = true;
}

void Mechanism::write(StoreWriter& store, const std::string& base_fingerprint) {
  store.attribute("/rival", "kind", kind_);
  store.text("/rival/config.yaml", dump_recipe(settings_));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    store.attribute(layer_path(i), "updates", layers[i].updates);
    if (layers[i].constants.defined())
      store.tensor(layer_path(i) + "/constants", layers[i].constants);
  }
  bool is_trained = false;
  for_each_own([&](const std::string& name, Variable& p) {
    is_trained = true;
    store.tensor(store_path(kParameters, name), p.value());
  });
  if (is_trained) store.attribute("/rival", "base_fingerprint", base_fingerprint);
}

void Mechanism::restore(const StoreReader& store) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].updates = store.int_attribute(layer_path(i), "updates");
    if (layers[i].constants.defined())
      layers[i].constants = store.tensor(layer_path(i) + "/constants", layers[i].constants.shape());
  }
  for_each_own([&](const std::string& name, Variable& p) {
    // Into the numbers that are there: an optimiser holds them too.
    const Tensor stored = store.tensor(store_path(kParameters, name), p.shape());
    std::ranges::copy(stored.span(), p.mutable_value().data());
  });
}

void Mechanism::copy_parameters(Mechanism& other) {
  std::map<std::string, Tensor> theirs;
  other.for_each_own([&](const std::string& name, Variable& p) { theirs[name] = p.value(); });
  for_each_own([&](const std::string& name, Variable& p) {
    const Tensor& value = theirs[name];
    check(value.defined() && value.shape() == p.shape(),
          "{}: {} is {}, but the trained one has {}; say the settings that it was trained with",
          kind_, name, p.shape(), value.defined() ? value.shape() : Shape({0}));
    p.mutable_value() = value;
  });
}

std::unique_ptr<Mechanism> make_mechanism(std::string_view kind, const AnySettings& settings,
                                          const ModelConfig& shape) {
  Rng rng(0);
  auto made = find_attention(kind, "attention").make(settings, shape, nullptr, rng);
  auto* const mechanism = dynamic_cast<Mechanism*>(made.get());
  if (mechanism == nullptr) throw std::logic_error(fmt::format("{} is no mechanism", kind));
  static_cast<void>(made.release());  // it is the same
  return std::unique_ptr<Mechanism>(mechanism);
}

std::unique_ptr<Mechanism> read_mechanism(const StoreReader& store, const ModelConfig& shape) {
  if (!store.has("/rival")) return nullptr;
  const AdapterKind& kind =
      find_attention(store.string_attribute("/rival", "kind"), store.describe());
  AnySettings settings = kind.defaults;
  read_stored_recipe(store.text("/rival/config.yaml"), store.describe() + ": /rival/config.yaml",
                     settings);
  auto mechanism = make_mechanism(kind.name, settings, shape);
  mechanism->restore(store);
  return mechanism;
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
