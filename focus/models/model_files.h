#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/checksum.h"
#include "data/tensors/store.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/tokenizer_config.h"
#include "data/tokens/tokenize.h"
#include "focus/adapters/lora/lora.h"
#include "focus/adapters/mechanism.h"
#include "focus/method/focus_files.h"
#include "focus/method/focus_model.h"
#include "focus/models/side_files.h"
#include "layers/decoder.h"
#include "layers/weights.h"

// Models on disk, and Focus for them.
//
// A store of kind "model" holds /config.json, /tokenizer/*, /side/* (side_files.h) and
// /model/<published tensor name, dots as slashes>; a Focus trained together with the model lies in
// /focus, a baseline in /attention. One of kind "adapter" holds /focus, /lora or /attention (an
// indexer) alone, and the base's fingerprint: no frozen weight, and it refuses another base. A
// "training" store is either of the two plus /optim and /train.
namespace focus {

/// A model on disk, its weights not read yet.
struct ModelFiles {
  std::string where;  // the path, for messages
  ModelConfig config;
  std::unique_ptr<TensorSource> weights;
  std::unique_ptr<Tokenizer> tokenizer;  // null without one
  SideFiles side_files;                  // the tokenizer's own among them
  GenerationConfig generation;           // of side_files
  std::vector<SavedAdapter> adapters;    // that it was trained with
  std::string stored_fingerprint;        // that a store says of itself; else empty
  std::vector<FileIdentity> identity;    // of the files a fingerprint is taken from

  /// The attention among the adapters; null: it attends densely.
  const SavedAdapter* attention() const;
  /// Its Focus, of a model that was trained with one.
  std::optional<SavedFocus> focus() const;
};

struct LoadedModel {
  std::string where;  // the path, for messages
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<Tokenizer> tokenizer;  // null without one
  /// The fingerprint of the model as it was loaded, computed on the first call.
  const std::string& fingerprint() const;
  std::shared_ptr<const ModelFiles> files;         // that it was loaded from; null: from none
  std::vector<std::unique_ptr<Adapter>> adapters;  // what it was trained with, and what was added
  /// The files of an adapter's folder that holds a chat template.
  struct Chat {
    SideFiles files;
    std::string where;
  };
  std::optional<Chat> adapter_chat;

  // The adapter of a kind, or null.
  FocusModel* focus() const;
  LoraModel* lora() const;
  Mechanism* mechanism() const;
  /// Composes an adapter onto the decoder and keeps it.
  Adapter& attach(std::unique_ptr<Adapter> adapter);
  /// Takes off all that attends in the place of the model's own attention, and returns it.
  std::vector<std::unique_ptr<Adapter>> detach_attention();

  Bos bos = Bos::automatic;
  /// What `bos` puts around every text; nothing where it puts something before each window.
  TextEnds text_ends() const;
  /// What `bos` puts before each window. Throws std::runtime_error where the model has no such
  /// token.
  std::optional<std::int32_t> window_start() const;
  /// Throws std::runtime_error, a line that begins with `where`, for an id that the model has no
  /// embedding of: tokenizers may have more ids than the model.
  void require_ids(std::span<const std::int32_t> ids, const std::string& where) const;
  /// The ids of a prompt: nothing follows it, and what precedes the first window of a text precedes
  /// it.
  std::vector<std::int32_t> prompt_ids(std::string_view text,
                                       const std::string& where = "the text") const;

  /// The model's own BOS: the config's, else the tokenizer's, else none.
  std::optional<std::int32_t> document_start() const;
  /// The id that ends a document: the config's EOS, else the tokenizer's, else none.
  std::optional<std::int32_t> document_end() const;
  /// The ids that end a generation: generation_config.json's, else the config's, else the
  /// tokenizer's.
  std::vector<std::int32_t> end_ids() const;
  /// Those of the files that it was loaded from; none of a model that was made otherwise.
  const SideFiles& side_files() const;
  /// Those of its chat template: an adapter's, else side_files(), and where they are.
  const SideFiles& chat_files() const { return adapter_chat ? adapter_chat->files : side_files(); }
  const std::string& chat_where() const { return adapter_chat ? adapter_chat->where : where; }
  /// Throws a line that says how to name one where there is no tokenizer.
  const Tokenizer& require_tokenizer() const;

 private:
  mutable std::string fingerprint_;  // empty: not taken yet
};

/// A store, a Hugging Face folder or a GGUF file. `tokenizer`, where not empty, is loaded instead
/// of the model's own. Throws std::runtime_error, one line.
ModelFiles open_model(const std::filesystem::path& path, const std::string& tokenizer = "");

/// The tokenizer of what load_tokenizer() takes, of a GGUF file or of a checkpoint file. Throws
/// std::runtime_error, one line.
std::unique_ptr<Tokenizer> open_tokenizer(const std::filesystem::path& path);

/// What becomes of a model that is loaded.
enum class WeightUse {
  frozen,     // matrices stay where and in what they are stored, mapped where that can be
  trainable,  // all of it is read into memory of its own, in float32
};

/// From what open_model() takes. `tokenizer`, where not empty, is loaded instead of the
/// model's own. A frozen model's matrices are mapped, and nothing of them is read here (with
/// Precision::bf16 and q8 those that are stored otherwise are); such a model cannot be trained or
/// written. Without a precision: q8 where matrices are stored in GGML blocks, as llama.cpp
/// multiplies them, else float32. Throws std::runtime_error, one line.
LoadedModel load_model(const std::filesystem::path& path, const std::string& tokenizer = "",
                       std::optional<Precision> precision = Precision::float32,
                       WeightUse use = WeightUse::frozen);

/// Adds config, side files and tokenizer, where there is one, to a store.
void write_model_head(StoreWriter& store, const ModelConfig& config, const Tokenizer* tokenizer,
                      const SideFiles& side_files);

/// Adds a model to a store: config, tokenizer, side files, weights. Throws std::invalid_argument
/// where the matrices are frozen.
void write_model(StoreWriter& store, LoadedModel& model);

/// Writes a model whose LoRA has been merged as a store, with its Focus, which is for these weights
/// from then on.
void write_merged_model(const std::filesystem::path& path, LoadedModel& model);

// A model's fingerprint: XXH3-128 over the settings of its forward pass and its float32 weights. It
// is the same for a folder and for the checkpoint file imported from it, in every precision.

/// The results of reading a model's weights once.
struct ReadModel {
  std::string fingerprint;
  Index parameters = 0;
  std::set<std::string> types;  // as stored: "bf16"
  Nonfinite nonfinite;
};

/// Collects them parameter by parameter.
class ModelReading {
 public:
  explicit ModelReading(const ModelConfig& config);
  void begin(const StoredParameter& p);
  /// The parameter's next numbers.
  void take(std::span<const Real> numbers);
  ReadModel finish();

 private:
  Checksum checksum_;
  ReadModel model_;
  std::string published_;
};

/// Reads all weights and verifies the file's checksums.
ReadModel read_model(const ModelFiles& files);

/// Calls `f` with every tensor under its published name, rounded to `dtype`, of which the
/// fingerprint is. Memory holds the largest tensor at most.
ReadModel stream_model(const ModelFiles& files, Dtype dtype, const PublishedFunction& f);

/// The fingerprint that a checkpoint file states, or the one noted for a folder whose files have
/// the same sizes and times as then; otherwise reads all weights.
std::string fingerprint_of(const ModelFiles& files);
/// The fingerprint of weights in memory.
std::string model_fingerprint(Decoder& decoder);

/// Opens an adapter for a model and composes it: a store or folder with Focus, a store with LoRA,
/// a PEFT folder or a GGUF adapter, whose base is known by its shapes alone. The chat template of a
/// folder is used from then on; a notice tells of it, and of a tokenizer that differs.
void load_adapter(const std::filesystem::path& path, LoadedModel& model);
/// Several. Throws std::runtime_error where two of them attend.
void load_adapters(const std::vector<std::string>& paths, LoadedModel& model);

/// The same, opened only: what is there for the model's shape.
std::vector<SavedAdapter> open_adapters(const std::filesystem::path& path,
                                        const LoadedModel& model);

/// How lines of JSONL become tokens of a model: texts as other texts do (LoadedModel::bos), behind
/// a completion the model's EOS, messages through its chat template or that of the settings, on a
/// day that stays the same where a template writes a date. A model without a template fails at the
/// first messages, with a line.
ExampleFormat example_format(const LoadedModel& model, const ExampleSettings& settings);

}  // namespace focus
