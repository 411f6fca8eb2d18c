#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "autograd/ops.h"
#include "tests/support/random.h"

// Cases of plain causal attention. (Those of Focus are in attention_case.h.)
namespace focus {

struct DenseCase {
  Index batch, seq_len, heads, kv_heads, head_dim;
  double softcap = 0;
  Index window = 0;
  double dropout = 0;

  std::string str() const {
    return fmt::format("T {} heads {}/{} head_dim {} softcap {} window {} dropout {}", seq_len,
                       heads, kv_heads, head_dim, softcap, window, dropout);
  }
};

inline std::vector<Tensor> inputs_of(const DenseCase& c) {
  return {randn({c.batch, c.seq_len, c.heads, c.head_dim}, 1),
          randn({c.batch, c.seq_len, c.kv_heads, c.head_dim}, 2),
          randn({c.batch, c.seq_len, c.kv_heads, c.head_dim}, 3)};
}
inline AttentionOptions options_of(const DenseCase& c) {
  return {.scale = Real(0.4),
          .softcap = static_cast<Real>(c.softcap),
          .sliding_window = c.window,
          .dropout = c.dropout,
          .dropout_key = 5};
}

}  // namespace focus
