#pragma once

#include <vector>

#include "focus/evaluation/evaluation.h"

namespace focus {

/// Tokens with from to to - 1 tokens of their window before them.
struct PositionLoss {
  Index from = 1, to = 2;
  std::int64_t tokens = 0;
  double nats = 0;  // per token

  void visit(auto&& f) {
    Index last = to - 1;
    f("from", from);
    f("to", last);
    f("tokens", tokens);
    f("nats_per_token", nats);
    to = last + 1;
  }
};

/// Loss by how much stands before a token: 1, 2 to 3, 4 to 7 and so on, four buckets to each
/// doubling from 16 on. Buckets without a token are left out.
std::vector<PositionLoss> losses_by_position(const TokenLosses& losses);

}  // namespace focus
