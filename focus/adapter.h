#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/settings/config.h"
#include "data/tensors/store.h"
#include "focus/method/grouping/group_statistics.h"
#include "layers/decoder.h"

namespace focus {

/// Where in a run a training step is.
struct StepInfo {
  std::int64_t step = 0;    // from 0, of the whole run
  bool first_phase = true;  // of a run with two phases; else always
  std::int64_t steps = 0;   // of its phase
};

/// What attention did over some forward passes.
struct AttentionCounts {
  PairCounts pairs;                     // of one head, over layers and sequences
  std::vector<GroupStatistics> layers;  // one a layer, where tokens have groups

  void visit(auto&& f) {
    f(pairs);
    f(layers);
  }
};

/// What multiply-adds of all heads of a layer are in pairs of one head.
inline std::int64_t pairs_worth(double multiply_adds, const MechanismInputs& in) {
  return std::llround(multiply_adds / static_cast<double>(2 * in.q.dim(2) * in.q.dim(3)));
}

/// Something attached to a decoder: Focus, LoRA, or another attention mechanism. It lives beside
/// the decoder, whose weights it never owns.
///
/// A training step calls, in this order: begin_step(), then for each micro-batch the forward pass,
/// after_forward() and step_statistics(), then the optimiser, then merge_statistics() for each
/// micro-batch, then end_step(). Session::step() makes these calls.
class Adapter {
 public:
  Adapter() = default;
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;
  virtual ~Adapter() = default;

  /// Its kind's name in the table of kinds: "focus", "lora", "window", ...
  virtual std::string_view kind() const = 0;
  /// The same with the settings that tell two of a kind apart: "window w=128".
  virtual std::string name() const { return std::string(kind()); }
  /// Whether what a token receives depends on nothing after it.
  virtual bool causal() const { return true; }

  /// The decoder must outlive it. detach() or its end takes it off again,
  /// and the decoder has what it had before.
  virtual void attach(Decoder& decoder) = 0;
  virtual void detach() = 0;

  /// Calls f(name, parameter) for each parameter of its own, "focus.layers.0.centroids".
  virtual void visit_parameters(const std::function<void(const std::string&, Variable&)>&) {}
  /// The factor of the learning rate for the parameter of that name; 1 for other adapters' ones.
  virtual double lr_factor(const std::string& /*name*/) const { return 1; }
  /// Makes those that are trained by gradients collect one, or none.
  virtual void set_trainable(bool /*wanted*/) {}

  virtual void begin_step(const StepInfo&) {}
  /// Returns what is added to the loss of the last forward pass, undefined where nothing is.
  virtual Variable after_forward() { return {}; }
  /// What the last forward pass, of one part of a step, leaves to what follows its tokens without a
  /// gradient; and lets what a part left enter that. All parts of a step do so in their order, once
  /// all have been computed, by whichever process: see divides().
  virtual std::vector<double> step_statistics() const { return {}; }
  virtual void merge_statistics(std::span<const double> /*record*/) {}
  /// Whether the parts of a step may be divided among processes: nothing that follows the tokens
  /// goes from part to part but by step_statistics().
  virtual bool divides() const { return true; }
  /// Whether it can be trained on rows of several documents (data.packing), each as if it were
  /// alone: nothing that follows the tokens is made of a whole row.
  virtual bool separates_documents() const { return true; }
  virtual void end_step(std::int64_t /*steps_done*/) {}
  /// Groups of the tokens of the step so far, one a layer, without pairs; empty without groups.
  virtual std::vector<GroupStatistics> step_groups() const { return {}; }
  /// Before forward passes that validate: what is trained is what runs.
  virtual void begin_validation() {}

  /// From now on forward passes are counted, from nothing; counts() is what has come together.
  virtual void start_counting() {}
  virtual void stop_counting() {}
  virtual AttentionCounts counts() const { return {}; }

  /// Writes what else a result of it has beside its store; `base` is the base's place.
  virtual void write_beside(const std::filesystem::path& /*folder*/,
                            const std::string& /*base*/) const {}
  /// Adds settings and values to a store; `base_fingerprint` is that of the weights it is for.
  virtual void write(StoreWriter& store, const std::string& base_fingerprint) = 0;
  /// Overwrites the values with those of a store, of an adapter with the same settings.
  virtual void restore(const StoreReader& store) = 0;
  /// Overwrites the values with those of another of its kind, whose settings may differ where no
  /// value depends on them. Throws std::runtime_error, a line that begins with `where`, which other
  /// is from, if one does.
  virtual void start_from(Adapter& other, const std::string& where);
};

/// What an adapter is to the decoder that it is attached to.
enum class AdapterRole {
  focus,              // the method: the attention of every layer
  addition,           // added to linears, trained on a frozen base (LoRA)
  trained_attention,  // an attention with parameters that are trained on a frozen base
  attention,          // an attention that a model can be trained through
  selection           // an attention that selects keys at inference only
};

struct AdapterKind;

/// An adapter as a file holds it, its tensors not read yet.
struct SavedAdapter {
  const AdapterKind* kind = nullptr;
  std::string where;             // for messages
  std::string name;              // Adapter::name()
  bool causal = true;            // Adapter::causal()
  std::string base_fingerprint;  // of the weights that it is for; empty: any
  /// Reads it all, for a decoder that it fits; not attached.
  std::function<std::unique_ptr<Adapter>(Decoder&)> read;
};

/// A kind of adapter: a row of the table.
struct AdapterKind {
  std::string_view name;  // in configs, and where it is an attention, in --attention
  std::string_view help;  // one line
  AnySettings defaults;
  AdapterRole role = AdapterRole::attention;
  /// The group of a store that holds one; mechanisms share theirs.
  std::string_view store_group;
  /// For a decoder of that shape, which LoRA wants to see: null only where the adapter is described
  /// and not attached to anything. Throws std::invalid_argument where a setting is out of range,
  /// and where the decoder has what the kind cannot honour, naming both.
  std::unique_ptr<Adapter> (*make)(const AnySettings& settings, const ModelConfig& shape,
                                   Decoder* decoder, Rng& rng) = nullptr;
  /// The one that a store holds for a model of that shape; none where it holds none of this kind.
  std::optional<SavedAdapter> (*open)(const AdapterKind& kind, const StoreReader& store,
                                      const ModelConfig& shape) = nullptr;

  bool is_attention() const { return role != AdapterRole::addition; }
  /// Something to train on a frozen base.
  bool has_parameters() const { return role <= AdapterRole::trained_attention; }
  /// A mechanism that a config can name: one that a model is trained through or that is trained
  /// itself.
  bool is_trainable_mechanism() const {
    return role == AdapterRole::trained_attention || role == AdapterRole::attention;
  }
};

/// All kinds, Focus and LoRA first.
const std::vector<AdapterKind>& adapter_kinds();
/// By its name. Throws std::logic_error for a name that is in no row.
const AdapterKind& adapter_kind(std::string_view name);
/// Throws std::runtime_error, one line that starts with `where` and names the attentions there are.
const AdapterKind& find_attention(std::string_view name, const std::string& where);

/// All that a store holds for a model of that shape, in the order of the table.
std::vector<SavedAdapter> open_adapters(const StoreReader& store, const ModelConfig& shape);
/// Throws std::runtime_error where the adapter was made for another base than the one with that
/// fingerprint; `base` is the base's place, for the message.
void check_base(const std::string& where, const std::string& base_fingerprint,
                const std::string& fingerprint, const std::string& base);

}  // namespace focus
