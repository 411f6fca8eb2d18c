#include <fmt/ranges.h>

#include <algorithm>

#include "apps/command.h"
#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/gguf/gguf.h"
#include "data/tensors/safetensors.h"
#include "focus/adapters/lora/lora.h"
#include "focus/method/summary/head_budgets.h"

namespace focus::app {
namespace {

/// Lines of "name  value" and the same as JSON.
class Facts {
 public:
  Facts() : json_(nlohmann::ordered_json::object()) {}

  void add(const std::string& name, const nlohmann::ordered_json& value) {
    fmt::print("{:<22} {}\n", name,
               value.is_string() ? value.get<std::string>() : json_text(value));
    json_[name] = value;
  }
  const nlohmann::ordered_json& json() const { return json_; }

 private:
  nlohmann::ordered_json json_;
};

/// The tensors by type: "Q4_1 210, F32 61".
std::string types_of(const TensorSource& source) {
  std::map<std::string, int> counts;
  for (const TensorInfo& info : source.tensors()) ++counts[info.stored_as];
  return counts_text(counts);
}

void tell_nonfinite(const Nonfinite& bad, Facts& facts) {
  if (bad.count > 0)
    facts.add("nonfinite",
              fmt::format("{} are NaN or infinite, first in {}", bad.count, bad.first));
}

/// The weights pass by tensor by tensor: a model of any size can be described.
void describe_model(const ModelFiles& files, Facts& facts) {
  const ModelConfig& c = files.config;
  const ReadModel model = read_model(files);
  const std::string& said = files.stored_fingerprint;
  if (!said.empty() && said != model.fingerprint)
    fail("{}: the fingerprint of its weights is {}, but the file states {}; use another copy",
         files.where, model.fingerprint, said);
  facts.add("tensors", types_of(*files.weights));
  facts.add("model_type", c.model_type);
  facts.add("parameters", model.parameters);
  facts.add("stored_as", fmt::format("{}", fmt::join(model.types, ", ")));
  tell_nonfinite(model.nonfinite, facts);
  facts.add("num_hidden_layers", c.num_hidden_layers);
  facts.add("hidden_size", c.hidden_size);
  facts.add("num_attention_heads", c.num_attention_heads);
  facts.add("num_key_value_heads", c.num_key_value_heads);
  facts.add("head_dim", c.head_dim);
  facts.add("vocab_size", c.vocab_size);
  facts.add("positions", c.max_position_embeddings);
  if (c.widest_window() > 0) {
    facts.add("sliding_window", c.widest_window());
    facts.add("sliding_layers",
              c.num_hidden_layers - std::ranges::count(c.sliding_windows, Index{0}));
  }
  if (c.attn_logit_softcapping > 0) facts.add("attn_logit_softcapping", c.attn_logit_softcapping);
  if (c.final_logit_softcapping > 0)
    facts.add("final_logit_softcapping", c.final_logit_softcapping);
  facts.add("model_fingerprint", model.fingerprint);
  if (files.tokenizer) {
    facts.add("tokenizer", files.tokenizer->kind());
    facts.add("tokenizer_fingerprint", files.tokenizer->fingerprint());
  }
  const SavedAdapter* const own = files.attention();
  facts.add("attention", own ? std::string(own->kind->name) : "dense");
  if (own && own->kind->role != AdapterRole::focus) facts.add("causal", own->causal);
  if (!own) return;
  if (!own->base_fingerprint.empty())
    check_base(own->where, own->base_fingerprint, model.fingerprint, files.where);
  Decoder decoder(files.config);
  own->read(decoder);  // must be whole
}

void describe_focus(const SavedFocus& focus, Facts& facts) {
  facts.add("focus_layers", focus.shape.num_layers);
  facts.add("focus_grouping", focus.config.grouping.name);
  facts.add("focus_groups", focus.config.num_groups);
  if (focus.fitted_context > 0) facts.add(kFittedContext, focus.fitted_context);
  facts.add("base_fingerprint", focus.base_fingerprint);
  facts.add("focus_parameters", focus.num_parameters());
  Nonfinite bad;
  for (Index layer = 0; layer < focus.shape.num_layers; ++layer)
    for (const LayerTensor& t : grouping_kind(focus.config).tensors(focus.config, focus.shape))
      bad.look_at(fmt::format("layer {}: {}", layer, t.name),
                  focus.tensor(layer, std::string(t.name), t.shape).span());
  tell_nonfinite(bad, facts);
  if (bad.count > 0) return;
  if (const std::vector<Tensor> needs = measured_of_heads(focus, kNeeds); !needs.empty())
    facts.add("head_budgets", budgets_text(needs, focus.config.summary.num_selected_groups,
                                           focus.config.num_groups));
}

void describe_lora_tensors(const TensorSource& source, Facts& facts) {
  Index parameters = 0;
  for (const TensorInfo& info : source.tensors()) parameters += info.size();
  facts.add("tensors", types_of(source));
  facts.add("lora_parameters", parameters);
  tell_nonfinite(nonfinite_of(source), facts);
}

void describe_gguf_adapter(const GgufSource& source, Facts& facts) {
  const GgufMetadata& metadata = source.metadata();
  facts.add("file", source.describe());
  facts.add("kind", "GGUF adapter");
  facts.add("architecture", shown(metadata.text("general.architecture").value_or("")));
  facts.add("lora_alpha", metadata.number("adapter.lora.alpha").value_or(0));
  describe_lora_tensors(source, facts);
}

void describe_gguf(const std::string& path, Facts& facts) {
  if (is_gguf_adapter(path)) return describe_gguf_adapter(GgufSource(path), facts);
  const ModelFiles files = open_model(path);
  facts.add("file", path);
  facts.add("kind", "GGUF file");
  if (files.weights->files().size() > 1) facts.add("parts", files.weights->files().size());
  describe_model(files, facts);
}

void describe_folder(const std::string& path, Facts& facts) {
  const std::filesystem::path peft = std::filesystem::path(path) / kPeftWeights;
  const bool lora = std::filesystem::exists(peft);
  const bool adapter = lora || is_focus_alone(path);
  facts.add("file", path);
  facts.add("kind", adapter ? "adapter folder" : "Hugging Face folder");
  if (!adapter) describe_model(open_model(path), facts);
  if (lora) describe_lora_tensors(SafetensorsFile(peft), facts);
  if (!has_focus(path)) return;
  const SavedFocus focus = open_focus_folder(path);
  read_focus(focus);  // every tensor must be there
  describe_focus(focus, facts);
}

void describe_store(const std::string& path, Facts& facts) {
  const StoreReader store(path);
  store.verify();
  facts.add("file", path);
  facts.add("kind", store.kind());
  facts.add("format_version", store.int_attribute("/", "format_version"));
  facts.add("creator", store.string_attribute("/", "creator") + " " +
                           store.string_attribute("/", "creator_version"));
  facts.add("datasets", store.all_datasets().size());
  if (store.has("/model")) describe_model(open_model(path), facts);
  if (store.has("/focus")) describe_focus(open_focus(store), facts);
  if (store.has("/lora")) {
    facts.add("base_fingerprint", store.string_attribute("/lora", "base_fingerprint"));
    facts.add("lora_parameters", count_lora_parameters(store));
    tell_nonfinite(nonfinite_of(*store.source("/lora/tensors")), facts);
  }
  if (store.has(kMechanismGroup) && !store.has("/model")) {
    facts.add("attention", store.string_attribute(kMechanismGroup, "kind"));
    facts.add("base_fingerprint", store.string_attribute(kMechanismGroup, "base_fingerprint"));
  }
  if (store.has("/train")) facts.add("step", store.int_attribute("/train", "step"));
  facts.add("checksums", "all verified");
  for (const char* config : {"/config.yaml", "/focus/config.yaml", "/lora/config.yaml"})
    if (store.has(config)) {
      fmt::print("\n{}:\n{}", config, store.text(config));
      return;  // the run's config contains Focus's settings
    }
}

}  // namespace

int run_info(Arguments arguments) {
  std::string path, json;
  CLI::App app(
      "Contents of a checkpoint file (.h5), a Hugging Face folder or a GGUF file; verifies every "
      "checksum of a checkpoint file.",
      "focus info");
  app.add_option("file", path, "a checkpoint file (.h5), a folder or a GGUF file")->required();
  app.add_option("--json", json, kJsonHelp);
  parse_arguments(app, arguments);

  if (!std::filesystem::exists(path)) throw std::runtime_error(path + ": no such file or folder");
  Facts facts;
  const auto describe = std::filesystem::is_directory(path) ? describe_folder
                        : is_gguf(path)                     ? describe_gguf
                                                            : describe_store;
  describe(path, facts);
  write_json(json, facts.json());
  return 0;
}

}  // namespace focus::app
