#pragma once

#include <memory>

#include "data/files/store.h"
#include "focus/rivals/rival_model.h"

// A rival attention in a store, beside the model that was trained with it: /rival.
namespace focus {

/// Adds a rival attention to a store: its kind, settings, and each layer's constants.
void write_rival(StoreWriter& store, const RivalModel& rival);

/// A rival attention as a store holds it.
std::unique_ptr<RivalModel> read_rival(const StoreReader& store, const ModelConfig& model);

/// Overwrites the constants of a rival attention of the same settings (for resuming).
void restore_rival(const StoreReader& store, RivalModel& rival);

}  // namespace focus
