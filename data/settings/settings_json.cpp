#include "data/settings/settings_json.h"

namespace focus {

nlohmann::ordered_json settings_json(const std::vector<RecipeField>& settings) {
  nlohmann::ordered_json json;
  for (const RecipeField& field : settings) {
    const std::string text = field.text();
    json[field.key] = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (json[field.key].is_discarded()) json[field.key] = text;  // a plain word
  }
  return json;
}

}  // namespace focus
