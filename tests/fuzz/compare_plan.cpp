#include "focus/training/compare/compare_plan.h"

#include "tests/fuzz/harness.h"

/// The config of a comparison and, after a NUL byte, lines of overrides. Every run of a plan can be
/// run.
void focus::fuzz::try_input(std::string_view input) {
  const auto [text, lines] = split_input<2>(input);
  const std::vector<std::string> overrides = lines_of(lines);
  const auto read = [&, plan_text = text] {
    // A plan of many runs takes what its runs take.
    const AllocationLimit of_runs(std::size_t{1} << 30);
    const ComparePlan plan = read_compare_plan(plan_text, "compare.yaml", overrides);
    if (plan.runs.empty()) report("a plan without runs, and no error");
    for (const PlannedRun& run : plan.runs) {
      run.config.validate();
      if (run.name.empty()) report("a run without a name");
    }
  };
  run_loader(input.size(), read, {"compare.yaml", "override "});
}
