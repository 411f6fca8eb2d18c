#include <algorithm>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "focus/focus_model.h"
#include "focus/lora/lora.h"
#include "focus/mechanism.h"

// The table of what can be put onto a decoder. A mechanism is one file that defines
// `AdapterKind <name>_kind()`, and its line here.
#define FOCUS_MECHANISMS(ROW) \
  ROW(window)                 \
  ROW(performer)              \
  ROW(routing_transformer)    \
  ROW(sparq)                  \
  ROW(magicpig)               \
  ROW(sink_window)            \
  ROW(quest)                  \
  ROW(moba)                   \
  ROW(oracle)                 \
  ROW(random_groups)          \
  ROW(indexer)                \
  /* the next one goes above this line */

namespace focus {

#define FOCUS_DECLARE(name) AdapterKind name##_kind();
FOCUS_MECHANISMS(FOCUS_DECLARE)
#undef FOCUS_DECLARE

namespace {

AdapterKind focus_kind() {
  return {.name = "focus",
          .help = "the method's settings",
          .defaults = FocusConfig{},
          .has_parameters = true,
          .make = [](const AnySettings& settings, const ModelConfig& shape, Decoder*,
                     Rng& rng) -> std::unique_ptr<Adapter> {
            return std::make_unique<FocusModel>(settings.as<FocusConfig>(), FocusShape::of(shape),
                                                rng);
          }};
}

AdapterKind lora_kind() {
  return {.name = "lora",
          .help = "low-rank adapters",
          .defaults = LoraConfig{},
          .is_attention = false,
          .has_parameters = true,
          .make = [](const AnySettings& settings, const ModelConfig&, Decoder* decoder,
                     Rng& rng) -> std::unique_ptr<Adapter> {
            return std::make_unique<LoraModel>(settings.as<LoraConfig>(), *decoder, rng);
          }};
}

}  // namespace

const std::vector<AdapterKind>& adapter_kinds() {
#define FOCUS_ROW(name) name##_kind(),
  static const std::vector<AdapterKind> kinds = {focus_kind(), lora_kind(),
                                                 FOCUS_MECHANISMS(FOCUS_ROW)};
#undef FOCUS_ROW
  return kinds;
}

const AdapterKind& find_attention(std::string_view name, const std::string& where) {
  if (name == "routing") name = "routing_transformer";
  std::string known;
  for (const AdapterKind& kind : adapter_kinds()) {
    if (!kind.is_attention || kind.name == "focus") continue;
    if (kind.name == name) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", kind.name);
  }
  fail("{}: unknown attention \"{}\"; the rivals are {}", where, shown(name), known);
}

}  // namespace focus
