#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/tensors/tensor_source.h"
#include "layers/weights.h"
#include "tests/support/compare.h"

namespace focus {

/// Named tensors in memory, stored in some type.
class MapSource : public TensorSource {
 public:
  explicit MapSource(std::map<std::string, Tensor> tensors, Dtype dtype = kRealDtype)
      : TensorSource("some/model"), numbers_(std::move(tensors)) {
    std::vector<TensorInfo> infos;
    for (const auto& [name, tensor] : numbers_) {
      const auto dims = tensor.shape().dims();
      infos.push_back({.name = name,
                       .shape = {dims.begin(), dims.end()},
                       .dtype = dtype,
                       .stored_as = name_of(dtype),
                       .bytes = bytes_of(dtype, tensor.size())});
    }
    set_tensors(std::move(infos));
  }

 private:
  void read_bytes(const TensorInfo& info, std::span<std::byte> out) const override {
    std::vector<std::byte> bytes;
    pack(numbers_.at(info.name).span(), info.dtype, bytes);
    std::ranges::copy(bytes, out.begin());
  }

  std::map<std::string, Tensor> numbers_;
};

/// The parameters of a decoder under their published names.
inline std::map<std::string, Tensor> published(Decoder& decoder) {
  std::map<std::string, Tensor> tensors;
  for_each_published(
      decoder, [](const Variable& p) { return p.value(); },
      [&](const std::string& name, const Tensor& tensor) { tensors[name] = tensor; });
  return tensors;
}

/// The same of parameters that are read one by one.
inline void stream(const ModelConfig& config, const TensorSource& source,
                   const PublishedFunction& f) {
  Publisher<Tensor> publisher(config, f);
  for_each_stored(config, source, [&](const StoredParameter& p) {
    Tensor numbers(p.shape);
    p.read(numbers);
    publisher.add(p.name, numbers);
  });
}

inline void expect_same_weights(Decoder& a, Decoder& b) {
  std::map<std::string, Tensor> expected;
  for_each_parameter(a, [&](const std::string& name, Variable& p) { expected[name] = p.value(); });
  std::size_t compared = 0;
  for_each_parameter(b, [&](const std::string& name, Variable& p) {
    EXPECT_TRUE(same_bits(p.value(), expected.at(name))) << name;
    ++compared;
  });
  EXPECT_EQ(compared, expected.size());
}

}  // namespace focus
