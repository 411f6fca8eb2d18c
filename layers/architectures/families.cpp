#include <fmt/ranges.h>

#include "data/files/json_reader.h"
#include "layers/architectures/common.h"

namespace focus {

// NAME_family() is in NAME.cpp: all that a new family adds here is its name.
#define FOCUS_FAMILIES(f)                                                                         \
  f(gpt2) f(llama) f(mistral) f(qwen2) f(qwen3) f(olmo2) f(olmo3) f(gemma2) f(gemma3) f(gpt_neox) \
      f(phi3) f(granite) f(smollm3)
#define FOCUS_DECLARE(name) Family name##_family();
#define FOCUS_CALL(name) name##_family(),
FOCUS_FAMILIES(FOCUS_DECLARE)

std::span<const Family> families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> made = {FOCUS_FAMILIES(FOCUS_CALL)};
    for (Family& family : made)
      if (family.rules.empty()) family.rules = llama_rules(family.common);
    return made;
  }();
  return all;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.model_type);
  return names;
}

const Family& find_family(const std::string& model_type, const std::string& where) {
  for (const Family& family : families())
    if (family.model_type == model_type) return family;
  throw std::invalid_argument(fmt::format("{}: model_type \"{}\" is not supported ({} are)", where,
                                          shown(model_type), fmt::join(family_names(), ", ")));
}

}  // namespace focus
