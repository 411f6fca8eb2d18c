#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "data/settings/config.h"

namespace focus {

/// The settings as an object, groups as objects in it: numbers and truth values as such, everything
/// else as text.
nlohmann::ordered_json settings_json(const std::vector<ConfigField>& settings);

}  // namespace focus
