#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/durable_file.h"
#include "data/tensors/tensor_source.h"

namespace focus {

/// A tensor of a file that is to be written; `shape` in PyTorch's order.
struct AnnouncedTensor {
  std::string name;
  Shape shape;
  Dtype dtype = Dtype::f32;
};

/// Writes one file tensor by tensor, in the order announced; numbers are rounded to the type of
/// each. The file appears with commit(). Throws std::invalid_argument for a tensor that was not
/// announced so, std::runtime_error where the disk refuses.
class TensorFileWriter {
 public:
  /// The next tensor.
  void add(const std::string& name, const Tensor& tensor);
  /// True once all have been added.
  bool complete() const { return next_ == tensors_.size(); }

 protected:
  /// `head` precedes the tensors, each of which ends at a multiple of `alignment` bytes.
  TensorFileWriter(const std::filesystem::path& path, std::string_view head,
                   std::vector<AnnouncedTensor> tensors, std::size_t alignment);
  /// What `verify` throws of the file leaves none.
  void commit(const std::function<void(const std::filesystem::path&)>& verify);

 private:
  DurableFile file_;
  FileWriter writer_;
  std::vector<AnnouncedTensor> tensors_;
  std::size_t alignment_, next_ = 0;
};

/// Bytes from `bytes` to the next multiple of `alignment`.
inline std::size_t padding_after(std::size_t bytes, std::size_t alignment) {
  return (alignment - bytes % alignment) % alignment;
}

}  // namespace focus
