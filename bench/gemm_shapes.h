#pragma once

#include <array>
#include <string>

#include "autograd/base/types.h"

namespace focus::bench {

/// A product of [m, k] and [k, n].
struct GemmShape {
  Index m, k, n;
  double flops() const { return 2.0 * static_cast<double>(m * k * n); }
  std::string name() const {
    return std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n);
  }
};

/// GPT-2's projections, its MLP up and down and its output head at 1024 tokens; scores and values
/// of one attention head; scores at 4096 tokens.
inline constexpr std::array kGemmShapes = {
    GemmShape{1024, 768, 768},   GemmShape{1024, 768, 3072}, GemmShape{1024, 3072, 768},
    GemmShape{1024, 768, 50257}, GemmShape{1024, 64, 1024},  GemmShape{1024, 1024, 64},
    GemmShape{4096, 64, 4096},
};

}  // namespace focus::bench
