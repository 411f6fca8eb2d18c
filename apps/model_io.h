#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "apps/compute.h"
#include "data/store.h"
#include "data/tokenizer.h"
#include "focus/focus_model.h"
#include "focus/rivals/rival_model.h"
#include "layers/decoder.h"

// Models and adapters on disk.
//
// A store of kind "model" holds /config.json, /tokenizer/* and /model/<published tensor name, dots
// as slashes>; a Focus trained together with the model lies in /focus, a rival attention in /rival.
// One of kind "adapter" holds /focus alone, and the base's fingerprint: no frozen weight, and it
// refuses another base. A "training" store is either of the two plus /optim and /train.
namespace focus {

struct LoadedModel {
  std::string where;  // the path, for messages
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<Tokenizer> tokenizer;  // null where there is none
  std::string fingerprint;
  std::unique_ptr<FocusModel> focus;  // where the model was trained with one; composed
  std::unique_ptr<RivalModel> rival;  // the same; never both

  /// The id put before every document: the config's BOS, else the tokenizer's, else none.
  std::optional<std::int32_t> document_start() const;
  /// The id that ends a document: the config's EOS, else the tokenizer's, else none.
  std::optional<std::int32_t> document_end() const;
  /// Throws a line that says how to name one where there is no tokenizer.
  const Tokenizer& require_tokenizer() const;
};

/// From a store or a Hugging Face folder. `tokenizer`, where not empty, is loaded instead of the
/// model's own. With Compute::bf16 every matrix is frozen in bf16, each as soon as it is read; such
/// a model cannot be written. Throws std::runtime_error, one line.
LoadedModel load_model(const std::filesystem::path& path, const std::string& tokenizer = "",
                       Compute compute = Compute::float32);

/// XXH3-128 over config and float32 weights: the same for a folder and for the store imported from
/// it, and for both kinds of Compute.
std::string model_fingerprint(Decoder& decoder);

/// Adds a model to a store: config, tokenizer, weights. Throws std::invalid_argument where they are
/// stored in bf16.
void write_model(StoreWriter& store, Decoder& decoder, const Tokenizer* tokenizer);

/// Adds Focus to a store: settings, centroids, projections, potentials, the base's fingerprint.
void write_focus(StoreWriter& store, FocusModel& focus, const std::string& base_fingerprint);

/// Focus as a store holds it, for a decoder with that fingerprint; refuses another base by name of
/// both. `where` is the base, for the message.
std::unique_ptr<FocusModel> read_focus(const StoreReader& store, const Decoder& decoder,
                                       const std::string& fingerprint, const std::string& where);

/// Overwrites the values of a Focus of the same settings (for resuming).
void restore_focus(const StoreReader& store, FocusModel& focus);

/// Adds a rival attention to a store: its kind, settings, and each layer's constants.
void write_rival(StoreWriter& store, const RivalModel& rival);

/// A rival attention as a store holds it.
std::unique_ptr<RivalModel> read_rival(const StoreReader& store, const Decoder& decoder);

/// Overwrites the constants of a rival attention of the same settings (for resuming).
void restore_rival(const StoreReader& store, RivalModel& rival);

/// Opens an adapter for a model, composes it and returns it.
std::unique_ptr<FocusModel> load_adapter(const std::filesystem::path& path, LoadedModel& model);

}  // namespace focus
