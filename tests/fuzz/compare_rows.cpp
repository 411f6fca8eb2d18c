#include "data/settings/struct_json.h"
#include "focus/training/compare/compare_report.h"
#include "tests/fuzz/harness.h"

/// The rows of a comparison, compare.jsonl: read, and put into every form.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const fuzz::MemoryFile input({data, size});
  ComparedRows rows;
  const auto load = [&] { rows = read_compared_rows(input.path()); };
  if (!fuzz::run_loader(size, load, {input.path().string()})) return 0;
  rows_csv(structs_to_json(rows.texts));
  rows_csv(structs_to_json(rows.recall));
  compare_table(rows);
  compare_page({.title = "page"}, rows, {});
  return 0;
}
