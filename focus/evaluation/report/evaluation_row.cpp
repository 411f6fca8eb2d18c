#include "focus/evaluation/report/evaluation_row.h"

namespace focus {
namespace {

constexpr std::size_t kMostDocuments = 1000;  // whose own figures are written

EvaluationRow::Groups groups_of_row(const EvalRow& row) {
  EvaluationRow::Groups groups{.pairs_distant = row.groups.distant,
                               .largest = row.groups.dominance,
                               .largest_worst_layer = row.groups.max_dominance};
  if (row.kind != "summary") groups.entropy = row.groups.entropy;
  for (const GroupStatistics& layer : row.layers) groups.sizes.push_back(layer.sizes);
  return groups;
}

AttentionLabel label_of_row(const EvalRow& row) {
  AttentionLabel label{.name = row.name, .kind = row.kind, .causal = row.causal};
  if (row.mode.kind == AttentionKind::hard || row.mode.kind == AttentionKind::local)
    label.top_k = row.mode.top_k;
  if (row.kind == "hard") label.gate = value_text(*row.mode.gate);
  if (row.has_groups)
    label.routing = row.routing == "keys" ? row.routing : value_text(*row.mode.balance);
  return label;
}

}  // namespace

std::string AttentionLabel::routing_text() const {
  if (causal) return routing.value_or("-");
  return has_groups() ? *routing + " (not causal)" : "not causal";
}

EvaluationRow evaluation_row(const EvalRow& row, bool with_speed) {
  EvaluationRow figures{.attention = label_of_row(row),
                        .precision = std::string(name_of(row.precision)),
                        .perplexity = row.score.perplexity(),
                        .bits_per_byte = row.score.bits_per_byte(),
                        .word_perplexity = row.score.word_perplexity(),
                        .byte_perplexity = row.score.byte_perplexity(),
                        .nats_per_token = row.score.nats_per_token(),
                        .tokens_scored = row.score.tokens,
                        .pairs_attended = row.groups.pairs,
                        .pairs_choosing = row.groups.choosing};
  if (row.documents.size() > 1 && row.documents.size() <= kMostDocuments)
    for (std::vector<double>& nats = figures.nats_of_documents.emplace();
         const Score& of_text : row.documents)
      nats.push_back(of_text.nats_per_token());
  if (row.score.has_dense)
    figures.against_dense = {.kl = row.score.mean_kl(),
                             .difference = row.score.mean_difference(),
                             .difference_error = row.score.difference_error()};
  if (with_speed) figures.tokens_per_second = row.rate();
  if (!row.settings.empty()) figures.settings = row.settings;
  if (row.has_groups) figures.groups = groups_of_row(row);
  return figures;
}

std::vector<EvaluationRow> evaluation_rows(std::span<const EvalRow> rows, bool with_speed) {
  std::vector<EvaluationRow> all;
  for (const EvalRow& row : rows) all.push_back(evaluation_row(row, with_speed));
  return all;
}

}  // namespace focus
