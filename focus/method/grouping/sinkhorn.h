#pragma once

#include <vector>

#include "autograd/tensor.h"

// The differentiable Sinkhorn of the paper's section 2, in double precision: on Q's entries, or on
// their logarithms where the entries would underflow.
//
// Q_ik = exp(L_ik + u_i + b_k) for logits L = S / tau. A round is
//     b_k = -log sum_i exp(L_ik + u_i)     (equalises the groups' mass)
//     u_i = -log sum_k exp(L_ik + b_k)     (each token's assignment sums to 1)
// so that after the last one g_i = softmax_k(L_ik + b_k): all that a token takes from the others
// is b.
namespace focus {

/// What the rounds went through, for backward.
struct SinkhornTrace {
  Index tokens = 0, groups = 0;
  int rounds = 0;
  std::vector<double> u;  // [rounds + 1, tokens]; row 0 is the zero it starts from
  std::vector<double> b;  // [rounds, groups]
  bool scaled = false;    // by Q's entries; else, where they would underflow, by their logarithms
  /// The groups' log-potentials [groups] after the last round.
  const double* potentials() const { return b.data() + (rounds - 1) * groups; }
};

/// logits [tokens, groups]; rounds >= 1.
SinkhornTrace sinkhorn(const double* logits, Index tokens, Index groups, int rounds);

/// Adds to d_logits [tokens, groups] the gradient through the potentials, given theirs [groups].
void sinkhorn_backward(const double* logits, const SinkhornTrace& trace, const double* d_potentials,
                       double* d_logits);

}  // namespace focus
