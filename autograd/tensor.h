#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/base/types.h"

namespace focus {

/// Up to five dimensions, outermost first: [batch, seq_len, hidden_size].
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Index> dims);
  explicit Shape(std::span<const Index> dims);

  int rank() const { return rank_; }
  Index size() const;
  /// Negative indices count from the end, as in Python.
  Index operator[](int i) const { return dims_[i < 0 ? rank_ + i : i]; }
  std::span<const Index> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  /// The same shape with dimension i replaced.
  Shape with(int i, Index dim) const;
  bool operator==(const Shape& other) const;
  std::string str() const;  // "[2, 3, 4]"

 private:
  std::array<Index, 5> dims_{};
  int rank_ = 0;
};

/// A contiguous row-major buffer with a shape; copies share the buffer. Seen by the ops as a matrix
/// of (everything else) x (last dimension). Buffers come from a pool: freeing one and asking for
/// the same size again costs no allocation.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(const Shape& shape);  // contents undefined
  static Tensor zeros(const Shape& shape);
  static Tensor full(const Shape& shape, Real value);
  static Tensor from(const Shape& shape, std::span<const Real> values);

  bool defined() const { return buffer_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  Index dim(int i) const { return shape_[i]; }
  Index size() const { return size_; }
  Index cols() const { return rank() == 0 ? 1 : shape_[-1]; }
  Index rows() const { return cols() == 0 ? 0 : size_ / cols(); }

  Real* data() { return buffer_.get(); }
  const Real* data() const { return buffer_.get(); }
  std::span<Real> span() { return {data(), static_cast<std::size_t>(size_)}; }
  std::span<const Real> span() const { return {data(), static_cast<std::size_t>(size_)}; }
  Real operator[](Index i) const { return buffer_.get()[i]; }

  /// The same buffer under another shape of the same size.
  Tensor reshape(const Shape& shape) const;
  Tensor clone() const;
  void fill(Real value);
  /// True where no other tensor shares this buffer, so that it may be written in place.
  bool unique() const { return buffer_.use_count() == 1; }

 private:
  std::shared_ptr<Real[]> buffer_;
  Shape shape_;
  Index size_ = 0;
};

/// Memory from the pool for what is no tensor; contents undefined.
std::shared_ptr<void> pooled_buffer(std::size_t bytes);

/// What the pool holds, in bytes. `live` is what tensors hold now; the difference of two readings
/// around a forward pass is what the graph keeps for backward.
struct PoolStats {
  std::size_t live = 0;         // held by tensors and other buffers
  std::size_t peak = 0;         // the most that was ever live since reset_pool_peak()
  std::size_t reserved = 0;     // live plus free buffers kept for reuse
  std::size_t allocations = 0;  // times the pool had to ask the system
};
PoolStats pool_stats();
void reset_pool_peak();
/// Gives the free buffers back to the system.
void trim_pool();

}  // namespace focus

template <>
struct fmt::formatter<focus::Shape> : fmt::formatter<std::string> {
  auto format(const focus::Shape& shape, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(shape.str(), context);
  }
};
