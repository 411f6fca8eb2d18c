#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/files/durable_file.h"
#include "data/tensors/tensor_source.h"

namespace focus {

/// Writes one safetensors file tensor by tensor, in the order announced, all in one type; numbers
/// are rounded to it. The file appears with commit(). Throws std::invalid_argument for a name that
/// is empty, reserved, not UTF-8 or there twice and for a tensor that was not announced so,
/// std::runtime_error where the disk refuses.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path,
                    std::vector<std::pair<std::string, Shape>> tensors, Dtype dtype,
                    const std::map<std::string, std::string>& metadata = {});

  /// The next tensor.
  void add(const std::string& name, const Tensor& tensor);
  /// True once all have been added.
  bool complete() const { return next_ == tensors_.size(); }
  void commit();

 private:
  DurableFile file_;
  FileWriter writer_;
  std::vector<std::pair<std::string, Shape>> tensors_;
  Dtype dtype_;
  std::size_t next_ = 0;
};

}  // namespace focus
