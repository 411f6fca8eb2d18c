#pragma once

#include "autograd/ops.h"
#include "focus/method/grouping/pair_counts.h"

namespace focus {

struct MobaConfig {
  Index blocks = 2;
  Index block_size = 64;

  template <class F>
  void visit(F&& f) {
    f("blocks", blocks, "blocks that a query reads in addition to its own", {0, 1 << 27});
    f("block_size", block_size, "positions per block", {1, 1 << 27});
  }
  void validate() const;
};

/// Shapes as attention(); not differentiable: throws where a gradient is wanted. `pairs`, where
/// given, receives what one head attended (the mean of the heads), added up over the sequences.
Variable moba_attention(const Variable& q, const Variable& k, const Variable& v,
                        const AttentionOptions& options, const MobaConfig& config,
                        PairCounts* pairs = nullptr);

}  // namespace focus
