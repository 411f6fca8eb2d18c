#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/store.h"
#include "data/settings/any_settings.h"
#include "focus/counts/group_statistics.h"
#include "layers/decoder.h"

namespace focus {

/// Where in a run a training step is.
struct StepPlace {
  std::int64_t step = 0;    // from 0, of the whole run
  bool first_phase = true;  // of a run with two phases; else always
};

/// What attention did over some forward passes.
struct AttentionCounts {
  PairCounts pairs;                     // of one head, over layers and sequences
  std::vector<GroupStatistics> layers;  // one a layer, where tokens have groups

  /// As numbers, appended to a list; and adds what such numbers say, the first of `list`. Returns
  /// how many these were.
  void append_to(std::vector<double>& list) const;
  std::size_t add(std::span<const double> list);
};

/// What multiply-adds of all heads of a layer are in pairs of one head.
std::int64_t pairs_worth(double multiply_adds, const MechanismInputs& in);

/// Something put onto a decoder: Focus, LoRA, or another attention mechanism. It lives beside the
/// decoder, whose weights it never owns.
///
/// A training step calls, in this order: begin_step(), then for each micro-batch the forward pass,
/// after_forward() and part_record(), then the optimiser, then absorb() for each micro-batch, then
/// end_step(). Session::step() is the place where these calls stand.
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

  /// Puts it onto the decoder, which must outlive it. take_off() or its end takes it off again,
  /// and the decoder has what it had before.
  virtual void compose(Decoder& decoder) = 0;
  virtual void take_off() = 0;

  /// Calls f(name, parameter) for each parameter of its own, "focus.layers.0.centroids".
  virtual void for_each_own(const std::function<void(const std::string&, Variable&)>&) {}
  /// Of the run's learning rate what the parameter of that name learns with; 1 for those of others.
  virtual double lr_factor(const std::string& /*name*/) const { return 1; }
  /// Makes those that are trained by gradients collect one, or none.
  virtual void set_trainable(bool /*wanted*/) {}

  virtual void begin_step(const StepPlace&) {}
  /// Returns what is added to the loss of the last forward pass, undefined where nothing is.
  virtual Variable after_forward() { return {}; }
  /// What the last forward pass, of one part of a step, leaves to what follows its tokens without a
  /// gradient; and lets what a part left enter that. All parts of a step do so in their order, once
  /// all have been computed, by whichever process: see divides().
  virtual std::vector<double> part_record() const { return {}; }
  virtual void absorb(std::span<const double> /*record*/) {}
  /// Whether the parts of a step may be divided among processes: nothing that follows the tokens
  /// goes from part to part but by part_record().
  virtual bool divides() const { return true; }
  virtual void end_step(std::int64_t /*steps_done*/) {}
  /// Groups of the tokens of the step so far, one a layer, without pairs; empty without groups.
  virtual std::vector<GroupStatistics> step_groups() const { return {}; }
  /// Before forward passes that validate: what is trained is what runs.
  virtual void begin_validation() {}

  /// From now on forward passes are counted, from nothing; counts() is what has come together.
  virtual void start_counting() {}
  virtual void stop_counting() {}
  virtual AttentionCounts counts() const { return {}; }

  /// Adds settings and values to a store; `base_fingerprint` is that of the weights it is for.
  virtual void write(StoreWriter& store, const std::string& base_fingerprint) = 0;
  /// Overwrites the values with those of a store, of an adapter with the same settings.
  virtual void restore(const StoreReader& store) = 0;
};

/// A kind of adapter: a row of the table.
struct AdapterKind {
  std::string_view name;  // in recipes, and where it is an attention, in --attention
  std::string_view help;  // one line
  AnySettings defaults;
  bool is_attention = true;     // the attention of every layer; LoRA is not
  bool has_parameters = false;  // something to train on a frozen base
  bool has_gradient = true;     // a model can be trained through it; else it selects at inference
  /// A mechanism that a recipe can name: one that a model is trained through or that is trained
  /// itself.
  bool is_trainable_mechanism() const {
    return is_attention && name != "focus" && (has_gradient || has_parameters);
  }
  /// For a decoder of that shape, which LoRA wants to see: null only where the adapter is described
  /// and not put onto anything. Throws std::invalid_argument where a setting is out of range, and
  /// where the decoder has what the kind cannot honour, naming both.
  std::unique_ptr<Adapter> (*make)(const AnySettings& settings, const ModelConfig& shape,
                                   Decoder* decoder, Rng& rng) = nullptr;
};

/// All kinds, Focus and LoRA first.
const std::vector<AdapterKind>& adapter_kinds();
/// Throws std::runtime_error, one line that starts with `where` and names the attentions there are.
const AdapterKind& find_attention(std::string_view name, const std::string& where);

}  // namespace focus
