#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/files/durable_file.h"

// A run's metrics.jsonl: what training measured, one JSON object a line.
namespace focus {

/// Records of a metrics file, one JSON object per line. A torn last line, as a crash leaves it, is
/// left out, and all from a line with a zero byte on, as a power cut leaves it; any other
/// unreadable line throws std::runtime_error with path and line.
std::vector<nlohmann::ordered_json> read_metrics(const std::filesystem::path& path);

/// Median of tokens_per_second: a pause between two parts of a run leaves it alone. 0 without one.
double median_rate(const std::vector<nlohmann::ordered_json>& records);

/// A file's JSON object, or null where it is missing or does not hold one.
nlohmann::ordered_json read_json_object(const std::filesystem::path& file);
/// The last line of a log: the message of a program that has ended with an error.
std::string last_line_of(const std::filesystem::path& log);

/// A metrics file being written, a line per record.
class MetricsFile {
 public:
  /// Without `resume_step` a new, empty file replaces an old one. With it the records whose "step"
  /// is at most that are kept, as are those without a step, and the rest is dropped; the file is
  /// replaced whole or not at all. Throws std::runtime_error where it cannot be written.
  explicit MetricsFile(const std::filesystem::path& path,
                       std::optional<std::int64_t> resume_step = std::nullopt);

  /// Appends the record and flushes it. NaN and infinity become null.
  void write(const nlohmann::ordered_json& record);
  /// What has been written stays when the power fails.
  void sync() const { sync_to_disk(path_); }

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace focus
