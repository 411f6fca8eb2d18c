#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "autograd/gemm/frozen_matrix.h"

namespace focus {

/// What a model's matrices are multiplied in. float32 reads them in whatever they are stored,
/// widened exactly. In the others sums and everything else are in float32, too: bf16 rounds frozen
/// weights and, where the processor is faster by it, both operands of every product, those of
/// attention and of weights that are trained too, which stay in float32 themselves
/// (Weight::multiply_in_bf16). For frozen ones alone: bf16x3 splits both into two bf16 numbers,
/// with errors near float32's, where the machine is faster by it, and is float32 elsewhere; int8
/// rounds the matrix once, to 8 bits with a scale for each row, and multiplies in float32; w8a8
/// does the same to each token that the matrix multiplies, and multiplies integers, on the way back
/// as int8 does; q8 leaves a matrix in GGML's blocks as it is and rounds what it multiplies to
/// int8, 32 numbers with a scale, on the way back as float32 does, and is float32 with other
/// matrices.
enum class Precision { float32, bf16, bf16x3, int8, w8a8, q8 };
constexpr auto enum_names(Precision) {
  return std::array<std::string_view, 6>{"float32", "bf16", "bf16x3", "int8", "w8a8", "q8"};
}
constexpr std::string_view name_of(Precision precision) {
  return enum_names(precision)[static_cast<std::size_t>(precision)];
}

/// The form of frozen matrices that is for each, in the order of Compute.
inline constexpr std::array kFormOfPrecision = {MatrixForm::real,   MatrixForm::bf16,
                                                MatrixForm::bf16x3, MatrixForm::int8,
                                                MatrixForm::w8a8,   MatrixForm::q8};
constexpr MatrixForm form_of(Precision precision) {
  return kFormOfPrecision[static_cast<std::size_t>(precision)];
}
/// Of a weight's form; without one it is multiplied in float32.
constexpr Precision precision_of(std::optional<MatrixForm> form) {
  const auto found = std::ranges::find(kFormOfPrecision, form.value_or(MatrixForm::real));
  return static_cast<Precision>(found - kFormOfPrecision.begin());
}

/// What becomes of a model that is loaded.
enum class WeightUse {
  frozen,     // matrices stay where and in what they are stored, mapped where that can be
  trainable,  // all of it is read into memory of its own, in float32
};

}  // namespace focus
