#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layers/json_fields.h"
#include "layers/model_config.h"

namespace focus {

/// How one of our modules, its weight and its bias, lies in a published checkpoint. "{}" is the
/// layer's number.
struct TensorRule {
  std::string ours;
  std::string theirs;
  bool transposed = false;    // matrices are stored as [in, out]
  int part = 0, parts = 1;    // which of so many equal blocks of output rows
  bool by_head = false;       // the blocks are of each head, head after head
  bool rotary_pairs = false;  // rows of each head are in the order of MatrixView::rotary_pairs
};

/// A name of one of our parameters in a file, and the rule that gives it.
struct StoredName {
  const TensorRule* rule = nullptr;
  std::string name;
};

/// A config.json with Llama's keys or those of Family::keys: what transformers' config class takes
/// for absent ones, and which further keys the family has.
struct JsonForm {
  bool grouped_heads = true;      // the family has the next two keys
  Index num_key_value_heads = 0;  // 0: as many as num_attention_heads
  Index head_dim = 0;             // 0: hidden_size / num_attention_heads
  Index inner_factor = 0;         // intermediate_size over hidden_size; 0: the file has to say it
  Index max_position_embeddings = 2048;  // 0: the file has to say it
  double norm_eps = 1e-6;
  const char* activation_key = "hidden_act";
  bool attention_bias = false, mlp_bias = false;  // the family has these keys; absent: false
  Index pad_token = -1;  // pad_token_id of a file without one; null is written for less tokens
};

/// How a config.json gives rotary embeddings.
struct RopeForm {
  const char* theta = "rope_theta";
  const char* partial = "partial_rotary_factor";
  bool partial_heads = false;         // it may rotate a part of each head
  Index original = 0;                 // the family's original_max_position_embeddings; 0: none
  bool yarn_is_longrope = false;      // the types "su" and "yarn" are old names of longrope
  bool by_layer = false;              // rope_parameters by type of layer, see read_ropes()
  const char* local_theta = nullptr;  // key of the base frequency of layers with a window
};

/// Which layers have a sliding window where a file does not say, and in new models.
struct WindowForm {
  enum class Layers {
    none,
    all,        // all layers, or none
    periodic,   // all but the last of every `period`
    upper,      // use_sliding_window: those from max_window_layers on
    unrotated,  // use_sliding_window: those without rotary embeddings
  };
  Layers layers = Layers::none;
  std::optional<Index> width = {};  // of a config.json without sliding_window
  Index period = 0;
  bool pattern_key = false;  // sliding_window_pattern may give another period
  bool uniform = false;      // layer_types may not differ between layers

  bool has_switch() const { return layers == Layers::upper || layers == Layers::unrotated; }
};

class GgufSettings;
class GgufSettingsWriter;

/// How a family's models lie in a GGUF file. The tensors' names are the same for all
/// (gguf_settings.h), and so are the keys of biases, windows and local rotary embeddings.
struct GgufForm {
  std::string architecture = {};  // llama.cpp's name
  bool rotary_pairs = false;      // rows of q and k lie in pairs
  bool has_window = false;      // of two families of one architecture, that of files with a window
  Index window = 0;             // of a file that gives none
  bool window_flags = false;    // the pattern is a flag for each layer, not a period
  bool rope_factors = false;    // rope_freqs.weight may hold llama3's factors
  bool longrope = false;        // there may be factors of longrope, for short texts and for long
  bool partial_rotary = false;  // rope.dimension_count may be a part of the head
  bool attends_in_windows = false;  // llama.cpp ignores the windows of the others
  /// Reads what only this family has; null: nothing.
  void (*read)(const GgufSettings& settings, ModelConfig& config) = nullptr;
  /// Adds the keys that `read` reads, and refuses what no key says.
  void (*write)(const ModelConfig& config, GgufSettingsWriter& settings) = nullptr;
};

/// A family of published models: how its config.json reads, and its table of names
/// (layers/architectures/).
struct Family {
  std::string model_type;
  const char* architecture;            // transformers' class
  std::string base_prefix = "model.";  // which names in checkpoints of a bare base model lack
  ModelConfig common = {};             // all its models, of any size
  JsonForm json = {};
  RopeForm rope = {};
  WindowForm windows = {};
  Index rotary_period = 0;  // the last of so many layers has no rotary embeddings; 0: all have
  /// Reads what only this family has, before the windows; null: nothing. vocab_size,
  /// initializer_range and the tokens of beginning and end are the same in all families.
  void (*read)(const JsonFields& json, ModelConfig& config) = nullptr;
  void (*write)(const ModelConfig& config, nlohmann::ordered_json& json) = nullptr;
  std::vector<TensorRule> rules = {};  // empty: Llama's names, with the norms that `common` has
  /// Keys of its config.json for our keys, where the names differ.
  std::map<std::string, std::string> keys = {{"norm_eps", "rms_norm_eps"}};
  /// Endings of names that hold no weights (mask buffers, tables that can be computed).
  std::vector<std::string> ignored = {".rotary_emb.inv_freq"};
  GgufForm gguf = {};

  /// Whether new models may have sliding windows; which layers have them.
  bool has_local_layers() const {
    return windows.layers == WindowForm::Layers::all || windows.period > 0;
  }
  bool slides(Index layer) const {
    return windows.period == 0 || layer % windows.period != windows.period - 1;
  }
  bool rotates(Index layer) const {
    return rotary_period == 0 || layer % rotary_period != rotary_period - 1;
  }

  /// What its config.json calls a key of ours.
  const char* key(const char* ours) const {
    const auto theirs = keys.find(ours);
    return theirs == keys.end() ? ours : theirs->second.c_str();
  }
  void read_json(const JsonFields& json, ModelConfig& config) const;
  nlohmann::ordered_json write_json(const ModelConfig& config) const;
  void read_gguf(const GgufSettings& settings, ModelConfig& config) const;
  void write_gguf(const ModelConfig& config, GgufSettingsWriter& settings) const;
};

std::span<const Family> families();
/// Throws std::invalid_argument naming the known ones for any other name.
const Family& find_family(const std::string& model_type, const std::string& where);

/// The activation of that name; throws for an unknown one.
Activation activation_named(const std::string& name, const std::string& where);
/// The name that activation_named reads back.
std::string activation_name(Activation activation);

/// rope of `config` from rope_scaling, or otherwise rope_parameters; what they leave out is the
/// config.json's own under the names of `form`, or what `config` has, which has
/// max_position_embeddings. Reports where two of them differ: it follows transformers. By layer:
/// rope_parameters has an object for layers of full_attention and one for those of
/// sliding_attention, which is local_rope's, and rope_scaling changes the former.
void read_ropes(const JsonFields& json, const RopeForm& form, ModelConfig& config);
/// The rope_parameters that read_ropes reads back.
nlohmann::ordered_json write_rope(const RopeConfig& rope);
/// What yarn and longrope multiply cosines and sines by, by default.
double yarn_attention_factor(double factor, double mscale = 1);
double longrope_attention_factor(double factor, Index original_positions);
/// Whether passes of two lengths rotate a position alike.
bool same_angles(const ModelConfig& config, Index length, Index other_length);

}  // namespace focus
