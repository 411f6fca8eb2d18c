#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace focus {

/// What a model's matrices are multiplied in. float32 reads them in whatever they are stored,
/// widened exactly. bf16 is for frozen ones alone: both operands of a product rounded to bf16, sums
/// and everything else in float32.
enum class Compute { float32, bf16 };
constexpr auto enum_names(Compute) { return std::array<std::string_view, 2>{"float32", "bf16"}; }
constexpr std::string_view name_of(Compute compute) {
  return enum_names(compute)[static_cast<std::size_t>(compute)];
}

/// What becomes of a model that is loaded.
enum class WeightUse {
  frozen,     // matrices stay where and in what they are stored, mapped where that can be
  trainable,  // all of it is read into memory of its own, in float32
};

}  // namespace focus
