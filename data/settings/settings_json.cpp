#include "data/settings/settings_json.h"

namespace focus {

nlohmann::ordered_json settings_json(const std::vector<ConfigField>& settings) {
  nlohmann::ordered_json json;
  for (const ConfigField& field : settings) {
    nlohmann::ordered_json* object = &json;
    std::string name = field.key;
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.')) {
      object = &(*object)[name.substr(0, dot)];
      name.erase(0, dot + 1);
    }
    nlohmann::ordered_json& value = (*object)[name];
    if (!field.text) {  // a group
      value = nlohmann::ordered_json::object();
      continue;
    }
    const std::string text = field.text();
    value = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded()) value = text;  // a plain word
  }
  return json;
}

}  // namespace focus
