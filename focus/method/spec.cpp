#include "focus/method/spec.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "focus/method/grouping/grouping.h"

namespace focus {

std::string summary_name(const SummarySettings& settings, const std::vector<Index>& m_by_layer,
                         const std::vector<Index>& w_by_layer) {
  const SummarySettings usual;
  std::string name =
      settings.unselected_groups == UnselectedGroups::summary ? "summary" : "selection";
  if (!m_by_layer.empty())
    name += fmt::format(" m={} by layer", fmt::join(m_by_layer, "+"));
  else
    name +=
        settings.reads_own_group() ? " own" : fmt::format(" m={}", settings.num_selected_groups);
  if (!w_by_layer.empty())
    name += fmt::format(" w={} by layer", fmt::join(w_by_layer, "+"));
  else
    name += fmt::format(" w={}", settings.local_window);
  if (settings.block != usual.block) name += fmt::format(" block={}", settings.block);
  if (settings.sinks != usual.sinks) name += fmt::format(" sinks={}", settings.sinks);
  if (settings.width != usual.width) name += fmt::format(" width={}", settings.width);
  if (settings.selection_per != usual.selection_per) name += " per key head";
  if (settings.head_budgets != usual.head_budgets) name += " equal budgets";
  return name;
}

std::string AttentionSpec::word() const {
  return kind == AttentionKind::baseline ? mechanism : value_text(kind);
}

std::string AttentionSpec::name() const {
  if (kind == AttentionKind::local) return "local only";
  if (kind == AttentionKind::summary) return summary_name(summary_of(0), m_by_layer, w_by_layer);
  std::string name = word();
  if (kind == AttentionKind::hard)
    name += fmt::format(" k={}{}", std::max(1, top_k), gate == HardGate::keep ? " keep" : "");
  const bool has_sinks = kind == AttentionKind::soft || kind == AttentionKind::hard;
  if (const Index sinks = summary.sinks.value_or(0); has_sinks && sinks > 0)
    name += fmt::format(" sinks={}", sinks);
  return name;
}

SummarySettings AttentionSpec::summary_of(Index layer) const {
  SummarySettings found;
  SummarySettings::visit_each(
      [](const char*, const char*, Range, auto& value, const auto& said) {
        if (said) value = *said;
      },
      found, summary);
  const auto of_layer = static_cast<std::size_t>(layer);
  if (!m_by_layer.empty()) found.num_selected_groups = m_by_layer[of_layer];
  if (!w_by_layer.empty()) found.local_window = w_by_layer[of_layer];
  return found;
}

AttentionSpec AttentionSpec::or_from(const FocusConfig& config) const {
  AttentionSpec all = *this;
  const AttentionSpec grouping = grouping_kind(config).attention_of(config);
  if (!all.balance) all.balance = grouping.balance.value_or(Balance::carried);
  if (kind == AttentionKind::hard) {
    all.top_k = std::max(1, top_k);
    if (!all.gate) all.gate = grouping.gate.value_or(HardGate::keep);
  }
  SummarySettings trained = config.summary;
  trained.local_window = config.local_window;
  trained.num_selected_groups = std::min<Index>(trained.num_selected_groups, config.num_groups);
  trained.head_budgets = grouping.summary.head_budgets.value_or(trained.head_budgets);
  // A number of groups to read says how they are selected, too.
  if (summary.num_selected_groups) trained.selection = GroupSelection::mass;
  if (kind != AttentionKind::summary) trained.sinks = grouping.summary.sinks.value_or(0);
  SummarySettings::visit_each(
      [](const char*, const char*, Range, auto& said, const auto& otherwise) {
        if (!said) said = otherwise;
      },
      all.summary, trained);
  if (all.summary.selection == GroupSelection::own) all.summary.num_selected_groups = 1;
  return all;
}

}  // namespace focus
