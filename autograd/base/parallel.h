#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/base/thread_budget.h"
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

/// Calls body(thread, first) on `threads` threads, more than one, and throws here what `first` has
/// caught.
template <class F>
void on_threads(int threads, F&& body) {
  FirstException first;
#pragma omp parallel num_threads(threads)
  body(omp_get_thread_num(), first);
  first.rethrow();
}

/// Calls f(begin, end) for consecutive chunks of `chunk` items of [0, n), on all threads that the
/// machine has free. The chunks do not depend on the number of threads: a body that only writes
/// what belongs to its own items gives the same bits for any of them. What the body throws (scratch
/// memory that is not to be had) is thrown here, once; chunks that had not begun by then are not
/// run.
template <class F>
void parallel_chunks(Index n, Index chunk, F&& f) {
  const Index chunks = (n + chunk - 1) / chunk;
  const auto work = [&](Index c) { f(c * chunk, std::min(n, (c + 1) * chunk)); };
  const int threads = region_threads(chunks);
  if (threads == 1) {
    for (Index c = 0; c < chunks; ++c) work(c);
    return;
  }
  std::atomic<Index> next = 0;
  on_threads(threads, [&](int, FirstException& first) {
    for (Index c; (c = next.fetch_add(1, std::memory_order_relaxed)) < chunks;)
      first.run([&] { work(c); });
  });
}

/// The chunks that a thread has yet to do, of a run of its own: it takes them from the front, and
/// threads that are done take them from the back.
class RunOfChunks {
 public:
  void set(Index first, Index end) {
    left_ = static_cast<std::uint64_t>(end) << 32 | static_cast<std::uint64_t>(first);
  }
  Index size() const { return size_of(left_.load(std::memory_order_relaxed)); }
  /// The number of a chunk; none where none is left.
  std::optional<Index> take_first() {
    return take([](std::uint64_t left) { return std::pair(left & kLow, left + 1); });
  }
  std::optional<Index> take_last() {
    return take([](std::uint64_t left) { return std::pair((left >> 32) - 1, left - kLow - 1); });
  }

 private:
  static constexpr std::uint64_t kLow = 0xffffffff;
  static Index size_of(std::uint64_t left) {
    return static_cast<Index>(left >> 32) - static_cast<Index>(left & kLow);
  }
  template <class Split>
  std::optional<Index> take(Split&& split) {
    std::uint64_t left = left_.load(std::memory_order_relaxed);
    while (size_of(left) > 0) {
      const auto [taken, rest] = split(left);
      if (left_.compare_exchange_weak(left, rest, std::memory_order_relaxed))
        return static_cast<Index>(taken);
    }
    return {};
  }

  // The number after the last and that of the first, in a cache line of its own.
  alignas(64) std::atomic<std::uint64_t> left_ = 0;
};

/// parallel_chunks() for a pass over memory: each thread goes through a long run of it, for by
/// short ones in turn two threads are slower than one, and then helps at the ends of the others'.
template <class F>
void parallel_runs(Index n, Index chunk, F&& f) {
  const Index chunks = (n + chunk - 1) / chunk;
  const auto work = [&](Index c) { f(c * chunk, std::min(n, (c + 1) * chunk)); };
  const int threads = region_threads(chunks);
  if (threads == 1) {
    for (Index c = 0; c < chunks; ++c) work(c);
    return;
  }
  std::vector<RunOfChunks> runs(threads);
  for (Index t = 0; t < threads; ++t) runs[t].set(chunks * t / threads, chunks * (t + 1) / threads);
  on_threads(threads, [&](int thread, FirstException& first) {
    RunOfChunks& own = runs[thread];
    while (const auto c = own.take_first()) first.run([&] { work(*c); });
    for (;;) {
      RunOfChunks& longest = *std::ranges::max_element(runs, {}, &RunOfChunks::size);
      if (longest.size() == 0) break;
      if (const auto c = longest.take_last()) first.run([&] { work(*c); });
    }
  });
}

/// Items of an elementwise pass that are worth a chunk of their own.
inline constexpr Index kElementChunk = 16384;

/// Rows of `cols` numbers in a chunk of about kElementChunk numbers.
inline Index rows_per_chunk(Index cols) {
  return std::max<Index>(1, kElementChunk / std::max<Index>(1, cols));
}

}  // namespace focus
