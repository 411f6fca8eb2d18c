#pragma once

#include "data/tensors/safetensors.h"
#include "data/text/text.h"
#include "focus/method/focus_model.h"
#include "layers/family.h"
#include "layers/weights.h"
#include "tests/support/golden.h"

namespace focus {

/// The config of a golden Hugging Face folder; nullopt for a family that is not supported here.
inline std::optional<ModelConfig> golden_config(const std::string& folder) {
  const auto path = golden_folder() / folder / "config.json";
  const std::string text = read_text_file(path);
  const std::string type = nlohmann::json::parse(text).at("model_type");
  const bool known =
      std::ranges::any_of(families(), [&](const Family& f) { return f.model_type == type; });
  return known ? std::optional(parse_model_config(text, path.string())) : std::nullopt;
}

/// The golden model folders whose family is known here.
inline std::vector<std::string> golden_models() {
  std::vector<std::string> folders;
  for (const std::string& config : golden_entries("arch", "/config.json")) {
    const std::string folder = std::filesystem::path(config).parent_path().string();
    if (golden_config(folder)) folders.push_back(folder);
  }
  return folders;
}
/// Where an entry lies, for a command line.
inline std::string golden_path(const std::string& entry) {
  return (golden_folder() / entry).string();
}

inline Decoder golden_decoder(const std::string& folder, const ModelConfig& config) {
  Decoder decoder(config);
  load_weights(decoder, *open_safetensors_folder(golden_folder() / folder));
  return decoder;
}

/// The logits that the decoder computes for the input_ids of a golden file.
inline Tensor golden_logits(const Decoder& decoder, const GoldenFile& file) {
  const NoGrad guard;
  const Index batch = file.dims("input_ids").at(0);
  return decoder.logits(decoder.hidden_states(file.ids("input_ids"), batch)).value();
}

/// The Focus settings in a golden file's attributes.
inline FocusConfig golden_focus_config(const GoldenFile& file) {
  FocusConfig config;
  config.num_groups = static_cast<int>(file.attribute("groups"));
  config.tokens().routing_dim = static_cast<int>(file.attribute("routing_dim"));
  config.tokens().temperature = file.attribute("temperature");
  config.tokens().sinkhorn_iters =
      std::max(1, static_cast<int>(file.attribute("sinkhorn_iterations")));
  config.tokens().gate_steepness = file.attribute("steepness");
  config.local_window = static_cast<Index>(file.attribute("window"));
  config.tokens().affinity_floor = file.attribute("affinity_floor");
  const auto named = [&](auto value, const char* attribute) {
    const auto names = enum_names(value);
    const auto it = std::ranges::find(names, file.text_attribute(attribute));
    check(it != names.end(), "{} is unknown", attribute);
    return static_cast<decltype(value)>(it - names.begin());
  };
  config.tokens().gate = named(Gate{}, "gate");
  config.tokens().balance = named(Balance{}, "balance");
  return config;
}

}  // namespace focus
