#pragma once

#include <array>
#include <string_view>

#include "autograd/ops.h"
#include "focus/method/grouping/pair_counts.h"

namespace focus {

/// Whose weights select.
enum class OracleHeads {
  each,   // each query head's own
  shared  // summed over the query heads that share keys
};
constexpr auto enum_names(OracleHeads) { return std::array<std::string_view, 2>{"each", "shared"}; }

struct OracleConfig {
  Index tokens = 32;
  OracleHeads heads = OracleHeads::each;
  Index local_window = 32;
  Index sinks = 4;

  template <class F>
  void visit(F&& f) {
    f("tokens", tokens, "number of distant keys that a query reads", {0, 1 << 27});
    f("heads", heads,
      "each: keys of largest weight of each query head; shared: of all heads that share keys");
    f("local_window", local_window, "pairs with i - j <= local_window are always attended",
      {0, 1 << 27});
    f("sinks", sinks, "first tokens of a sequence (attention sinks), always attended",
      {0, 1 << 27});
  }
  void validate() const;
};

/// Shapes as attention(); not differentiable: throws where a gradient is wanted. `pairs`, where
/// given, receives what one head attended, added up over the sequences.
Variable oracle_attention(const Variable& q, const Variable& k, const Variable& v,
                          const AttentionOptions& options, const OracleConfig& config,
                          PairCounts* pairs = nullptr);

}  // namespace focus
