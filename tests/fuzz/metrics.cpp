#include "focus/training/metrics.h"

#include <fstream>

#include "data/files/input_file.h"
#include "tests/fuzz/harness.h"
#include "tests/support/temp_folder.h"

/// A run's metrics.jsonl: read, and gone on with from step 3, which keeps what came up to then.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  static const TempFolder folder;
  const std::filesystem::path path = folder / "metrics.jsonl";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  fuzz::run_loader(size, [&] { read_json_object(path); });
  std::size_t records = 0;
  const auto read = [&] {
    const auto all = read_metrics(path);
    records = all.size();
    median_rate(all);
  };
  if (!fuzz::run_loader(size, read, {path.string()})) return 0;
  fuzz::run_loader(size, [&] { MetricsFile(path, 3); });
  const auto kept = read_metrics(path);
  if (kept.size() > records) fuzz::report("more records than before");
  for (const auto& record : kept)
    if (record.contains("step") && record["step"].is_number_integer() &&
        record["step"].get<std::int64_t>() > 3)
      fuzz::report("a later record was kept");
  const std::string once = read_file(path);
  MetricsFile(path, 3);
  if (read_file(path) != once) fuzz::report("the second reading keeps others than the first");
  return 0;
}
