#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/settings/config_values.h"

// Keys that files of earlier versions hold: checkpoints and adapters outlive names.
namespace focus {

/// A key's old place and its new one, both dotted.
struct RenamedKey {
  std::string from;
  std::string to;                                                // empty: it is left out
  std::vector<std::pair<std::string, std::string>> values = {};  // old ones and what they are now
  void (*change)(ConfigNode& value) = nullptr;                   // of a value that counts otherwise
};

/// Moves what the map holds under old keys to the new ones. What it holds under the new ones stays.
void rename_keys(ConfigNode& map, std::span<const RenamedKey> keys);

}  // namespace focus
