#include "focus/routing/sinkhorn.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"

namespace focus {
namespace {

/// Tokens of a partial sum: fixed, so that the order of additions never changes.
constexpr Index kChunk = 256;

Index chunks_of(Index tokens) { return (tokens + kChunk - 1) / kChunk; }

/// b_k = -log sum_i exp(L_ik + u_i)
void group_step(const double* logits, const double* u, Index tokens, Index groups, double* b) {
  const Index chunks = chunks_of(tokens);
  std::vector<double> max(static_cast<std::size_t>(chunks * groups),
                          -std::numeric_limits<double>::infinity());
  std::vector<double> sum(max.size(), 0.0);
  parallel_chunks(tokens, kChunk, [&](Index begin, Index end) {
    double* chunk_max = max.data() + begin / kChunk * groups;
    double* chunk_sum = sum.data() + begin / kChunk * groups;
    for (Index i = begin; i < end; ++i)
      for (Index k = 0; k < groups; ++k)
        chunk_max[k] = std::max(chunk_max[k], logits[i * groups + k] + u[i]);
    for (Index i = begin; i < end; ++i)
      for (Index k = 0; k < groups; ++k)
        chunk_sum[k] += std::exp(logits[i * groups + k] + u[i] - chunk_max[k]);
  });
  for (Index k = 0; k < groups; ++k) {
    double top = -std::numeric_limits<double>::infinity(), total = 0;
    for (Index c = 0; c < chunks; ++c) top = std::max(top, max[c * groups + k]);
    for (Index c = 0; c < chunks; ++c)
      total += sum[c * groups + k] * std::exp(max[c * groups + k] - top);
    b[k] = -(top + std::log(total));
  }
}

/// u_i = -log sum_k exp(L_ik + b_k)
void token_step(const double* logits, const double* b, Index tokens, Index groups, double* u) {
  parallel_chunks(tokens, kChunk, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const double* row = logits + i * groups;
      double top = -std::numeric_limits<double>::infinity(), total = 0;
      for (Index k = 0; k < groups; ++k) top = std::max(top, row[k] + b[k]);
      for (Index k = 0; k < groups; ++k) total += std::exp(row[k] + b[k] - top);
      u[i] = -(top + std::log(total));
    }
  });
}

}  // namespace

SinkhornTrace sinkhorn(const double* logits, Index tokens, Index groups, int rounds) {
  check(rounds >= 1 && tokens >= 1 && groups >= 1, "sinkhorn: {} rounds over {} tokens, {} groups",
        rounds, tokens, groups);
  SinkhornTrace trace{tokens, groups, rounds, {}, {}};
  trace.u.assign(static_cast<std::size_t>((rounds + 1) * tokens), 0.0);
  trace.b.assign(static_cast<std::size_t>(rounds * groups), 0.0);
  for (Index n = 0; n < rounds; ++n) {
    double* b = trace.b.data() + n * groups;
    group_step(logits, trace.u.data() + n * tokens, tokens, groups, b);
    token_step(logits, b, tokens, groups, trace.u.data() + (n + 1) * tokens);
  }
  return trace;
}

void sinkhorn_backward(const double* logits, const SinkhornTrace& trace, const double* d_potentials,
                       double* d_logits) {
  const Index tokens = trace.tokens, groups = trace.groups, chunks = chunks_of(tokens);
  std::vector<double> d_b(d_potentials, d_potentials + groups);
  std::vector<double> d_u(static_cast<std::size_t>(tokens), 0.0);
  std::vector<double> partial(static_cast<std::size_t>(chunks * groups));
  for (Index n = trace.rounds - 1; n >= 0; --n) {
    const double* b = trace.b.data() + n * groups;
    const double* u_before = trace.u.data() + n * tokens;
    const double* u_after = u_before + tokens;
    if (n + 1 < trace.rounds) {
      // u_i = -lse_k(L_ik + b_k): dL_ik and db_k both lose du_i r_ik, r_i = softmax_k(L_ik + b_k)
      std::ranges::fill(partial, 0.0);
      parallel_chunks(tokens, kChunk, [&](Index begin, Index end) {
        double* sum = partial.data() + begin / kChunk * groups;
        for (Index i = begin; i < end; ++i)
          for (Index k = 0; k < groups; ++k) {
            const double lost = d_u[i] * std::exp(logits[i * groups + k] + b[k] + u_after[i]);
            d_logits[i * groups + k] -= lost;
            sum[k] += lost;
          }
      });
      for (Index k = 0; k < groups; ++k) {
        d_b[k] = 0;
        for (Index c = 0; c < chunks; ++c) d_b[k] -= partial[c * groups + k];
      }
    }
    // b_k = -lse_i(L_ik + u_i): dL_ik and du_i both lose db_k c_ik, c_k = softmax_i(L_ik + u_i)
    parallel_chunks(tokens, kChunk, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        d_u[i] = 0;
        for (Index k = 0; k < groups; ++k) {
          const double lost = d_b[k] * std::exp(logits[i * groups + k] + u_before[i] + b[k]);
          d_logits[i * groups + k] -= lost;
          d_u[i] -= lost;
        }
      }
    });
  }
}

}  // namespace focus
