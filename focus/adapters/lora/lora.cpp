#include "focus/adapters/lora/lora.h"

#include <fmt/ranges.h>

#include <cmath>
#include <set>

#include "autograd/base/check.h"

namespace focus {
namespace {

constexpr const char* kAllLinear = "all-linear";

bool is_target(const std::string& module, const std::string& target) {
  return target == kAllLinear || module == target || module.ends_with("." + target);
}

}  // namespace

std::string peft_name(const std::string& module, const char* matrix) {
  return fmt::format("base_model.model.{}.lora_{}.weight", module, matrix);
}

LoraModel::LoraModel(LoraConfig config, Decoder& decoder, Rng& rng)
    : config_(std::move(config)), decoder_(decoder) {
  config_.validate();
  std::vector<PublishedLinear> all = published_linears(decoder);
  for (const std::string& target : config_.target_modules) {
    const bool found = std::ranges::any_of(
        all, [&](const PublishedLinear& linear) { return is_target(linear.name, target); });
    std::set<std::string> endings;  // of the modules' names
    for (const PublishedLinear& linear : all)
      endings.insert(linear.name.substr(linear.name.rfind('.') + 1));
    check(found, "lora.target_modules: a {} layer has no linear named '{}'; it has {}",
          decoder.config().model_type, target, fmt::join(endings, ", "));
  }
  for (PublishedLinear& linear : all) {
    const bool wanted = std::ranges::any_of(
        config_.target_modules, [&](const auto& target) { return is_target(linear.name, target); });
    if (!wanted) continue;
    LoraLinear& adapter = linears_.emplace_back();
    Tensor a({config_.r, linear.in()});
    const double bound = 1 / std::sqrt(static_cast<double>(linear.in()));
    for (Real& x : a.span()) x = static_cast<Real>((2 * rng.uniform() - 1) * bound);
    adapter.a = a;
    for (const auto& part : linear.parts) {
      Tensor b({part.linear->weight.dim(0), config_.r});
      std::ranges::fill(b.span(), Real(0));
      adapter.b.emplace_back(b);
    }
    targets_.push_back(std::move(linear));
  }
}

void LoraModel::attach(Decoder& decoder) {
  check(&decoder == &decoder_, "lora: it was made for a different decoder");
  attached_ = true;
  for (std::size_t i = 0; i < targets_.size(); ++i)
    for (std::size_t part = 0; part < targets_[i].parts.size(); ++part)
      targets_[i].parts[part].linear->addition = [this, i, part](const Variable& x,
                                                                 const ForwardContext& context) {
        // The key is that of the linear, not of its part: the parts of one module see the same
        // input.
        const auto key = context.dropout_key;
        const Variable kept = key ? dropout(x, config_.dropout, *key * targets_.size() + i) : x;
        // The r columns are scaled, not the many of the output.
        const Variable low =
            scale(linear(kept, linears_[i].a, {}), static_cast<Real>(config_.scaling()));
        return linear(low, linears_[i].b[part], {});
      };
}

void LoraModel::detach() {
  if (!std::exchange(attached_, false)) return;
  for (const PublishedLinear& target : targets_)
    for (const auto& part : target.parts) part.linear->addition = {};
}

void LoraModel::merge() {
  const NoGrad guard;
  for (std::size_t i = 0; i < targets_.size(); ++i)
    for (std::size_t part = 0; part < targets_[i].parts.size(); ++part) {
      Tensor& weight = targets_[i].parts[part].linear->weight.mutable_value();
      const Variable a_by_input = transpose(Variable(linears_[i].a.value()), 0, 1);
      const Tensor product = linear(linears_[i].b[part].value(), a_by_input, {}).value();
      const auto scaling = static_cast<Real>(config_.scaling());
      for (Index k = 0; k < weight.size(); ++k) weight.data()[k] += scaling * product[k];
    }
  detach();
}

LoraModel::Tensors LoraModel::tensors(const std::function<Tensor(const Variable&)>& select) const {
  Tensors tensors;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const PublishedLinear& target = targets_[i];
    Tensor whole({target.out(), config_.r});
    for (std::size_t part = 0; part < target.parts.size(); ++part)
      set_part_rows(*target.parts[part].rule, decoder_.config(), select(linears_[i].b[part]),
                    whole);
    tensors.emplace_back(peft_name(target.name, "A"), select(linears_[i].a));
    tensors.emplace_back(peft_name(target.name, "B"), whole);
  }
  return tensors;
}

void LoraModel::for_each_linear(
    const std::function<void(const PublishedLinear&, const LoraLinear&)>& f) const {
  for (std::size_t i = 0; i < targets_.size(); ++i) f(targets_[i], linears_[i]);
}

void LoraModel::load(const TensorSource& source) {
  std::map<std::string, Tensor> tensors;
  for (const TensorInfo& info : source.tensors()) tensors[info.name] = source.read(info.name);
  load(tensors, source.describe());
}

void LoraModel::load(const std::map<std::string, Tensor>& tensors, const std::string& where) {
  std::set<std::string> known;
  const auto stored = [&](const std::string& name, const Shape& shape) -> const Tensor& {
    const auto found = tensors.find(name);
    if (found == tensors.end()) fail("{}: tensor {} is missing", where, name);
    if (found->second.shape() != shape)
      fail("{}: tensor {} has shape [{}], but r and the base require {}", where, name,
           fmt::join(found->second.shape().dims(), ", "), shape);
    known.insert(name);
    return found->second;
  };
  std::vector<std::pair<Tensor, Tensor>> pairs;  // A and B of each target
  for (const PublishedLinear& target : targets_)
    pairs.emplace_back(stored(peft_name(target.name, "A"), {config_.r, target.in()}),
                       stored(peft_name(target.name, "B"), {target.out(), config_.r}));
  for (const auto& [name, _] : tensors)
    if (!known.contains(name))
      fail("{}: tensor {} does not belong to a linear in target_modules", where, name);
  // Only once all is sound; into the variables that are there, which an optimiser may hold.
  for (std::size_t i = 0; i < linears_.size(); ++i) {
    std::ranges::copy(pairs[i].first.span(), linears_[i].a.mutable_value().data());
    for (std::size_t part = 0; part < linears_[i].b.size(); ++part)
      std::ranges::copy(
          rows_of_part(*targets_[i].parts[part].rule, decoder_.config(), pairs[i].second).span(),
          linears_[i].b[part].mutable_value().data());
  }
}

void LoraModel::visit_parameters(const std::function<void(const std::string&, Variable&)>& f) {
  for_each_parameter(*this, f, "lora");
}

void LoraModel::write(StoreWriter& store, const std::string& base_fingerprint) {
  store.attribute("/lora", "base_fingerprint", base_fingerprint);
  store.text("/lora/config.yaml", dump_config(config_));
  for (const auto& [name, tensor] : tensors())
    store.tensor(store_path("/lora/tensors", name), tensor);
}

void LoraModel::restore(const StoreReader& store) { load(*store.source("/lora/tensors")); }

void LoraModel::start_from(Adapter& other, const std::string& where) {
  const auto& from = dynamic_cast<LoraModel&>(other);
  if (from.config_.r != config_.r)
    fail("{}: has rank {}, but this run {}; set lora.r={}", where, from.config_.r, config_.r,
         from.config_.r);
  if (from.config_.scaling() != config_.scaling())
    fail("{}: adds {} B A, but this run {} B A; set lora.alpha={} lora.rslora={}", where,
         from.config_.scaling(), config_.scaling(), from.config_.alpha, from.config_.rslora);
  const Tensors tensors = from.tensors();
  load(std::map<std::string, Tensor>(tensors.begin(), tensors.end()), where);
}

AdapterKind lora_kind() {
  return {.name = "lora",
          .help = "low-rank adapters",
          .defaults = LoraConfig{},
          .role = AdapterRole::addition,
          .store_group = "/lora",
          .make = [](const AnySettings& settings, const ModelConfig&, Decoder* decoder,
                     Rng& rng) -> std::unique_ptr<Adapter> {
            return std::make_unique<LoraModel>(settings.as<LoraConfig>(), *decoder, rng);
          },
          .open = [](const AdapterKind& kind, const StoreReader& store,
                     const ModelConfig&) -> std::optional<SavedAdapter> {
            return SavedAdapter{
                .kind = &kind,
                .where = store.describe(),
                .name = "LoRA",
                .base_fingerprint = store.string_attribute("/lora", "base_fingerprint"),
                .read = [store](Decoder& decoder) -> std::unique_ptr<Adapter> {
                  LoraConfig config;
                  read_config_text(store.text("/lora/config.yaml"),
                                   store.describe() + ": /lora/config.yaml", {}, config);
                  Rng rng(0);
                  auto lora = std::make_unique<LoraModel>(config, decoder, rng);
                  lora->restore(store);
                  return lora;
                }};
          }};
}

SavedAdapter saved_lora(const std::filesystem::path& path,
                        std::unique_ptr<LoraModel> (*read)(const std::filesystem::path& path,
                                                           Decoder& decoder)) {
  return {.kind = &adapter_kind("lora"),
          .where = path.string(),
          .name = "LoRA",
          .base_fingerprint = {},
          .read = [path, read](Decoder& decoder) { return read(path, decoder); }};
}

Index count_lora_parameters(const StoreReader& store) {
  Index parameters = 0;
  const auto source = store.source("/lora/tensors");  // which the list of tensors lies in
  for (const TensorInfo& info : source->tensors()) parameters += info.size();
  return parameters;
}

}  // namespace focus
