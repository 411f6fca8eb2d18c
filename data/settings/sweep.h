#pragma once

#include <string>
#include <vector>

#include "data/settings/config_yaml.h"

// Settings that are tried one after the other.
namespace focus {

/// One value of a swept key.
struct SweptSetting {
  std::string key;  // dotted
  ConfigNode value;
};
/// A key and its values; a sweep is a list of these.
struct SweptKey {
  std::string key;
  std::vector<ConfigNode> values;
};

/// Reads lines of `key: [value, value]`; what does not fit is appended to `problems`.
std::vector<SweptKey> read_sweep(const ConfigNode& map, std::vector<ConfigProblem>& problems);

/// Every choice of one value for each key, the last key fastest; one empty choice without keys.
/// Throws std::invalid_argument where there are more than `most`.
std::vector<std::vector<SweptSetting>> sweep_product(const std::vector<SweptKey>& keys,
                                                     std::size_t most);

/// The name with the values of what is swept, by the last part of its key unless two end alike:
/// "focus, num_groups=8".
std::string sweep_label(const std::string& name, const std::vector<SweptSetting>& settings);

}  // namespace focus
