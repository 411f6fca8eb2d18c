#pragma once

#include <omp.h>

#include <algorithm>

#include "autograd/tensor.h"

namespace focus {

/// Calls f(begin, end) for consecutive chunks of `chunk` items of [0, n), on all threads. The
/// chunks do not depend on the number of threads: a body that only writes what belongs to its own
/// items gives the same bits for any of them. The body must not throw.
template <class F>
void parallel_chunks(Index n, Index chunk, F&& f) {
  const Index chunks = (n + chunk - 1) / chunk;
  if (chunks == 1 || omp_in_parallel()) {
    for (Index c = 0; c < chunks; ++c) f(c * chunk, std::min(n, (c + 1) * chunk));
    return;
  }
#pragma omp parallel for schedule(dynamic)
  for (Index c = 0; c < chunks; ++c) f(c * chunk, std::min(n, (c + 1) * chunk));
}

/// Items of an elementwise pass that are worth a chunk of their own.
inline constexpr Index kElementChunk = 16384;

/// Rows of `cols` numbers in a chunk of about kElementChunk numbers.
inline Index rows_per_chunk(Index cols) {
  return std::max<Index>(1, kElementChunk / std::max<Index>(1, cols));
}

}  // namespace focus
