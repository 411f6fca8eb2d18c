#include "autograd/tensor.h"

#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

#include "autograd/base/aligned_vector.h"
#include "autograd/base/check.h"

#ifdef __SANITIZE_ADDRESS__  // GCC's way to say it
#define FOCUS_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FOCUS_ADDRESS_SANITIZER
#endif
#endif
#ifdef FOCUS_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace focus {
namespace {

/// Large buffers want large pages: rows of one head lie a page apart, and the tables of small pages
/// do not hold that many.
constexpr std::size_t kLargePage = 2 << 20;

std::size_t whole_pages(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  return (bytes + kPage - 1) / kPage * kPage;
}

/// At a large page's start, and no more address space than that takes: `ulimit -d` counts what is
/// not touched too, so malloc's rounding would refuse a third more than is needed.
void* allocate_large(std::size_t bytes) {
  const std::size_t size = whole_pages(bytes);
  void* mapped =
      mmap(nullptr, size + kLargePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(mapped);
  const std::size_t before =
      (kLargePage - reinterpret_cast<std::uintptr_t>(begin) % kLargePage) % kLargePage;
  if (before > 0) munmap(begin, before);
  if (before < kLargePage) munmap(begin + before + size, kLargePage - before);
  madvise(begin + before, size / kLargePage * kLargePage, MADV_HUGEPAGE);
  return begin + before;
}

void* allocate(std::size_t bytes) {
  return bytes < kLargePage ? std::aligned_alloc(kAlignment, bytes) : allocate_large(bytes);
}

void deallocate(void* pointer, std::size_t bytes) {
  if (bytes < kLargePage)
    std::free(pointer);
  else
    munmap(pointer, whole_pages(bytes));
}

/// To the sanitizer a buffer in the pool is freed memory.
void mark_free([[maybe_unused]] void* pointer, [[maybe_unused]] std::size_t bytes) {
#ifdef FOCUS_ADDRESS_SANITIZER
  ASAN_POISON_MEMORY_REGION(pointer, bytes);
#endif
}
void mark_used([[maybe_unused]] void* pointer, [[maybe_unused]] std::size_t bytes) {
#ifdef FOCUS_ADDRESS_SANITIZER
  ASAN_UNPOISON_MEMORY_REGION(pointer, bytes);
#endif
}

/// Free buffers by size. One for the process; never destroyed, since tensors with static lifetime
/// may give their buffers back after it would be.
class Pool {
 public:
  static Pool& instance() {
    static Pool& pool = *new Pool;
    return pool;
  }

  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    stats_.live += bytes;
    stats_.peak = std::max(stats_.peak, stats_.live);
    if (const auto it = free_.find(bytes); it != free_.end() && !it->second.empty()) {
      void* pointer = it->second.back();
      it->second.pop_back();
      mark_used(pointer, bytes);
      return pointer;
    }
    void* pointer = allocate(bytes);
    if (pointer == nullptr) {
      stats_.live -= bytes;
      throw std::bad_alloc();
    }
    stats_.reserved += bytes;
    ++stats_.allocations;
    return pointer;
  }

  void give(void* pointer, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    stats_.live -= bytes;
    mark_free(pointer, bytes);
    free_[bytes].push_back(pointer);
  }

  void trim() {
    const std::lock_guard lock(mutex_);
    for (auto& [bytes, pointers] : free_) {
      stats_.reserved -= bytes * pointers.size();
      for (void* pointer : pointers) {
        mark_used(pointer, bytes);
        deallocate(pointer, bytes);
      }
    }
    free_.clear();
  }

  PoolStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak = stats_.live;
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  PoolStats stats_;
};

/// Sizes are rounded up to four classes per power of two, so that a last, shorter batch can reuse
/// the buffers of the batches before it.
std::size_t rounded(std::size_t bytes) {
  if (bytes <= 256) return 256;
  const std::size_t step = std::max<std::size_t>(kAlignment, std::bit_floor(bytes) / 4);
  return (bytes + step - 1) / step * step;
}

}  // namespace

Shape::Shape(std::initializer_list<Index> dims) : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const Index> dims) : rank_(static_cast<int>(dims.size())) {
  check(dims.size() <= dims_.size(), "shape: at most {} dimensions, got {}", dims_.size(),
        dims.size());
  for (const Index dim : dims)
    check(dim >= 0, "shape: negative dimension in [{}]", fmt::join(dims, ", "));
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

Index Shape::size() const {
  Index size = 1;
  for (const Index dim : dims()) size *= dim;
  return size;
}

Shape Shape::with(int i, Index dim) const {
  Shape shape = *this;
  shape.dims_[i < 0 ? rank_ + i : i] = dim;
  return shape;
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(dims(), other.dims());
}

std::string Shape::str() const { return fmt::format("[{}]", fmt::join(dims(), ", ")); }

Tensor::Tensor(const Shape& shape) : shape_(shape), size_(shape.size()) {
  buffer_ = std::static_pointer_cast<Real[]>(
      pooled_buffer(static_cast<std::size_t>(size_) * sizeof(Real)));
}

Tensor Tensor::zeros(const Shape& shape) { return full(shape, 0); }

Tensor Tensor::full(const Shape& shape, Real value) {
  Tensor tensor(shape);
  tensor.fill(value);
  return tensor;
}

Tensor Tensor::from(const Shape& shape, std::span<const Real> values) {
  check(shape.size() == static_cast<Index>(values.size()), "tensor: {} values do not fill {}",
        values.size(), shape);
  Tensor tensor(shape);
  std::ranges::copy(values, tensor.data());
  return tensor;
}

Tensor Tensor::reshape(const Shape& shape) const {
  check(shape.size() == size_, "reshape: {} does not fit {}", shape_, shape);
  Tensor tensor = *this;
  tensor.shape_ = shape;
  return tensor;
}

Tensor Tensor::clone() const { return from(shape_, span()); }

void Tensor::fill(Real value) { std::ranges::fill(span(), value); }

std::shared_ptr<void> pooled_buffer(std::size_t bytes) {
  const std::size_t taken = rounded(bytes);
  return {Pool::instance().take(taken), [taken](void* p) { Pool::instance().give(p, taken); }};
}

PoolStats pool_stats() { return Pool::instance().stats(); }
void reset_pool_peak() { Pool::instance().reset_peak(); }
void trim_pool() { Pool::instance().trim(); }

}  // namespace focus
