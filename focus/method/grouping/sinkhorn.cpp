#include "focus/method/grouping/sinkhorn.h"

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
  std::vector<double> max(chunks * groups, -std::numeric_limits<double>::infinity());
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

/// Rounds on Q = exp(L + u + b) itself, which each half of a round scales to sums of one: a
/// logarithm for each sum in place of an exponential for each entry. False where a sum is so small
/// that an entry which has become zero could count later; then the trace is not to be used.
bool scale_rounds(const double* logits, SinkhornTrace& trace) {
  constexpr double kLeast = 1e-100;
  const Index tokens = trace.tokens, groups = trace.groups, chunks = chunks_of(tokens);
  std::vector<double> top(groups, -std::numeric_limits<double>::infinity());
  for (Index i = 0; i < tokens; ++i)
    for (Index k = 0; k < groups; ++k) top[k] = std::max(top[k], logits[i * groups + k]);
  std::vector<double> q(tokens * groups);
  std::vector<double> partial(chunks * groups, 0.0);  // sums of groups
  parallel_chunks(tokens, kChunk, [&](Index begin, Index end) {
    double* sum = partial.data() + begin / kChunk * groups;
    for (Index i = begin; i < end; ++i)
      for (Index k = 0; k < groups; ++k)
        sum[k] += q[i * groups + k] = std::exp(logits[i * groups + k] - top[k]);
  });
  std::vector<double> least(chunks);  // sum of a token
  std::vector<double> factor(groups);
  for (Index n = 0; n < trace.rounds; ++n) {
    double* b = trace.b.data() + n * groups;
    for (Index k = 0; k < groups; ++k) {
      double sum = 0;
      for (Index c = 0; c < chunks; ++c) sum += partial[c * groups + k];
      if (!(sum >= kLeast)) return false;
      b[k] = (n == 0 ? -top[k] : b[k - groups]) - std::log(sum);
      factor[k] = 1 / sum;
    }
    const double* u_before = trace.u.data() + n * tokens;
    double* u = trace.u.data() + (n + 1) * tokens;
    parallel_chunks(tokens, kChunk, [&](Index begin, Index end) {
      double* sums = partial.data() + begin / kChunk * groups;
      std::fill_n(sums, groups, 0.0);
      double smallest = std::numeric_limits<double>::infinity();
      for (Index i = begin; i < end; ++i) {
        double* row = q.data() + i * groups;
        double sum = 0;
        for (Index k = 0; k < groups; ++k) sum += row[k] *= factor[k];
        smallest = std::min(smallest, sum);
        u[i] = u_before[i] - std::log(sum);
        for (Index k = 0; k < groups; ++k) sums[k] += row[k] /= sum;
      }
      least[begin / kChunk] = smallest;
    });
    if (!(std::ranges::min(least) >= kLeast)) return false;
  }
  return true;
}

}  // namespace

SinkhornTrace sinkhorn(const double* logits, Index tokens, Index groups, int rounds) {
  check(rounds >= 1 && tokens >= 1 && groups >= 1, "sinkhorn: {} rounds over {} tokens, {} groups",
        rounds, tokens, groups);
  SinkhornTrace trace{.tokens = tokens, .groups = groups, .rounds = rounds, .u = {}, .b = {}};
  trace.u.assign((rounds + 1) * tokens, 0.0);
  trace.b.assign(rounds * groups, 0.0);
  trace.scaled = scale_rounds(logits, trace);
  for (Index n = 0; !trace.scaled && n < rounds; ++n) {
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
  std::vector<double> d_u(tokens, 0.0);
  std::vector<double> partial(chunks * groups);
  const std::vector<double> ones(groups, 1.0);
  std::vector<double> b_factor(groups);
  // Q = exp(L + u + b) of one place in the rounds after the other, backwards: from the entries of
  // the place before, by the factors that lead there (null at the first), where forward went by
  // scaling them, too. The row of token i.
  std::vector<double> q(tokens * groups);
  const auto row_at = [&](Index i, double u, const double* b, double u_factor, const double* by) {
    double* row = q.data() + i * groups;
    for (Index k = 0; k < groups; ++k)
      row[k] = trace.scaled && by ? row[k] * u_factor * by[k]
                                  : std::exp(logits[i * groups + k] + u + b[k]);
    return row;
  };
  for (Index n = trace.rounds - 1; n >= 0; --n) {
    const double* b = trace.b.data() + n * groups;
    const double* u_before = trace.u.data() + n * tokens;
    const double* u_after = u_before + tokens;
    const bool first = n + 1 == trace.rounds;
    if (!first) {
      // u_i = -lse_k(L_ik + b_k): dL_ik and db_k both lose du_i r_ik, r_i = softmax_k(L_ik + b_k)
      std::ranges::fill(partial, 0.0);
      for (Index k = 0; k < groups; ++k) b_factor[k] = std::exp(b[k] - b[k + groups]);
      parallel_chunks(tokens, kChunk, [&](Index begin, Index end) {
        double* sum = partial.data() + begin / kChunk * groups;
        for (Index i = begin; i < end; ++i) {
          const double* row = row_at(i, u_after[i], b, 1, b_factor.data());
          for (Index k = 0; k < groups; ++k) {
            const double lost = d_u[i] * row[k];
            d_logits[i * groups + k] -= lost;
            sum[k] += lost;
          }
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
        const double* row =
            row_at(i, u_before[i], b, first ? 1 : std::exp(u_before[i] - u_after[i]),
                   first ? nullptr : ones.data());
        d_u[i] = 0;
        for (Index k = 0; k < groups; ++k) {
          const double lost = d_b[k] * row[k];
          d_logits[i * groups + k] -= lost;
          d_u[i] -= lost;
        }
      }
    });
  }
}

}  // namespace focus
