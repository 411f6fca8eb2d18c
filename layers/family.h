#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "layers/json_fields.h"
#include "layers/model_config.h"

namespace focus {

/// How one of our parameters lies in a published checkpoint. "{}" stands for the layer's number.
struct TensorRule {
  std::string ours;
  std::string theirs;
  bool transposed = false;    // stored as [in, out]
  int part = 0, parts = 1;    // which of so many equal blocks of output rows
  bool by_head = false;       // the blocks are of each head, head after head
  bool rotary_pairs = false;  // rows of each head lie as MatrixView::rotary_pairs says
};

class GgufSettings;
class GgufSettingsWriter;

/// How a family's models lie in a GGUF file: the names are the same for all (gguf_names.h).
struct GgufForm {
  std::string architecture;     // llama.cpp's word
  bool rotary_pairs = false;    // rows of q and k lie in pairs
  bool has_window = false;      // of two families of one architecture, that of files with a window
  bool rope_factors = false;    // rope_freqs.weight may hold llama3's factors
  bool longrope = false;        // there may be factors of longrope, for short texts and for long
  bool partial_rotary = false;  // rope.dimension_count may be a part of the head
  bool attends_in_windows = false;  // llama.cpp passes over the windows of the others
  /// Sets what the keys that all families share do not: see read_gguf_config().
  void (*read)(const GgufSettings& settings, ModelConfig& config) = nullptr;
  /// Adds the keys that `read` reads, and refuses what no key says; null where there are none.
  void (*write)(const ModelConfig& config, GgufSettingsWriter& settings) = nullptr;
};

/// A family of published models: how its config.json reads, and its table of names. One file of
/// layers/architectures/ each.
struct Family {
  std::string model_type;
  /// Checkpoints of a bare base model lack this prefix of names.
  std::string base_prefix;
  /// What its models are, whatever their size.
  ModelConfig common;
  /// Fills what config.json says into a config that begins as `common`. vocab_size,
  /// initializer_range and the tokens of beginning and end are the same in all families and are
  /// read and written for them.
  void (*read)(const JsonFields& json, ModelConfig& config);
  nlohmann::ordered_json (*write)(const ModelConfig& config);
  std::vector<TensorRule> rules;
  /// Keys of its config.json that mean what a key of ours does under another name.
  std::map<std::string, std::string> keys = {{"norm_eps", "rms_norm_eps"}};
  /// Endings of names that hold no weights (mask buffers, tables that can be computed).
  std::vector<std::string> ignored;
  /// Whether a layer has the sliding window where a config.json does not say, and in new models;
  /// null where new models have none.
  bool (*slides)(Index layer) = nullptr;
  /// Whether a layer has rotary embeddings, likewise; null where all have.
  bool (*rotates)(Index layer) = nullptr;
  GgufForm gguf = {};
};

/// Every family there is.
std::span<const Family* const> families();
/// Throws std::invalid_argument naming the known ones where there is none of that name.
const Family& find_family(const std::string& model_type, const std::string& where);

/// The activation of that name; throws for an unknown one.
Activation activation_named(const std::string& name, const std::string& where);
/// The name that activation_named reads back.
std::string activation_name(Activation activation);

/// What a family calls the base frequency and the rotated part of a head outside those objects.
struct RopeKeys {
  const char* theta = "rope_theta";
  const char* partial = "partial_rotary_factor";
  Index original = 0;             // the family's original_max_position_embeddings; 0: none
  bool yarn_is_longrope = false;  // the types "su" and "yarn" are old names of longrope
};
/// rope_scaling, or else rope_parameters; what they leave out is the config's own under `keys`, or
/// that of `config`, which has max_position_embeddings. Tells where two of them differ: it is as
/// transformers has it.
RopeConfig read_rope(const JsonFields& json, const ModelConfig& config, const RopeKeys& keys = {});
/// The same where rope_parameters has one object for layers of full_attention and one for those of
/// sliding_attention, and rope_scaling changes the former: rope and local_rope of `config`. `theta`
/// and `local_theta` hold where nothing else is said; null: `local_key` is none.
void read_ropes_by_layer(const JsonFields& json, double theta, double local_theta,
                         const char* local_key, ModelConfig& config);
/// The rope_parameters that read_rope reads back.
nlohmann::ordered_json write_rope(const RopeConfig& rope);
/// What yarn and longrope multiply cosines and sines by where nothing else is said.
double yarn_attention_factor(double factor, double mscale = 1);
double longrope_attention_factor(double factor, Index original_positions);
/// Whether passes of two lengths rotate a position alike.
bool same_angles(const ModelConfig& config, Index length, Index other_length);

}  // namespace focus
