#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace focus {

/// A cache line, and the widest vector register.
inline constexpr std::size_t kAlignment = 64;

template <class T>
struct LineAllocator {
  using value_type = T;

  LineAllocator() = default;
  template <class Other>
  LineAllocator(const LineAllocator<Other>&) {}

  T* allocate(std::size_t n) {
    return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(kAlignment)));
  }
  void deallocate(T* pointer, std::size_t) {
    ::operator delete(pointer, std::align_val_t(kAlignment));
  }
  template <class Other>
  bool operator==(const LineAllocator<Other>&) const {
    return true;
  }
};

/// Begins where a cache line does. What kernels read as whole vectors lies so: a load that runs
/// from one line into the next counts as two.
template <class T>
using AlignedVector = std::vector<T, LineAllocator<T>>;

}  // namespace focus
