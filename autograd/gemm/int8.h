#pragma once

#include <memory>
#include <string>

#include "autograd/gemm/matrix_view.h"

namespace focus {

/// A matrix rounded to int8, in memory of its own: number (i, j) is q scales[i], where scales[i] is
/// the largest magnitude of row i over 127 and q the nearest integer, ties to even. A row is an
/// output channel of a linear, or a token of an embedding; one of zeros has the scale 0.
struct Int8Matrix {
  MatrixView view;                    // its rows one after the other
  std::shared_ptr<const void> owner;  // of numbers and scales
};

/// Throws std::invalid_argument, naming the row and the weight (empty: "matrix"), where a number is
/// NaN or infinite: no scale could hold it beside the others. Bits do not depend on threads.
Int8Matrix rounded_to_int8(const MatrixView& from, const std::string& name = "");

}  // namespace focus
