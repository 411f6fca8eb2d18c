#include "focus/evaluation/attention_spec.h"

#include "focus/method/config.h"
#include "tests/fuzz/harness.h"

/// A word of `--attention`, and the settings of an adapter with groups of keys that it overrides.
void focus::fuzz::try_input(std::string_view input) {
  const std::string word(input);
  const auto read = [&] {
    const AttentionSpec spec = parse_attention(word, "--attention");
    if (spec.word().empty()) report("an attention without a name");
    if ((spec.kind == AttentionKind::baseline) != spec.settings.has_value())
      report("settings of no mechanism, or a mechanism without them");
    if (spec.kind != AttentionKind::summary) return;
    FocusConfig config;
    config.grouping.name = "keys";
    const auto all = spec.or_from(config).summary;
    for (const auto& number : {all.num_selected_groups, all.local_window, all.sinks})
      if (!number || *number < 0) report("a summary without a number of groups or tokens");
    if (!all.block || *all.block < 1) report("a block of no queries");
    if (!all.width || !(*all.width >= 0 && *all.width <= 1)) report("a width that is none");
    if (!all.selection || !all.selection_per || !all.head_budgets || !all.unselected_groups)
      report("a summary with something left open");
  };
  run_loader(input.size(), read, {"--attention"});
}
