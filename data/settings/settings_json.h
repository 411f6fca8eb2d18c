#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "data/settings/recipe.h"

namespace focus {

/// The settings as an object: numbers and truth values as such, everything else as text.
nlohmann::ordered_json settings_json(const std::vector<RecipeField>& settings);

}  // namespace focus
