#include <algorithm>
#include <filesystem>
#include <optional>

#include "autograd/base/check.h"
#include "data/gguf/gguf.h"
#include "focus/evaluation/statistics/groups_report.h"

namespace focus {
namespace {

bool is_whole_model(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return std::filesystem::exists(path / "config.json");
  return is_gguf(path) || StoreReader(path).has("/model");
}

}  // namespace

void check_other_groups(const LoadedModel& model, const std::string& path) {
  if (!std::filesystem::exists(path)) fail("{}: no such file or folder", path);
  const bool whole = is_whole_model(path);
  const std::optional<SavedFocus> saved =
      whole ? open_model(path).focus() : open_focus(std::filesystem::path(path));
  if (!saved) fail("{}: has no groups", path);
  const auto layers = static_cast<Index>(model.decoder->layers().size());
  if (saved->shape.num_layers != layers)
    fail("{}: {} layers, but {} has {}; only models with the same number of layers can be compared",
         path, saved->shape.num_layers, model.where, layers);
  if (!whole) read_focus(*saved, model.fingerprint(), model.where);
}

std::vector<GroupAssignments> other_groupings(const BasePlace& place, const std::string& path,
                                              const GroupsReport& report,
                                              const ShareDone& progress) {
  const bool whole = is_whole_model(path);
  LoadedModel other = load_model(whole ? path : place.base, place.tokenizer, place.precision);
  if (!whole) load_adapter(path, other);
  other.where = path;  // for messages
  check_other_groups(other, path);
  if (other.require_tokenizer().fingerprint() != report.tokenizer)
    fail(
        "{}: its tokenizer differs from that of {}; only groups of the same tokens can be compared",
        path, report.model);
  const ActiveAttention active(other, own_attention(other));
  return collect_groupings(*other.decoder, *other.focus(), report.text, progress);
}

std::vector<std::string> expand_checkpoints(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  for (const std::string& path : paths) {
    const auto folder = std::filesystem::path(path) / "checkpoints";
    if (!std::filesystem::is_directory(folder)) {
      all.push_back(path);
      continue;
    }
    const auto first = static_cast<std::ptrdiff_t>(all.size());
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".h5") all.push_back(entry.path().string());
    std::sort(all.begin() + first, all.end());
  }
  if (!paths.empty() && all.size() < 2)
    fail("{}: expected at least two checkpoints, such as those of a run with checkpoint_keep=100",
         paths.front());
  return all;
}

}  // namespace focus
