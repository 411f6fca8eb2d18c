#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "autograd/base/random.h"
#include "autograd/variable.h"
#include "data/settings/members.h"
#include "focus/method/config.h"

namespace focus {

/// One layer's trainable routing, shared by all its heads, and the potentials it carries along.
struct FocusLayer {
  Variable projection;       // W_g [hidden_size, routing_dim]
  Variable centroids;        // C [num_groups, routing_dim]
  Tensor potentials;         // [num_groups], centred: what balance `carried` adds to the logits
  std::int64_t updates = 0;  // batches that have entered the potentials
  void visit(auto&& f) { FOCUS_MEMBERS(f, projection, centroids, potentials); }
};

/// W_g ~ normal(0, 1/hidden_size), C ~ normal(0, 1), potentials 0.
FocusLayer make_focus_layer(const FocusConfig& config, Index hidden_size, Rng& rng);

struct Routing {
  Variable assignments;  // g [batch, seq_len, num_groups]; rows sum to 1
  /// S / tau [batch, seq_len, num_groups] in double: what the potentials are estimated from.
  std::shared_ptr<const std::vector<double>> logits;
  /// b [sequences, num_groups]: sequence: as Sinkhorn left them, before centring; carried: the
  /// layer's.
  std::vector<double> potentials;
  /// The first tokens of the sequences, and the end: rows, or the documents of one row.
  std::vector<Index> starts;
  /// h W_g [tokens, routing_dim]: what centroids that do not follow a gradient follow.
  std::shared_ptr<const std::vector<double>> vectors = {};
};

/// The paper's section 2: S = (h W_g) Cᵀ, g_i = softmax_k(S_ik / tau + b_k), computed in double
/// (at tau = 0.1 a float's rounding of S would show in g). With stop_gradient h is a constant.
/// h [batch, seq_len, hidden_size]; `documents`, where not empty, are the first tokens of those
/// that its one row holds, and the end: each is balanced as a sequence of its own.
Routing route(const Variable& h, const FocusLayer& layer, const FocusConfig& config,
              Balance balance, std::span<const Index> documents = {});

/// Each token's k groups with the highest g as a bit set (bit g: group g) [batch * seq_len],
/// decided on log-assignments, which do not underflow; a tie goes to the lower group.
std::vector<std::uint64_t> membership(const Routing& routing, int top_k);

/// Each token's group of highest g, the first of equals [batch * seq_len].
std::vector<std::uint8_t> best_groups(const Routing& routing);

/// One moving-average step, of that rate, of the carried potentials towards the
/// centred_potentials() of a batch's tokens, without gradient. The very first batch sets them.
void absorb_potentials(FocusLayer& layer, std::span<const double> centred, double rate);
/// The groups' Sinkhorn potentials of logits [tokens, groups], their mean taken away [groups].
std::vector<double> centred_potentials(const std::vector<double>& logits, Index groups, int rounds);

}  // namespace focus
