#include "focus/adapters/lora/gguf_adapter.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/gguf/gguf.h"
#include "layers/gguf_names.h"

namespace focus {
namespace {

constexpr std::string_view kA = ".lora_a", kB = ".lora_b";
constexpr const char* kAlphaKey = "adapter.lora.alpha";

/// Tensors in memory under PEFT's names.
class PeftTensors : public TensorSource {
 public:
  explicit PeftTensors(std::string where) : where_(std::move(where)) {}
  void add(const std::string& name, const Tensor& tensor) {
    const auto dims = tensor.shape().dims();
    tensors_.emplace(name, tensor);
    infos_.push_back({name, {dims.begin(), dims.end()}, kRealDtype, name_of(kRealDtype)});
    std::ranges::sort(infos_, {}, &TensorInfo::name);
  }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  void read_raw(std::string_view name, std::vector<std::byte>& bytes) const override {
    pack(tensors_.at(std::string(name)).span(), kRealDtype, bytes);
  }
  std::string describe() const override { return where_; }

 private:
  std::string where_;
  std::map<std::string, Tensor> tensors_;
  std::vector<TensorInfo> infos_;
};

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

/// One linear of the decoder under each of its names.
struct Part {
  std::string ours;  // "layers.0.self_attn.q_proj.weight"
  const PublishedLinear* module;
  const PublishedLinear::Part* part;
};

std::vector<Part> parts_of(const std::vector<PublishedLinear>& linears, Index layers) {
  std::vector<Part> parts;
  const std::size_t in_layer = linears.size() / static_cast<std::size_t>(layers);
  for (std::size_t i = 0; i < linears.size(); ++i)
    for (const PublishedLinear::Part& part : linears[i].parts) {
      std::string ours = part.rule->ours + ".weight";
      ours.replace(ours.find("{}"), 2, std::to_string(i / in_layer));
      parts.push_back({ours, &linears[i], &part});
    }
  return parts;
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
  PeftTensors tensors(path.string());
  std::map<std::string, Tensor> wholes;  // B of each module, of which parts may be to come
  for (const Part& p : parts_of(linears, config.num_hidden_layers))
    for (const StoredName& name : names_in_gguf(config, p.ours)) {
      const auto pair = pairs.find(name.name);
      if (pair == pairs.end()) continue;
      pair->second.used = true;
      const Index in = p.part->linear->weight.dim(1);
      if (!wholes.contains(p.module->name)) {
        wholes[p.module->name] = Tensor({p.module->out(), rank});
        tensors.add(peft_name(p.module->name, "A"), source.read(pair->second.a->name));
      }
      const Shape shape({p.part->linear->weight.dim(0), rank});
      const Tensor rows = read_gguf_part(source, *pair->second.b, *name.rule, config, shape);
      set_part_rows(*p.part->rule, config, rows, wholes[p.module->name]);
      if (pair->second.a->shape[1] != in)
        fail("{}: {} has {} inputs, but the base's has {}", path.string(),
             shown(pair->second.a->name), pair->second.a->shape[1], in);
    }
  for (const auto& [name, pair] : pairs)
    if (!pair.used)
      fail("{}: {} is not a linear of a {} layer with this config", path.string(), shown(name),
           config.model_type);
  std::set<std::string> targets;
  for (const auto& [module, whole] : wholes) {
    targets.insert(module);
    tensors.add(peft_name(module, "B"), whole);
  }
  LoraConfig lora{.target_modules = target_modules(linears, targets), .r = static_cast<int>(rank)};
  lora.alpha = source.metadata().number(kAlphaKey).value_or(0);
  if (lora.alpha == 0) lora.alpha = static_cast<double>(rank);  // llama.cpp's scale of 1
  try {
    Rng rng(0);
    auto model = std::make_unique<LoraModel>(lora, decoder, rng);
    model->load(tensors);
    return model;
  } catch (const std::invalid_argument& error) {
    fail("{}: {}", path.string(), error.what());
  }
}

}  // namespace focus
