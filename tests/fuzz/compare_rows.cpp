#include "data/settings/struct_json.h"
#include "focus/evaluation/report/compare_plan.h"
#include "focus/evaluation/report/compare_report.h"
#include "tests/fuzz/harness.h"

/// The rows of a comparison, compare.jsonl: read, held against a claim, and put into every form.
/// Rows that make no table are a std::invalid_argument, which the command turns into its line.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  static const ComparePlan plan = read_compare_plan(
      "common: {method: scratch, tokenizer: bytes, data: {train: [a]}}\n"
      "runs: [{name: a}, {name: b}]\n"
      "eval: {texts: {target: [b], source: [c]}}\n"
      "claims:\n"
      "  - {claim: one, less: {run: a, attention: dense}, than: {run: b, attention: dense}}\n"
      "  - {claim: two, less: {run: a, attention: dense}, than: {run: a, attention: soft}, on: "
      "source, figure: kept_far}\n",
      "plan", {});
  const fuzz::MemoryFile input({data, size});
  ComparedRows rows;
  const auto load = [&] { rows = read_compared_rows(input.path()); };
  if (!fuzz::run_loader(size, load, {input.path().string()})) return 0;
  try {
    const auto claims = claim_outcomes(plan.claims, rows);
    if (claims.size() != plan.claims.size()) fuzz::report("a claim is lost");
    rows.for_each_kind([](const auto& kind) { rows_csv(structs_to_json(kind)); });
    rows_jsonl(structs_to_json(claims));
    compare_table(rows, claims);
    compare_page({.title = "page"}, rows, claims, {});
  } catch (const std::invalid_argument&) {
  } catch (const std::runtime_error&) {  // a row of a version that did not say the kind
  }
  return 0;
}
