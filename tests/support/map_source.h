#pragma once

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/files/tensor_source.h"
#include "tests/support/compare.h"

namespace focus {

/// Named tensors in memory.
class MapSource : public TensorSource {
 public:
  explicit MapSource(std::map<std::string, Tensor> tensors) : tensors_(std::move(tensors)) {
    for (const auto& [name, tensor] : tensors_)
      infos_.push_back({name,
                        {tensor.shape().dims().begin(), tensor.shape().dims().end()},
                        kRealIsDouble ? Dtype::f64 : Dtype::f32,
                        kRealIsDouble ? "F64" : "F32"});
  }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  void read_raw(std::string_view name, std::vector<std::byte>& bytes) const override {
    const Tensor& tensor = tensors_.at(std::string(name));
    bytes.resize(tensor.span().size_bytes());
    std::memcpy(bytes.data(), tensor.data(), bytes.size());
  }
  std::string describe() const override { return "some/model"; }

 private:
  std::map<std::string, Tensor> tensors_;
  std::vector<TensorInfo> infos_;
};

}  // namespace focus
