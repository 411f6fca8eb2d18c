#include "focus/lora/lora_io.h"

#include "data/settings/recipe.h"
#include "autograd/check.h"

namespace focus {

void write_lora(StoreWriter& store, const LoraModel& lora, const std::string& base_fingerprint) {
  store.attribute("/lora", "base_fingerprint", base_fingerprint);
  store.text("/lora/config.yaml", dump_recipe(lora.config()));
  for (const auto& [name, tensor] : lora.tensors())
    store.tensor(store_path("/lora/tensors", name), tensor);
}

std::unique_ptr<LoraModel> read_lora(const StoreReader& store, Decoder& decoder,
                                     const std::string& fingerprint, const std::string& where) {
  const std::string base = store.string_attribute("/lora", "base_fingerprint");
  if (base != fingerprint)
    fail("{}: made for the base with fingerprint {}, but {} has {}; use the base it was trained on",
         store.describe(), base, where, fingerprint);
  LoraConfig config;
  read_recipe_text(store.text("/lora/config.yaml"), store.describe() + ": /lora/config.yaml", {},
                   config);
  Rng rng(0);
  auto lora = std::make_unique<LoraModel>(config, decoder, rng);
  restore_lora(store, *lora);
  return lora;
}

void restore_lora(const StoreReader& store, LoraModel& lora) {
  lora.load(*store.source("/lora/tensors"));
}

}  // namespace focus
