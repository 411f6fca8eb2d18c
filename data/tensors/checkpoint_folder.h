#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace focus {

/// The checkpoints of one run: step_000120.h5 and so on, and a small text file `latest` that names
/// one of them. Throws std::runtime_error where the disk refuses.
class CheckpointFolder {
 public:
  /// Makes the folder where it is missing and removes what a killed run left half written. `keep`
  /// is how many of the newest checkpoints stay, at least 1.
  CheckpointFolder(std::filesystem::path folder, int keep);

  const std::filesystem::path& path() const { return folder_; }
  /// Where the checkpoint of a step belongs; write it with StoreWriter.
  std::filesystem::path path_for(std::int64_t step) const;
  /// After the checkpoint of `step` is committed: names it in `latest` and removes the older ones
  /// beyond `keep`.
  void publish(std::int64_t step);

  /// The checkpoint to resume from: the one that `latest` names, or, where that file or the
  /// checkpoint is missing or damaged, the newest that opens and verifies. Nothing for a folder
  /// without checkpoints; throws where there are some and none can be read.
  std::optional<std::filesystem::path> latest() const;

 private:
  std::filesystem::path folder_;
  int keep_;
};

/// The file that a run of focus train left in its folder: model.h5, focus.h5, lora.h5. Another path
/// as it is. Throws std::runtime_error for the folder of a run that is not finished, and for one
/// that holds the results of two.
std::filesystem::path result_of_run(const std::filesystem::path& path);

}  // namespace focus
