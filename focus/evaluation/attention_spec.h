#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/settings/members.h"
#include "focus/adapters/mechanism.h"
#include "focus/method/focus_model.h"
#include "focus/models/model_files.h"

// One vocabulary for "which attention", of every command and config:
//   dense                  every pair, as the model was
//   local                  Focus's local window alone
//   soft                   Focus, every pair through the gate        soft:sinks=4
//   hard:2                 Focus, a token keeps its 2 best groups    hard:2:gate=drop
//   summary:2              Focus, a query reads 2 groups exactly, each other group as one summary
//   token
//                          summary:2:unselected_groups=drop:local_window=20,
//                          summary:selection=own,
//                          summary:m_by_layer=4+1+0, summary:2:w_by_layer=8+48+8
//   focus                  soft, and hard for every k                focus:2 (k up to 2)
//                          (of groups of keys: summary)
//   trained                the mechanism that the model was trained with
//   window:128, performer:256, routing_transformer:8 (or routing:8), sparq:32, magicpig:8,
//   sink_window:128, quest:4, moba:2, oracle:32, random_groups:4, indexer:32
//                          another mechanism of the table of kinds   sparq:32:rank=16
// A word is a name, then settings behind colons: KEY=VALUE, or the value of the first key alone.
namespace focus {

/// "a", "b" and "" of "a:b:".
std::vector<std::string> split_word(const std::string& word, char separator);

/// Throws std::runtime_error, one line that starts with `where`.
AttentionSpec parse_attention(const std::string& word, const std::string& where = "attention");

/// Where potentials come from when a word does not say it.
enum class DefaultBalance {
  trained,            // as the adapter was trained
  causal_and_trained  // carried (none where that was trained), and sequence too where it was
                      // trained
};

/// The words one by one for this model: soft and hard with everything said, each once, `focus` as
/// what it lists; without any: dense, `focus` where there is one, and `trained` likewise. Throws
/// std::runtime_error, one line that starts with `where`, where the model has no Focus or mechanism
/// that a word needs, or fewer groups.
std::vector<AttentionSpec> resolve_words(const std::vector<std::string>& words,
                                         const LoadedModel& model, DefaultBalance balance,
                                         const std::string& where);
/// The one attention that a word names for this model; `focus` is its soft form.
AttentionSpec resolve_attention(const AttentionSpec& spec, const LoadedModel& model,
                                const std::string& where);
/// The one that generates: what a word names; without one what the model was trained with, of a
/// Focus its summary tokens or hard k=1, else dense. Throws as above where a cache cannot hold it.
AttentionSpec attention_to_generate(const std::string& word, const LoadedModel& model,
                                    const std::string& where);
/// What a model runs by itself: soft where it has a Focus, the mechanism it was trained with, else
/// dense.
AttentionSpec own_attention(const LoadedModel& model);

/// Which attention a figure belongs to.
struct AttentionLabel {
  std::string name = {};                      // as tables call it: "hard k=2 keep", "window w=128"
  AttentionKind kind = AttentionKind::dense;  // what ran: neither focus nor trained
  std::optional<std::int64_t> top_k = {};     // of hard
  std::optional<HardGate> gate = {};          // of hard
  std::optional<std::string> routing = {};    // where the groups' potentials come from
  bool causal = true;

  /// "-", "carried", "sequence (not causal)", "not causal"
  std::string routing_text() const {
    if (causal) return routing.value_or("-");
    return routing ? *routing + " (not causal)" : "not causal";
  }
  /// "hard k=2 keep, carried": name and, where there is something to say, routing.
  std::string title() const { return causal && !routing ? name : name + ", " + routing_text(); }
  bool operator==(const AttentionLabel&) const = default;

  void visit(auto&& f) {
    f("attention", name);
    FOCUS_MEMBERS(f, kind, top_k, gate, routing, causal);
  }
};

/// While it lives, a model attends as a resolved spec says; afterwards as before.
class ActiveAttention {
 public:
  ActiveAttention(LoadedModel& model, const AttentionSpec& spec);
  ~ActiveAttention();
  ActiveAttention(const ActiveAttention&) = delete;
  ActiveAttention& operator=(const ActiveAttention&) = delete;

  /// "dense", "soft", "hard k=2 keep", "local only", "window w=128"
  std::string name() const;
  /// Focus's; dense for a mechanism.
  const AttentionSpec& mode() const { return mode_; }
  /// Whose groups tokens have; null where they have none.
  FocusModel* focus() const { return focus_; }
  /// The mechanism of the table that attends; null for dense and for Focus.
  Mechanism* mechanism() const { return mechanism_; }
  bool causal() const {
    return mechanism_ ? mechanism_->causal() : !focus_ || mode_.balance != Balance::sequence;
  }
  AttentionLabel label() const;
  std::string title() const { return label().title(); }

  void start_counting() {
    if (counted_ != nullptr) counted_->start_counting();
  }
  AttentionCounts stop_counting();

 private:
  AttentionSpec mode_;
  FocusModel* focus_ = nullptr;
  Mechanism* mechanism_ = nullptr;
  Adapter* counted_ = nullptr;     // that attends
  FocusModel* changed_ = nullptr;  // whose mode goes back to before_
  AttentionSpec before_;
  std::unique_ptr<Mechanism> made_;
  std::optional<AttachedMechanism> dense_;  // goes first: what it replaced goes back
};

}  // namespace focus
