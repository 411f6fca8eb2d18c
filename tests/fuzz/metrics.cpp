#include "focus/training/metrics.h"

#include "data/files/input_file.h"
#include "tests/fuzz/harness.h"
#include "tests/support/temp_folder.h"

/// A run's metrics.jsonl: read, and gone on with from step 3, which keeps what came up to then.
void focus::fuzz::try_input(std::string_view input) {
  static const TempFolder folder;
  const std::filesystem::path path = folder / "metrics.jsonl";
  write_text(path, std::string(input));
  run_loader(input.size(), [&] { read_json_object(path); });
  std::size_t records = 0;
  const auto read = [&] {
    const auto all = read_metrics(path);
    records = all.size();
    median_rate(all);
  };
  if (!run_loader(input.size(), read, {path.string()})) return;
  run_loader(input.size(), [&] { MetricsFile(path, 3); });
  const auto kept = read_metrics(path);
  if (kept.size() > records) report("more records than before");
  for (const auto& record : kept)
    if (record.contains("step") && record["step"].is_number_integer() &&
        record["step"].get<std::int64_t>() > 3)
      report("a later record was kept");
  const std::string once = read_file(path);
  MetricsFile(path, 3);
  if (read_file(path) != once) report("the second reading keeps others than the first");
}
