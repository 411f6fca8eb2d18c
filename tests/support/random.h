#pragma once

#include "autograd/base/random.h"
#include "autograd/simd/kernels.h"
#include "autograd/variable.h"

namespace focus {

/// Standard normal numbers, the same for the same seed.
inline Tensor randn(const Shape& shape, std::uint64_t seed, double scale = 1) {
  Rng rng(seed);
  Tensor tensor(shape);
  for (Real& x : tensor.span()) x = static_cast<Real>(scale * rng.normal());
  return tensor;
}

/// Uniform in [low, high).
inline Tensor uniform(const Shape& shape, std::uint64_t seed, double low, double high) {
  Rng rng(seed);
  Tensor tensor(shape);
  for (Real& x : tensor.span()) x = static_cast<Real>(low + (high - low) * rng.uniform());
  return tensor;
}

/// Token ids below `vocab`.
inline std::vector<std::int32_t> random_ids(std::size_t count, std::int32_t vocab,
                                            std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::int32_t> ids(count);
  for (auto& id : ids) id = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab)));
  return ids;
}

/// Rounded to numbers of 16 bits and back.
inline Tensor through_float16(const Tensor& x) {
  std::vector<std::uint16_t> rounded(x.size());
  Tensor wide(x.shape());
  simd::kernels().round_f16(x.data(), x.size(), rounded.data());
  simd::kernels().widen_f16(rounded.data(), x.size(), wide.data());
  return wide;
}

}  // namespace focus
