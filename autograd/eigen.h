#pragma once

#include <Eigen/Core>

#include "autograd/tensor.h"

// Eigen views of our buffers, for the ops' bodies.
namespace focus {

template <class T>
using RowMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ArrayMap = Eigen::Map<Eigen::Array<Real, Eigen::Dynamic, 1>>;
using ConstArrayMap = Eigen::Map<const Eigen::Array<Real, Eigen::Dynamic, 1>>;

inline ArrayMap array(Real* data, Index size) { return {data, size}; }
inline ConstArrayMap array(const Real* data, Index size) { return {data, size}; }

}  // namespace focus
