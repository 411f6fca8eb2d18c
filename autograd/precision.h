#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace focus {

/// How matrices are multiplied; sums and everything between products are float32. A further
/// precision is a line here and a case in frozen_matrix.cpp; no op and no layer knows them.
enum class Precision {
  float32,  // as they are stored, widened exactly
  bf16,     // frozen weights and, where the processor is faster by it, both operands of every
            // product are rounded to bf16; trained weights stay float32
            // (Weight::multiply_in_bf16)
  q8,  // frozen weights lie in GGML's blocks: as stored, or rounded to Q8_0; what they multiply
       // is rounded to int8 (q8.h), with AMX many rows to bf16; backward as in float32
};
constexpr auto enum_names(Precision) {
  return std::array<std::string_view, 3>{"float32", "bf16", "q8"};
}
constexpr std::string_view name_of(Precision precision) {
  return enum_names(precision)[static_cast<std::size_t>(precision)];
}

}  // namespace focus
