#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/files/durable_file.h"
#include "data/gguf/gguf.h"
#include "data/gguf/gguf_keys.h"

namespace focus {

/// A tensor of a GGUF file that is to be written; `shape` in PyTorch's order.
struct GgufTensor {
  std::string name;
  Shape shape;
  Dtype dtype = Dtype::f32;
};

/// GGML's number and name of a type that can be written: F32, F16, BF16, Q8_0. Throws
/// std::invalid_argument for another.
const GgmlType& ggml_type_of(Dtype dtype);

/// Writes one GGUF file of version 3, tensor by tensor, in the order announced; numbers are rounded
/// to the type of each. The file appears with commit(). Throws std::invalid_argument for a name
/// that llama.cpp does not take (empty, over 63 bytes, there twice), rows that are no whole blocks,
/// and a tensor that was not announced so; std::runtime_error where the disk refuses.
class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, const GgufKeys& keys,
             std::vector<GgufTensor> tensors);

  /// The next tensor.
  void add(const std::string& name, const Tensor& tensor);
  /// Reads the file back; what `verify` throws of it leaves no file.
  void commit(const std::function<void(const GgufSource&)>& verify = {});

 private:
  void pad(std::size_t bytes);

  DurableFile file_;
  FileWriter writer_;
  std::vector<GgufTensor> tensors_;
  std::size_t next_ = 0;
};

}  // namespace focus
