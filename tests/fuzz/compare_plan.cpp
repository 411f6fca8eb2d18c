#include "focus/training/compare/compare_plan.h"

#include "tests/fuzz/harness.h"

/// The config of a comparison and, after a NUL byte, lines of overrides. Every run of a plan can be
/// run.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const auto [text, lines] = fuzz::split_input<2>({data, size});
  const std::vector<std::string> overrides = fuzz::lines_of(lines);
  const auto read = [&, plan_text = text] {
    // A plan of many runs takes what its runs take.
    const fuzz::AllocationLimit of_runs(std::size_t{1} << 30);
    const ComparePlan plan = read_compare_plan(plan_text, "compare.yaml", overrides);
    if (plan.runs.empty()) fuzz::report("a plan without runs, and no error");
    for (const PlannedRun& run : plan.runs) {
      run.config.validate();
      if (run.name.empty()) fuzz::report("a run without a name");
    }
  };
  fuzz::run_loader(size, read, {"compare.yaml", "override "});
  return 0;
}
