#include "layers/architectures/families.h"

#include <fmt/format.h>

#include <array>

#include "data/files/json_reader.h"

namespace focus {

std::span<const Family* const> families() {
  static const std::array all = {
      &gpt2_family(),  &llama_family(),   &mistral_family(), &qwen2_family(),    &qwen3_family(),
      &olmo2_family(), &gemma2_family(),  &gemma3_family(),  &gpt_neox_family(), &phi3_family(),
      &olmo3_family(), &granite_family(), &smollm3_family()};
  return all;
}

const Family& find_family(const std::string& model_type, const std::string& where) {
  std::string known;
  for (const Family* family : families()) {
    if (family->model_type == model_type) return *family;
    known += (known.empty() ? "" : ", ") + family->model_type;
  }
  throw std::invalid_argument(fmt::format("{}: model_type \"{}\" is not supported ({} are)", where,
                                          shown(model_type), known));
}

}  // namespace focus
