#pragma once

#include <memory>
#include <string>

#include "data/files/store.h"
#include "focus/lora/lora.h"

// LoRA in a store: /lora. PEFT's own files are focus/peft_adapter.h's.
namespace focus {

/// Adds LoRA to a store: settings, matrices under their PEFT names, the base's fingerprint.
void write_lora(StoreWriter& store, const LoraModel& lora, const std::string& base_fingerprint);

/// LoRA as a store holds it; another base than that with `fingerprint` is refused by name of both.
/// `where` is the base, for the message. Not composed yet.
std::unique_ptr<LoraModel> read_lora(const StoreReader& store, Decoder& decoder,
                                     const std::string& fingerprint, const std::string& where);

/// Overwrites the values of a LoRA of the same settings (for resuming).
void restore_lora(const StoreReader& store, LoraModel& lora);

}  // namespace focus
