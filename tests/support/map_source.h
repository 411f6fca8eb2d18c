#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/tensors/tensor_source.h"
#include "tests/support/compare.h"

namespace focus {

/// Named tensors in memory, stored in some type.
class MapSource : public TensorSource {
 public:
  explicit MapSource(std::map<std::string, Tensor> tensors, Dtype dtype = kRealDtype)
      : tensors_(std::move(tensors)), dtype_(dtype) {
    for (const auto& [name, tensor] : tensors_)
      infos_.push_back({name,
                        {tensor.shape().dims().begin(), tensor.shape().dims().end()},
                        dtype,
                        name_of(dtype)});
  }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  void read_raw(std::string_view name, std::vector<std::byte>& bytes) const override {
    pack(tensors_.at(std::string(name)).span(), dtype_, bytes);
  }
  std::string describe() const override { return "some/model"; }

 private:
  std::map<std::string, Tensor> tensors_;
  Dtype dtype_;
  std::vector<TensorInfo> infos_;
};

}  // namespace focus
