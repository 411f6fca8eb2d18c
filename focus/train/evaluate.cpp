#include "focus/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "data/settings/recipe.h"
#include "autograd/check.h"
#include "autograd/clock.h"

namespace focus {
namespace {

/// Tokens of a forward pass over several windows: enough to keep all threads busy.
constexpr Index kBatchTokens = 4096;

struct Window {
  Index begin = 0, end = 0;
  Index scored = 0;  // its last tokens
};

std::vector<Window> windows_of(Index tokens, const EvalOptions& options) {
  std::vector<Window> windows;
  Index scored_up_to = 0;
  for (Index begin = 0;; begin += options.stride) {
    const Index end = std::min(begin + options.context, tokens);
    windows.push_back({begin, end, end - scored_up_to});
    scored_up_to = end;
    if (end == tokens) return windows;
  }
}

/// Sum of -log p over the scored tokens of windows of equal length.
Score score_windows(const Decoder& decoder, const EvalText& text, std::span<const Window> windows) {
  const Index length = windows[0].end - windows[0].begin;
  const auto batch = static_cast<Index>(windows.size());
  std::vector<std::int32_t> ids;
  for (const Window& window : windows)
    ids.insert(ids.end(), text.ids.begin() + window.begin, text.ids.begin() + window.end);
  const Tensor hidden = decoder.hidden_states(ids, batch).value();
  // Only the scored rows go through the output head.
  std::vector<Index> rows;
  std::vector<std::int32_t> targets;
  for (Index w = 0; w < batch; ++w) {
    // The first token of a window has nothing before it to be predicted from.
    const Index first = std::max<Index>(1, length - windows[static_cast<std::size_t>(w)].scored);
    for (Index t = first; t < length; ++t) {
      rows.push_back(w * length + t - 1);
      targets.push_back(ids[static_cast<std::size_t>(w * length + t)]);
    }
  }
  if (rows.empty()) return {};
  const Index width = hidden.cols();
  Tensor scored({static_cast<Index>(rows.size()), width});
  for (std::size_t r = 0; r < rows.size(); ++r)
    std::copy_n(hidden.data() + rows[r] * width, width,
                scored.data() + static_cast<Index>(r) * width);
  Score score{.tokens = static_cast<std::int64_t>(rows.size())};
  for (const double nats : decoder.cross_entropy_rows(scored, targets)) score.nats += nats;
  return score;
}

/// Puts back, when it goes, the mechanisms that a decoder's layers had.
class ComposedMechanisms {
 public:
  explicit ComposedMechanisms(Decoder& decoder) : decoder_(decoder) {
    for (const Block& block : decoder.layers()) before_.push_back(block.self_attn.mechanism);
  }
  ~ComposedMechanisms() {
    for (std::size_t i = 0; i < before_.size(); ++i)
      decoder_.layers()[i].self_attn.mechanism = before_[i];
  }
  ComposedMechanisms(const ComposedMechanisms&) = delete;
  ComposedMechanisms& operator=(const ComposedMechanisms&) = delete;

 private:
  Decoder& decoder_;
  std::vector<AttentionMechanism> before_;
};

/// The score and the time of a row over all texts.
void evaluate_texts(const Decoder& decoder, std::span<const EvalText> texts,
                    const EvalOptions& options, const std::function<void(double)>& progress,
                    EvalRow& row) {
  const double start = now();
  double share = 0;
  for (const EvalText& text : texts) {
    row.score += evaluate(decoder, text, options, [&](double part) {
      if (progress) progress(share + part / static_cast<double>(texts.size()));
    });
    share += 1 / static_cast<double>(texts.size());
  }
  row.seconds = now() - start;
}

}  // namespace

double Score::perplexity() const { return std::exp(nats / static_cast<double>(tokens)); }

double Score::bits_per_byte() const {
  return nats / std::numbers::ln2 / static_cast<double>(bytes);
}

Score& Score::operator+=(const Score& other) {
  nats += other.nats;
  tokens += other.tokens;
  bytes += other.bytes;
  return *this;
}

GroupSummary summarise(const std::vector<GroupStatistics>& statistics) {
  GroupSummary summary;
  PairCounts pairs;
  const auto layers = static_cast<double>(statistics.size());
  for (const GroupStatistics& layer : statistics) {
    pairs += layer.pairs;
    summary.dominance += layer.dominance() / layers;
    summary.max_dominance = std::max(summary.max_dominance, layer.dominance());
    summary.entropy += layer.entropy / std::max(1.0, static_cast<double>(layer.tokens)) / layers;
  }
  if (pairs.all > 0) {
    summary.pairs = static_cast<double>(pairs.attended) / static_cast<double>(pairs.all);
    summary.distant = static_cast<double>(pairs.distant) / static_cast<double>(pairs.all);
  }
  return summary;
}

Score evaluate(const Decoder& decoder, const EvalText& text, const EvalOptions& options,
               const std::function<void(double)>& progress) {
  check(options.context >= 2, "eval: context must be at least 2, not {}", options.context);
  check(options.stride >= 1 && options.stride <= options.context,
        "eval: stride must be from 1 to the context of {}, not {}", options.context,
        options.stride);
  const NoGrad guard;
  if (text.ids.size() < 2) fail("{}: {} tokens; at least 2 are needed", text.name, text.ids.size());
  const auto windows = windows_of(static_cast<Index>(text.ids.size()), options);
  const auto per_batch =
      static_cast<std::size_t>(std::max<Index>(1, kBatchTokens / options.context));
  Score score{.bytes = text.bytes};
  for (std::size_t first = 0; first < windows.size();) {
    std::size_t last = first + 1;
    const auto length = [&](std::size_t i) { return windows[i].end - windows[i].begin; };
    while (last < windows.size() && last - first < per_batch && length(last) == length(first))
      ++last;
    score += score_windows(decoder, text, std::span(windows).subspan(first, last - first));
    first = last;
    if (progress) progress(static_cast<double>(first) / static_cast<double>(windows.size()));
  }
  return score;
}

bool EvalRow::has_groups() const {
  const bool local_only = mode.kind == AttentionMode::Kind::hard && mode.top_k == 0;
  return rival.empty() && mode.kind != AttentionMode::Kind::dense && !local_only;
}

bool EvalRow::causal() const {
  return rival.empty() ? !has_groups() || mode.balance != Balance::sequence : rival_causal;
}

std::string EvalRow::routing() const {
  if (!has_groups()) return causal() ? "-" : "not causal";
  const std::string name(enum_names(mode.balance)[static_cast<std::size_t>(mode.balance)]);
  return mode.balance == Balance::sequence ? name + " (not causal)" : name;
}

EvalRow evaluate_mode(const Decoder& decoder, FocusModel* focus, const AttentionMode& mode,
                      std::span<const EvalText> texts, const EvalOptions& options,
                      const std::function<void(double)>& progress) {
  const bool bf16 = decoder.head_weight().is_frozen_matrix();
  EvalRow row{.mode = mode, .compute = bf16 ? Compute::bf16 : Compute::float32};
  const AttentionMode before = focus ? focus->mode : AttentionMode{};
  if (focus) {
    focus->mode = mode;
    focus->reset_statistics();
    focus->gather_statistics = true;
  }
  evaluate_texts(decoder, texts, options, progress, row);
  if (focus) {
    focus->gather_statistics = false;
    focus->mode = before;
    if (mode.kind != AttentionMode::Kind::dense) {
      row.layers = focus->statistics;
      row.groups = summarise(row.layers);
    }
  }
  return row;
}

EvalRow evaluate_rival(Decoder& decoder, RivalModel& rival, std::span<const EvalText> texts,
                       const EvalOptions& options, const std::function<void(double)>& progress) {
  EvalRow row{
      .mode = {.kind = AttentionMode::Kind::dense},
      .compute = decoder.head_weight().is_frozen_matrix() ? Compute::bf16 : Compute::float32,
      .rival = rival.name(),
      .rival_causal = rival.causal()};
  std::visit(
      [&](auto settings) {
        for (const RecipeField& field : recipe_fields(settings))
          row.settings.emplace_back(field.key, field.text());
      },
      rival.config());
  const ComposedMechanisms restored(decoder);
  rival.compose(decoder);
  rival.pairs = {};
  rival.gather_statistics = true;
  evaluate_texts(decoder, texts, options, progress, row);
  rival.gather_statistics = false;
  if (rival.pairs.all > 0)
    row.groups.pairs =
        static_cast<double>(rival.pairs.attended) / static_cast<double>(rival.pairs.all);
  return row;
}

std::string format_rows(std::span<const EvalRow> rows) {
  std::string table = fmt::format("{:<25} {:<22} {:<8} {:>10} {:>9} {:>9} {:>8} {:>8} {:>8}\n",
                                  "attention", "routing", "compute", "perplexity", "bits/byte",
                                  "tokens", "tok/s", "pairs", "largest");
  for (const EvalRow& row : rows) {
    table +=
        fmt::format("{:<25} {:<22} {:<8} {:>10.4f} {:>9.5f} {:>9} {:>8.0f} {:>7.1f}% {:>8}\n",
                    row.name(), row.routing(), name_of(row.compute), row.score.perplexity(),
                    row.score.bits_per_byte(), row.score.tokens, row.rate(), 100 * row.groups.pairs,
                    row.has_groups() ? fmt::format("{:.1f}%", 100 * row.groups.dominance) : "-");
  }
  return table;
}

nlohmann::ordered_json rows_to_json(std::span<const EvalRow> rows, bool with_speed) {
  auto list = nlohmann::ordered_json::array();
  for (const EvalRow& row : rows) {
    nlohmann::ordered_json json = {
        {"attention", row.name()},
        {"top_k", nullptr},
        {"routing", nullptr},
        {"compute", name_of(row.compute)},
        {"causal", row.causal()},
        {"perplexity", row.score.perplexity()},
        {"bits_per_byte", row.score.bits_per_byte()},
        {"nats_per_token", row.score.nats / static_cast<double>(row.score.tokens)},
        {"tokens_scored", row.score.tokens},
        {"pairs_attended", row.groups.pairs}};
    if (with_speed) json["tokens_per_second"] = row.rate();
    if (row.mode.kind == AttentionMode::Kind::hard) json["top_k"] = row.mode.top_k;
    for (const auto& [key, value] : row.settings) json["settings"][key] = value;
    if (row.has_groups()) {
      json["routing"] = enum_names(row.mode.balance)[static_cast<std::size_t>(row.mode.balance)];
      json["pairs_distant"] = row.groups.distant;
      json["largest_group"] = row.groups.dominance;
      json["largest_group_worst_layer"] = row.groups.max_dominance;
      json["entropy"] = row.groups.entropy;
      auto layers = nlohmann::ordered_json::array();
      for (const GroupStatistics& layer : row.layers) layers.push_back(layer.sizes);
      json["group_sizes"] = layers;
    }
    list.push_back(json);
  }
  return list;
}

}  // namespace focus
