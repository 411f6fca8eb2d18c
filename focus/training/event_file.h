#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/files/message_writer.h"

namespace focus {

/// TensorBoard's record of a run: the same figures as in metrics.jsonl. TensorBoard reads all such
/// files of a folder; what those before say of steps behind this one's first no longer counts.
class EventFile {
 public:
  /// A new file in that folder, which TensorBoard knows by its name. Throws std::runtime_error
  /// where it cannot be written.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);

  /// The numbers of a record under their names, at its "step"; lists are left out.
  void write(const nlohmann::ordered_json& record);

 private:
  /// Adds time and step to what an event holds.
  void write_event(std::int64_t step, MessageWriter& what);

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace focus
