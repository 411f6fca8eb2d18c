#include "data/settings/struct_json.h"
#include "focus/evaluation/report/compare_report.h"
#include "tests/fuzz/harness.h"

/// The rows of a comparison, compare.jsonl: read, and put into every form.
/// Rows that make no table are a std::invalid_argument, which the command turns into its line.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const fuzz::MemoryFile input({data, size});
  ComparedRows rows;
  const auto load = [&] { rows = read_compared_rows(input.path()); };
  if (!fuzz::run_loader(size, load, {input.path().string()})) return 0;
  try {
    rows.for_each_kind([](const auto& kind) { rows_csv(structs_to_json(kind)); });
    compare_table(rows);
    compare_page({.title = "page"}, rows, {});
  } catch (const std::invalid_argument&) {
  } catch (const std::runtime_error&) {  // a row of a version that did not say the kind
  }
  return 0;
}
