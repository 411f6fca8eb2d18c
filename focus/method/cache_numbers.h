#pragma once

#include <algorithm>
#include <utility>

#include "autograd/base/aligned_vector.h"
#include "autograd/base/check.h"
#include "autograd/simd/kernels.h"
#include "data/settings/config_values.h"

namespace focus {

/// What a KV cache keeps its keys and values in. float16 halves what decoding reads of them.
enum class CacheDtype { float32, float16 };
constexpr auto enum_names(CacheDtype) { return enum_list("float32", "float16"); }
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

/// Keys or values of a cache, float32 or rounded to float16.
class CacheNumbers {
 public:
  /// n zeros
  explicit CacheNumbers(CacheDtype dtype = CacheDtype::float32, Index n = 0) : dtype_(dtype) {
    resize(n);
  }

  bool rounds() const { return dtype_ == CacheDtype::float16; }
  Index size() const { return static_cast<Index>(rounds() ? half_.size() : real_.size()); }
  Index capacity() const {
    return static_cast<Index>(rounds() ? half_.capacity() : real_.capacity());
  }
  std::size_t bytes() const {
    return real_.capacity() * sizeof(Real) + half_.capacity() * sizeof(std::uint16_t);
  }
  void reserve(Index n) {
    in_use([n](auto& numbers) { numbers.reserve(n); });
  }
  /// New numbers are zeros.
  void resize(Index n) {
    in_use([n](auto& numbers) { numbers.resize(n); });
  }
  void drop_front(Index n) {
    in_use([n](auto& numbers) { numbers.erase(numbers.begin(), numbers.begin() + n); });
  }

  /// Writes x [n] from number `at` on, `stride` apart.
  void put(const Real* x, Index n, Index at, Index stride = 1) {
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
    check(!rounds(), "cache: rounded numbers do not lie as Real");
    return real_.data();
  }
  /// Numbers [first, first + n): where they lie, or widened in `wide`.
  const Real* read(Index first, Index n, AlignedVector<Real>& wide) const {
    if (!rounds()) return real_.data() + first;
    if (std::ssize(wide) < n) wide.resize(n);
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
    const simd::Kernels& kernels = simd::kernels();
    if (rounds())
      kernels.dot_rows_f16(x, count, half_.data() + at, stride, n, sums);
    else
      kernels.dot_rows(x, count, real_.data() + at, stride, n, sums);
  }

 private:
  template <class F>
  void in_use(F&& f) {
    if (rounds())
      f(half_);
    else
      f(real_);
  }
  CacheDtype dtype_;
  AlignedVector<Real> real_;  // of these one is in use
  AlignedVector<std::uint16_t> half_;
};

}  // namespace focus
