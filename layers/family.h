#pragma once

#include <functional>
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
  bool transposed = false;  // stored as [in, out] (GPT-2's Conv1D)
  int part = 0, parts = 1;  // which of so many equal blocks of output rows
};

/// A family of published models: how its config.json reads, and its table of names. One file of
/// layers/architectures/ each.
struct Family {
  std::string model_type;
  /// Checkpoints of a bare base model lack this prefix of names.
  std::string base_prefix;
  ModelConfig (*read)(const JsonFields& json);
  nlohmann::ordered_json (*write)(const ModelConfig& config);
  std::vector<TensorRule> rules;
  /// Endings of names that hold no weights (mask buffers, tables that can be computed).
  std::vector<std::string> ignored;
};

const Family& gpt2_family();
const Family& llama_family();

/// Every family there is.
std::span<const Family* const> families();
/// Throws std::invalid_argument naming the known ones where there is none of that name.
const Family& find_family(const std::string& model_type, const std::string& where);

/// The activation of that name; throws for an unknown one.
Activation activation_named(const std::string& name, const std::string& where);
/// The name that activation_named reads back.
std::string activation_name(Activation activation);
/// rope_theta and rope_scaling, or the newer rope_parameters.
RopeConfig read_rope(const JsonFields& json);

}  // namespace focus
