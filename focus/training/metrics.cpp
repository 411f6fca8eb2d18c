#include "focus/training/metrics.h"

#include <sstream>

#include "autograd/base/check.h"
#include "autograd/machine.h"
#include "data/files/input_file.h"
#include "data/files/json_reader.h"

namespace focus {
namespace {

/// Null, or discarded, where it is no JSON. What lies deeper than any record of ours is left out:
/// to write such a thing again takes a call for each level.
nlohmann::ordered_json parse_record(std::string_view text) {
  constexpr int kDeepest = 64;
  const auto keep = [](int depth, auto, const auto&) { return depth < kDeepest; };
  return nlohmann::ordered_json::parse(text, keep, /*allow_exceptions=*/false);
}

}  // namespace

std::vector<nlohmann::ordered_json> read_metrics(const std::filesystem::path& path) {
  std::istringstream file(read_file(path));
  std::vector<nlohmann::ordered_json> records;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find('\0') != std::string::npos) break;
    auto record = parse_record(line);
    if (record.is_object()) {
      records.push_back(std::move(record));
    } else if (file.peek() != std::istringstream::traits_type::eof()) {
      fail("{}:{}: expected one JSON object per line, got something else; move the file away",
           path.string(), number);
    }
  }
  return records;
}

nlohmann::ordered_json read_json_object(const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file)) return nullptr;
  auto json = parse_record(read_file(file));
  return json.is_object() ? json : nlohmann::ordered_json(nullptr);
}

std::string last_line_of(const std::filesystem::path& log) {
  if (!std::filesystem::is_regular_file(log)) return "";
  std::ifstream stream(log);
  std::string last;
  for (std::string line; std::getline(stream, line);)
    if (!line.empty()) last = line;
  return last;
}

double median_rate(const std::vector<nlohmann::ordered_json>& records) {
  std::vector<double> rates;
  for (const auto& record : records)
    if (record.contains("tokens_per_second") && record["tokens_per_second"].is_number())
      rates.push_back(record["tokens_per_second"].get<double>());
  return rates.empty() ? 0 : median(rates);
}

MetricsFile::MetricsFile(const std::filesystem::path& path, std::optional<std::int64_t> resume_step)
    : path_(path) {
  std::string kept;
  if (resume_step && std::filesystem::exists(path)) {
    for (const auto& record : read_metrics(path)) {
      const auto step = record.find("step");
      const bool later = step != record.end() && step->is_number_integer() &&
                         step->get<std::int64_t>() > *resume_step;
      if (!later) kept += json_text(record) + '\n';
    }
  }
  write_file_durably(path, std::string_view(kept));
  file_.open(path, std::ios::app);
  if (!file_) fail("{}: cannot be opened for writing", path.string());
}

void MetricsFile::write(const nlohmann::ordered_json& record) {
  file_ << json_text(record) << '\n' << std::flush;
  if (!file_)
    fail("{}: a record could not be written: check that the disk is not full", path_.string());
}

}  // namespace focus
