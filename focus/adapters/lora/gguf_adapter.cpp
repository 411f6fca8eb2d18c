#include <fmt/ranges.h>

#include <set>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/gguf/gguf.h"
#include "focus/adapters/lora/lora.h"
#include "layers/gguf_settings.h"

namespace focus {
namespace {

constexpr std::string_view kA = ".lora_a", kB = ".lora_b";
constexpr const char* kAlphaKey = "adapter.lora.alpha";

/// The two matrices for one of the base's.
struct Pair {
  const TensorInfo *a = nullptr, *b = nullptr;
  bool used = false;
};

void check_head(const GgufMetadata& metadata, const Family& family) {
  const std::string& where = metadata.where();
  const auto wanted = [&](const char* key, const std::string& value) {
    const std::string found = metadata.text(key).value_or("");
    if (found != value) fail("{}: {} is \"{}\", expected \"{}\"", where, key, shown(found), value);
  };
  wanted("general.type", "adapter");
  wanted("adapter.type", "lora");
  wanted("general.architecture", family.gguf.architecture);
  if (metadata.has("adapter.alora.invocation_tokens"))
    fail("{}: adapters that are invoked by tokens (aLoRA) are not supported", where);
}

/// The pairs by the names of the base's matrices.
std::map<std::string, Pair> pairs_of(const GgufSource& source) {
  std::map<std::string, Pair> pairs;
  for (const TensorInfo& info : source.tensors()) {
    const bool a = info.name.ends_with(kA);
    if (!a && !info.name.ends_with(kB)) {
      if (info.name.ends_with("_norm.weight")) continue;
      fail("{}: tensor {} does not belong to an adapter: its tensors end in {} and {}",
           source.describe(), shown(info.name), kA, kB);
    }
    Pair& pair = pairs[info.name.substr(0, info.name.size() - kA.size())];
    (a ? pair.a : pair.b) = &info;
  }
  for (const auto& [name, pair] : pairs) {
    if (pair.a == nullptr || pair.b == nullptr)
      fail("{}: {} has only {}", source.describe(), shown(name), pair.a ? kA : kB);
    if (pair.a->shape.size() != 2 || pair.b->shape.size() != 2 ||
        pair.a->shape[0] != pair.b->shape[1])
      fail("{}: {}'s matrices of [{}] and [{}] are not [rank, in] and [out, rank]",
           source.describe(), shown(name), fmt::join(pair.a->shape, ", "),
           fmt::join(pair.b->shape, ", "));
  }
  return pairs;
}

/// The rank that all have.
Index rank_of(const GgufSource& source, const std::map<std::string, Pair>& pairs) {
  if (pairs.empty()) fail("{}: the adapter has no matrices", source.describe());
  const Index rank = pairs.begin()->second.a->shape[0];
  for (const auto& [name, pair] : pairs)
    if (pair.a->shape[0] != rank)
      fail("{}: different ranks, {} and {}, in one adapter are not supported", source.describe(),
           rank, pair.a->shape[0]);
  return rank;
}

/// The ends of names that match only these modules, otherwise their whole names.
std::vector<std::string> target_modules(const std::vector<PublishedLinear>& linears,
                                        const std::set<std::string>& targets) {
  std::set<std::string> wanted, other;
  for (const PublishedLinear& linear : linears)
    (targets.contains(linear.name) ? wanted : other)
        .insert(linear.name.substr(linear.name.rfind('.') + 1));
  const bool apart = std::ranges::none_of(wanted, [&](const auto& x) { return other.contains(x); });
  const std::set<std::string>& names = apart ? wanted : targets;
  return {names.begin(), names.end()};
}

}  // namespace

bool is_gguf_adapter(const std::filesystem::path& path) {
  return is_gguf(path) && GgufSource(path).metadata().text("general.type") == "adapter";
}

std::unique_ptr<LoraModel> read_gguf_adapter(const std::filesystem::path& path, Decoder& decoder) {
  const GgufSource source(path);
  const ModelConfig& config = decoder.config();
  const Family& family = find_family(config.model_type, path.string());
  check_head(source.metadata(), family);
  std::map<std::string, Pair> pairs = pairs_of(source);
  const Index rank = rank_of(source, pairs);
  const std::vector<PublishedLinear> linears = published_linears(decoder);
  std::map<std::string, Tensor> tensors;  // under PEFT's names
  std::set<std::string> targets;
  for (const PublishedLinear& module : linears)
    for (const PublishedLinear::Part& part : module.parts)
      for (const StoredName& name : names_in_gguf(config, part.name)) {
        const auto found = pairs.find(name.name);
        if (found == pairs.end()) continue;
        Pair& pair = found->second;
        pair.used = true;
        Tensor& whole = tensors[peft_name(module.name, "B")];  // of which parts may be to come
        if (targets.insert(module.name).second) {
          whole = Tensor({module.out(), rank});
          tensors[peft_name(module.name, "A")] = source.read(pair.a->name);
        }
        const Shape shape({part.linear->weight.dim(0), rank});
        const Tensor rows = read_gguf_part(source, *pair.b, *name.rule, config, shape);
        set_part_rows(*part.rule, config, rows, whole);
        if (pair.a->shape[1] != module.in())
          fail("{}: {} has {} inputs, but the base's has {}", path.string(), shown(pair.a->name),
               pair.a->shape[1], module.in());
      }
  for (const auto& [name, pair] : pairs)
    if (!pair.used)
      fail("{}: {} is not a linear of a {} layer with this config", path.string(), shown(name),
           config.model_type);
  LoraConfig lora{.target_modules = target_modules(linears, targets), .r = static_cast<int>(rank)};
  lora.alpha = source.metadata().number(kAlphaKey).value_or(0);
  if (lora.alpha == 0) lora.alpha = static_cast<double>(rank);  // llama.cpp's scale of 1
  try {
    Rng rng(0);
    auto model = std::make_unique<LoraModel>(lora, decoder, rng);
    model->load(tensors, path.string());
    return model;
  } catch (const std::invalid_argument& error) {
    fail("{}: {}", path.string(), error.what());
  }
}

}  // namespace focus
