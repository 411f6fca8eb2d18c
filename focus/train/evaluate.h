#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "focus/train/compute.h"
#include "focus/focus_model.h"
#include "focus/rivals/rival_model.h"
#include "layers/decoder.h"

namespace focus {

/// One text as one stream of tokens, with the id that starts a document before it.
struct EvalText {
  std::string name;
  std::vector<std::int32_t> ids;
  std::int64_t bytes = 0;
};

struct EvalOptions {
  Index context = 512;
  Index stride = 256;

  /// Where they are 0: 512 tokens, or the model's positions if fewer, and half of the context.
  void fill_in(Index positions) {
    if (context == 0) context = std::min<Index>(512, positions);
    if (stride == 0) stride = std::max<Index>(1, context / 2);
  }
};

struct Score {
  double nats = 0;  // sum of -log p over the scored tokens
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;

  double perplexity() const;
  double bits_per_byte() const;
  Score& operator+=(const Score& other);
};

/// What Focus did during an evaluation, over all layers.
struct GroupSummary {
  double pairs = 1;          // share of causal pairs that were attended
  double distant = 0;        // share of causal pairs beyond the local window
  double dominance = 0;      // largest group's share, mean over layers
  double max_dominance = 0;  // of the worst layer
  double entropy = 0;        // of the assignments, mean, in nats
};
GroupSummary summarise(const std::vector<GroupStatistics>& statistics);

/// Perplexity by the strided recipe of transformers' documentation: windows of `context` tokens
/// every `stride`; the first scores all its tokens but the first, each later one its last `stride`
/// (the last one what is left). `progress`, where given, is called with the share done.
Score evaluate(const Decoder& decoder, const EvalText& text, const EvalOptions& options,
               const std::function<void(double)>& progress = {});

/// One row of a table: an attention, a routing, what the weights are in, and what came out.
struct EvalRow {
  AttentionMode mode;
  Compute compute = Compute::float32;  // of the decoder
  Score score = {};
  double seconds = 0;  // in the JSON only where asked for
  GroupSummary groups = {};
  std::vector<GroupStatistics> layers = {};  // empty for dense
  std::string rival = {};                    // a rival attention's name; the mode is then unused
  bool rival_causal = true;
  std::vector<std::pair<std::string, std::string>> settings = {};  // of the rival, as in a recipe

  /// Tokens scored in a second.
  double rate() const { return seconds > 0 ? static_cast<double>(score.tokens) / seconds : 0; }

  /// What attended: the rival's name, or the mode's.
  std::string name() const { return rival.empty() ? mode.name() : rival; }
  /// "dense", "local" (Focus's window alone), "soft", "hard" or "rival".
  std::string_view kind() const;
  bool has_groups() const;
  bool causal() const;
  /// "-", "not causal", "carried", "sequence (not causal)", "none"
  std::string routing() const;
};

/// Runs one mode over all texts. `focus` is null for a model without one.
EvalRow evaluate_mode(const Decoder& decoder, FocusModel* focus, const AttentionMode& mode,
                      std::span<const EvalText> texts, const EvalOptions& options,
                      const std::function<void(double)>& progress = {});

/// The same with a rival attention composed onto the decoder, which goes back to what it had.
EvalRow evaluate_rival(Decoder& decoder, RivalModel& rival, std::span<const EvalText> texts,
                       const EvalOptions& options,
                       const std::function<void(double)>& progress = {});

/// The rows as a table for a terminal, and as JSON: the same for the same figures, unless
/// `with_speed` adds tokens_per_second.
std::string format_rows(std::span<const EvalRow> rows);
nlohmann::ordered_json rows_to_json(std::span<const EvalRow> rows, bool with_speed = false);

}  // namespace focus
