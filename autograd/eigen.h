#pragma once

#include <Eigen/Core>

// Eigen's matrices in our order.
namespace focus {

template <class T>
using RowMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

}  // namespace focus
