#include "data/tensors/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/tensors/store.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kSuffix = ".h5";

std::string file_name(std::int64_t step) {
  return fmt::format("{}{:06}{}", kPrefix, step, kSuffix);
}

/// The step of "step_000120.h5"; nothing for any other name.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return {};
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(),
                                            name.data() + name.size() - kSuffix.size(), step);
  if (error != std::errc() || step < 0 || file_name(step) != name) return {};
  return step;
}

/// The steps that are there, newest first.
std::map<std::int64_t, fs::path, std::greater<>> find_steps(const fs::path& folder) {
  std::map<std::int64_t, fs::path, std::greater<>> steps;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) fail_reading("list", folder, error.value());
  for (const fs::directory_entry& entry : entries) {
    if (const auto step = step_of(entry.path().filename().string())) steps[*step] = entry.path();
  }
  return steps;
}

/// The step that a pointer file names, where it names one.
std::optional<std::int64_t> read_pointer(const fs::path& path) {
  if (!fs::is_regular_file(path)) return std::nullopt;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return step_of(line);
}

}  // namespace

CheckpointFolder::CheckpointFolder(fs::path folder, int keep)
    : folder_(std::move(folder)), keep_(keep) {
  check(keep >= 1, "{}: at least 1 checkpoint must be kept, got {}", folder_.string(), keep);
  make_folder_durably(folder_);
  sweep_orphans(folder_);
}

fs::path CheckpointFolder::path_for(std::int64_t step) const {
  check(step >= 0, "{}: it has no step {}", folder_.string(), step);
  return folder_ / file_name(step);
}

void CheckpointFolder::publish(std::int64_t step) {
  check(fs::exists(path_for(step)), "{}: commit it before publishing", path_for(step).string());
  write_file_durably(folder_ / "latest", file_name(step) + "\n");
  int kept = 0;
  for (const auto& [other, path] : find_steps(folder_)) {
    // Newer ones come from a run that was taken up again at an earlier step: not ours to judge.
    if (other > step || ++kept <= keep_) continue;
    std::error_code error;
    if (!fs::remove(path, error) && error) fail_writing("remove", path, error.value());
  }
}

std::optional<fs::path> CheckpointFolder::latest() const {
  const auto steps = find_steps(folder_);
  std::string problem;
  const auto is_sound = [&](const fs::path& path) {
    try {
      StoreReader(path).verify();
      return true;
    } catch (const std::runtime_error& error) {
      if (problem.empty()) problem = error.what();
      return false;
    }
  };
  const std::optional<std::int64_t> named = read_pointer(folder_ / "latest");
  if (named && steps.contains(*named) && is_sound(steps.at(*named))) return steps.at(*named);
  for (const auto& [step, path] : steps) {
    if (step != named && is_sound(path)) return path;
  }
  if (steps.empty()) return {};
  fail("{}: none of its {} checkpoints can be read: {}", folder_.string(), steps.size(), problem);
}

fs::path result_of_run(const fs::path& path) {
  if (!fs::exists(path / "config.yaml") || !fs::exists(path / "metrics.jsonl")) return path;
  fs::path result;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() != ".h5") continue;
    if (!result.empty())
      fail("{}: holds the results of two runs, {} and {}; name one", path.string(),
           std::min(result, entry.path()).string(), std::max(result, entry.path()).string());
    result = entry.path();
  }
  if (!result.empty()) return result;
  fail("{}: a run that is not finished; focus train with --resume finishes it", path.string());
}

}  // namespace focus
