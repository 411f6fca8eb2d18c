#include "focus/evaluation/attention_spec.h"

#include "focus/method/config.h"
#include "tests/fuzz/harness.h"

/// A word of `--attention`, and the settings of an adapter with groups of keys that it overrides.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const std::string word(reinterpret_cast<const char*>(data), size);
  const auto read = [&] {
    const AttentionSpec spec = parse_attention(word, "--attention");
    if (spec.word().empty()) fuzz::report("an attention without a name");
    if ((spec.kind == AttentionKind::baseline) != spec.settings.has_value())
      fuzz::report("settings of no mechanism, or a mechanism without them");
    if (spec.kind != AttentionKind::summary) return;
    FocusConfig config;
    config.grouping.name = "keys";
    const auto all = spec.or_from(config).summary;
    for (const auto& number : {all.num_selected_groups, all.local_window, all.sinks})
      if (!number || *number < 0) fuzz::report("a summary without a number of groups or tokens");
    if (!all.block || *all.block < 1) fuzz::report("a block of no queries");
    if (!all.width || !(*all.width >= 0 && *all.width <= 1)) fuzz::report("a width that is none");
    if (!all.selection || !all.selection_per || !all.head_budgets || !all.unselected_groups)
      fuzz::report("a summary with something left open");
  };
  fuzz::run_loader(size, read, {"--attention"});
  return 0;
}
