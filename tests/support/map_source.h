#pragma once

#include <map>
#include <string>
#include <utility>

#include "data/tensors/tensor_source.h"
#include "layers/weights.h"
#include "tests/support/compare.h"

namespace focus {

/// Named tensors in memory, stored in some type.
struct MapSource : TensorsInMemory {
  explicit MapSource(std::map<std::string, Tensor> tensors, Dtype dtype = kRealDtype)
      : TensorsInMemory("some/model", std::move(tensors), dtype) {}
};

/// The parameters of a decoder under their published names.
inline std::map<std::string, Tensor> published(Decoder& decoder) {
  std::map<std::string, Tensor> tensors;
  for_each_published(
      decoder, [](const Variable& p) { return p.value(); },
      [&](const std::string& name, const Tensor& tensor) { tensors[name] = tensor; });
  return tensors;
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
