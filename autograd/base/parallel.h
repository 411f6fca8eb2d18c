#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "autograd/base/types.h"

namespace focus {

/// The first exception that work on several threads ends with: one that left a parallel region
/// would end the process.
class FirstException {
 public:
  template <class F>
  void run(F&& f) noexcept {
    if (thrown_.load(std::memory_order_relaxed)) return;
    try {
      f();
    } catch (...) {
      if (!thrown_.exchange(true)) exception_ = std::current_exception();
    }
  }
  /// Throws it again, when all threads are done.
  void rethrow() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::atomic<bool> thrown_ = false;
  std::exception_ptr exception_;
};

/// Calls f(begin, end) for consecutive chunks of `chunk` items of [0, n), on all threads. The
/// chunks do not depend on the number of threads: a body that only writes what belongs to its own
/// items gives the same bits for any of them. What the body throws (scratch memory that is not to
/// be had) is thrown here, once; chunks that had not begun by then are not run.
template <class F>
void parallel_chunks(Index n, Index chunk, F&& f) {
  const Index chunks = (n + chunk - 1) / chunk;
  if (chunks == 1 || omp_in_parallel()) {
    for (Index c = 0; c < chunks; ++c) f(c * chunk, std::min(n, (c + 1) * chunk));
    return;
  }
  FirstException first;
#pragma omp parallel for schedule(dynamic)
  for (Index c = 0; c < chunks; ++c) first.run([&] { f(c * chunk, std::min(n, (c + 1) * chunk)); });
  first.rethrow();
}

/// Items of an elementwise pass that are worth a chunk of their own.
inline constexpr Index kElementChunk = 16384;

/// Rows of `cols` numbers in a chunk of about kElementChunk numbers.
inline Index rows_per_chunk(Index cols) {
  return std::max<Index>(1, kElementChunk / std::max<Index>(1, cols));
}

}  // namespace focus
