#pragma once

#include <string>
#include <vector>

#include "data/settings/config_values.h"

namespace focus {

/// Something wrong in a config's text, at a line that counts from 1 (0: no particular line).
struct ConfigProblem {
  int line = 0;
  std::string text;
};

/// Parses strict YAML: one document, no anchors, aliases, merge keys or tags, no key twice in a
/// group, at most 16 levels, valid UTF-8 without control characters. What breaks a rule is appended
/// to `problems`; the tree returned holds what could be read. An empty text is an empty map.
ConfigNode parse_config_yaml(const std::string& text, std::vector<ConfigProblem>& problems);

}  // namespace focus
