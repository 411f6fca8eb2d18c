#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace focus {

/// What a model's matrices are stored and multiplied in. bf16 is for frozen ones alone: half the
/// memory, both operands of a product rounded to bf16, sums and everything else in float32.
enum class Compute { float32, bf16 };
constexpr auto enum_names(Compute) { return std::array<std::string_view, 2>{"float32", "bf16"}; }
constexpr std::string_view name_of(Compute compute) {
  return enum_names(compute)[static_cast<std::size_t>(compute)];
}

}  // namespace focus
