#pragma once

#include <algorithm>
#include <utility>

#include "autograd/base/aligned_vector.h"
#include "autograd/base/check.h"
#include "autograd/simd/block_kernels.h"
#include "autograd/simd/kernels.h"
#include "data/settings/config_values.h"
#include "data/settings/members.h"

namespace focus {

/// What a KV cache keeps its keys and values in: float16 halves what decoding reads of them. Of
/// q8_0 each 32 numbers of a token's key or value are integers of 8 bits with one scale, of a last
/// few the rest 0, and a query is rounded likewise before it meets the keys. q4 is for groups of
/// keys: a key is its group's centroid and what it differs by, in integers of 4 bits; values are in
/// q8_0.
enum class CacheDtype { float32, float16, q8_0, q4 };
/// Those of llama.cpp, and q4.
constexpr auto enum_names(CacheDtype) { return enum_list("f32", "f16", "q8_0", "q4"); }
constexpr std::string_view name_of(CacheDtype dtype) {
  return enum_names(dtype)[static_cast<std::size_t>(dtype)];
}

/// What a cache of one layer holds keys and values of.
struct CacheSizes {
  Index heads = 1, kv_heads = 1, head_dim = 1, groups = 1;
  void validate() const {
    check(kv_heads > 0 && heads % kv_heads == 0 && head_dim > 0,
          "cache: {} heads cannot share {} key heads of {}", heads, kv_heads, head_dim);
  }
};

constexpr bool is_in_blocks(CacheDtype dtype) {
  return dtype == CacheDtype::q8_0 || dtype == CacheDtype::q4;
}

/// The numbers of a row of so many in a cache: whole vectors or whole blocks.
inline Index padded_in_cache(CacheDtype dtype, Index n) {
  const Index blocks = (n + simd::kQ8Rounded - 1) / simd::kQ8Rounded;
  return is_in_blocks(dtype) ? blocks * simd::kQ8Rounded : simd::padded(simd::kernels(), n);
}

/// Rows of numbers that are rounded in blocks, to be multiplied with others in integers.
class Q8Queries {
 public:
  void round(Index rows, Index n, const Real* x);  // x [rows, n]
  /// For products with panels: the rows from that one on.
  simd::Q8Rows from(Index row) const {
    const Index block = row * depth_ / simd::kQ8Rounded;
    return {q_.data() + row * depth_, scales_.data() + block, nullptr, begins_.data() + block,
            depth_ / simd::kQ8Rounded};
  }
  /// For products with blocks: the first row.
  simd::Q8Row first() const { return {q_.data(), of_halves_.data(), of_halves_.data()}; }

 private:
  Index depth_ = 0;
  AlignedVector<std::int8_t> q_;
  AlignedVector<float> scales_, of_halves_;  // of a block; of each of its halves
  AlignedVector<std::int32_t> begins_;
};

/// Keys of 8 bits as columns of panels, so that all query rows meet simd::kQ8Panel of them at once.
class Q8Columns {
 public:
  Q8Columns() = default;
  /// Panels of zeros.
  Q8Columns(Index panels, Index head_dim);
  void visit(auto&& f) { FOCUS_MEMBERS(f, depth_, q_, scales_); }
  std::size_t bytes() const { return q_.capacity() + scales_.capacity() * sizeof(float); }
  void put(const Real* x, Index n, Index panel, Index column);
  /// c[m, kQ8Panel] = the queries' products with a panel's keys
  void multiply(Index m, const simd::Q8Rows& queries, Index panel, Real* c, Index ldc) const;

 private:
  Index depth_ = 0;
  AlignedVector<std::int8_t> q_;  // [panels, depth / 4, kQ8Panel, 4]
  AlignedVector<float> scales_;   // [panels, depth / kQ8Rounded, kQ8Panel]
};

/// Keys or values of a cache: float32, or rounded to float16 or to blocks (GGML's Q8_0; of q4
/// Q4_0). In blocks are rows alone, each of padded_in_cache() numbers.
class CacheNumbers {
  Index block_bytes() const { return simd::kQ8Rounded / (dtype_ == CacheDtype::q4 ? 2 : 1) + 2; }
  Index stored(Index n) const { return in_blocks() ? n / simd::kQ8Rounded * block_bytes() : n; }
  Index from_stored(Index n) const {
    return in_blocks() ? n / block_bytes() * simd::kQ8Rounded : n;
  }
  template <class Self, class F>
  static decltype(auto) in_use(Self& self, F&& f) {
    if (self.in_blocks()) return f(self.blocks_);
    return self.rounds() ? f(self.half_) : f(self.real_);
  }

 public:
  /// n zeros
  explicit CacheNumbers(CacheDtype dtype = CacheDtype::float32, Index n = 0) : dtype_(dtype) {
    resize(n);
  }
  void visit(auto&& f) { FOCUS_MEMBERS(f, dtype_, real_, half_, blocks_); }

  bool rounds() const { return dtype_ == CacheDtype::float16; }
  bool in_blocks() const { return is_in_blocks(dtype_); }
  Index size() const {
    return in_use(*this, [&](auto& numbers) { return from_stored(std::ssize(numbers)); });
  }
  Index capacity() const {
    return in_use(
        *this, [&](auto& numbers) { return from_stored(static_cast<Index>(numbers.capacity())); });
  }
  std::size_t bytes() const {
    return real_.capacity() * sizeof(Real) + half_.capacity() * sizeof(std::uint16_t) +
           blocks_.capacity();
  }
  void reserve(Index n) {
    in_use(*this, [&](auto& numbers) { numbers.reserve(stored(n)); });
  }
  /// New numbers are zeros.
  void resize(Index n) {
    in_use(*this, [&](auto& numbers) { numbers.resize(stored(n)); });
  }
  void drop_front(Index n) {
    in_use(*this,
           [&](auto& numbers) { numbers.erase(numbers.begin(), numbers.begin() + stored(n)); });
  }

  /// Writes x [n] from number `at` on, `stride` apart.
  void put(const Real* x, Index n, Index at, Index stride = 1) {
    if (in_blocks()) return put_blocks(x, n, at);
    if (!rounds()) {
      for (Index i = 0; i < n; ++i) real_[at + i * stride] = x[i];
      return;
    }
    std::array<std::uint16_t, 64> rounded;
    for (Index first = 0; first < n; first += std::ssize(rounded)) {
      const Index count = std::min<Index>(std::ssize(rounded), n - first);
      simd::kernels().round_f16(x + first, count, rounded.data());
      for (Index i = 0; i < count; ++i) half_[at + (first + i) * stride] = rounded[i];
    }
  }
  /// Where float32 numbers lie.
  Real* data() { return const_cast<Real*>(std::as_const(*this).data()); }
  const Real* data() const {
    check(dtype_ == CacheDtype::float32, "cache: rounded numbers do not lie as Real");
    return real_.data();
  }
  /// Numbers [first, first + n): where they lie, or widened in `wide`.
  const Real* read(Index first, Index n, AlignedVector<Real>& wide) const {
    if (!rounds() && !in_blocks()) return real_.data() + first;
    if (std::ssize(wide) < n) wide.resize(n);
    if (in_blocks())
      widen_blocks(first, n, wide.data());
    else
      simd::kernels().widen_f16(half_.data() + first, n, wide.data());
    return wide.data();
  }
  /// Where a matrix in panels begins, its rows and columns; or one that lies row by row, `stride`
  /// apart.
  struct Panels {
    Index at, rows, columns, stride = 0;
  };
  /// C[m, columns] (+)= A[m, depth] B, B the panels' rows from `first` on: Kernels::product_once.
  void multiply(Index m, Index columns, Index depth, const Real* a, Index a_row, Panels panels,
                Index first, Real* c, Index ldc, bool add) const {
    if (in_blocks())
      return multiply_blocks(m, columns, depth, a, a_row, panels, first, c, ldc, add);
    const simd::Kernels& kernels = simd::kernels();
    const auto product = [&](auto kernel, const auto& numbers) {
      kernel(m, columns, depth, a, a_row, 1,
             {numbers.data() + panels.at, panels.rows, panels.columns, 0, panels.stride}, first, c,
             ldc, {.any = add});
    };
    if (rounds())
      product(kernels.product_once_f16, half_);
    else
      product(kernels.product_once, real_);
  }
  /// The products of x [n] with `count` rows from number `at` on, `stride` apart.
  void dot_rows(const Real* x, Index count, Index at, Index stride, Index n, Real* sums) const {
    if (in_blocks()) return dot_blocks(x, count, at, stride, n, sums);
    const simd::Kernels& kernels = simd::kernels();
    if (rounds())
      kernels.dot_rows_f16(x, count, half_.data() + at, stride, n, sums);
    else
      kernels.dot_rows(x, count, real_.data() + at, stride, n, sums);
  }

 private:
  const simd::BlockKernels::Format& format() const;
  void put_blocks(const Real* x, Index n, Index at);
  void widen_blocks(Index first, Index n, Real* to) const;
  void multiply_blocks(Index m, Index columns, Index depth, const Real* a, Index a_row,
                       Panels panels, Index first, Real* c, Index ldc, bool add) const;
  void dot_blocks(const Real* x, Index count, Index at, Index stride, Index n, Real* sums) const;

  CacheDtype dtype_;
  AlignedVector<Real> real_;  // of these one is in use
  AlignedVector<std::uint16_t> half_;
  AlignedVector<std::uint8_t> blocks_;
};

}  // namespace focus
