#include <algorithm>

#include "apps/command.h"
#include "autograd/check.h"

namespace focus {
namespace {

/// Lines of "name  value" and the same as JSON.
class Facts {
 public:
  void add(const std::string& name, const nlohmann::ordered_json& value) {
    fmt::print("{:<22} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
    json_[name] = value;
  }
  const nlohmann::ordered_json& json() const { return json_; }

 private:
  nlohmann::ordered_json json_;
};

void describe_model(LoadedModel& model, Facts& facts) {
  const ModelConfig& c = model.decoder->config();
  facts.add("model_type", c.model_type);
  facts.add("parameters", count_parameters(*model.decoder));
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
  if (model.tokenizer) {
    facts.add("tokenizer", model.tokenizer->kind());
    facts.add("tokenizer_fingerprint", model.tokenizer->fingerprint());
  }
}

void describe_focus(const StoreReader& store, Facts& facts) {
  facts.add("focus_layers", store.int_attribute("/focus", "num_layers"));
  facts.add("base_fingerprint", store.string_attribute("/focus", "base_fingerprint"));
  std::int64_t parameters = 0;
  for (const std::string& path : store.all_datasets()) {
    if (!path.starts_with("/focus/layer_") || path.ends_with("/potentials")) continue;
    std::int64_t size = 1;
    for (const Index dim : store.shape(path)) size *= dim;
    parameters += size;
  }
  facts.add("focus_parameters", parameters);
}

}  // namespace

int run_info(Arguments arguments) {
  std::string path, json;
  CLI::App app("What a store or a Hugging Face folder holds; verifies every checksum of a store.",
               "focus info");
  app.add_option("file", path, "a store (.h5) or a folder")->required();
  app.add_option("--json", json, "write the figures to this file too");
  parse_arguments(app, arguments);

  Facts facts;
  if (std::filesystem::is_directory(path)) {
    LoadedModel model = load_model(path);
    facts.add("file", path);
    facts.add("kind", "Hugging Face folder");
    describe_model(model, facts);
    write_json(json, facts.json());
    return 0;
  }
  if (!std::filesystem::exists(path)) throw std::runtime_error(path + ": no such file or folder");
  const StoreReader store(path);
  store.verify();
  facts.add("file", path);
  facts.add("kind", store.kind());
  facts.add("format_version", store.int_attribute("/", "format_version"));
  facts.add("creator", store.string_attribute("/", "creator") + " " +
                           store.string_attribute("/", "creator_version"));
  facts.add("datasets", store.all_datasets().size());
  if (store.has("/model")) {
    LoadedModel model = load_model(path);
    describe_model(model, facts);
    facts.add("attention", model.focus   ? "focus"
                           : model.rival ? kind_of(model.rival->config())
                                         : "dense");
    if (model.rival) facts.add("causal", model.rival->causal());
  }
  if (store.has("/focus")) describe_focus(store, facts);
  if (store.has("/train")) facts.add("step", store.int_attribute("/train", "step"));
  facts.add("checksums", "all verified");
  for (const char* config : {"/config.yaml", "/focus/config.yaml"})
    if (store.has(config)) {
      fmt::print("\n{}:\n{}", config, store.text(config));
      break;  // the run's recipe contains Focus's settings
    }
  write_json(json, facts.json());
  return 0;
}

}  // namespace focus
