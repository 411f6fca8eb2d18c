// Soft and hard attention whose products are of numbers rounded to bf16, by every kernel that this
// machine can run, against the composed twin in Real.
#include <gtest/gtest.h>

#include "autograd/simd/bf16_kernels.h"
#include "focus/method/attention/focus_attention.h"
#include "tests/support/attention_case.h"

namespace focus {
namespace {

constexpr double kBf16Tolerance = 2e-2;  // eight bits

/// Soft where no groups are selected, hard where they are.
FocusAttention rounded(const simd::Bf16Kernels* kernels) {
  return [kernels](const Variable& q, const Variable& k, const Variable& v, const Variable& g,
                   AttentionOptions options, const GateOptions& gate) {
    options.bf16 = kernels;
    return gate.membership.empty() ? gated_attention(q, k, v, g, options, gate)
                                   : sparse_attention(q, k, v, g, options, gate);
  };
}

TEST(RoundedAttention, StaysNearTheComposedForm) {
  for (const simd::Bf16Kernels* kernels : simd::usable_bf16_kernels())
    for (const int top_k : {0, 1, 2})
      for (const Gate gate : {Gate::affinity, Gate::logit})
        // One class order, many small ones, whose keys each task gathers, and a width that is odd.
        for (const auto& [seq_len, groups, head_dim] :
             {std::array<Index, 3>{131, 3, 20}, {700, 5, 16}, {400, 12, 7}})
          for (const Index sliding_window : {0, 250}) {
            const Case c{.batch = seq_len == 131 ? 2 : 1,
                         .seq_len = seq_len,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = head_dim,
                         .groups = groups,
                         .gate = gate,
                         .top_k = top_k,
                         .local_window = 17,
                         .sliding_window = sliding_window,
                         .dropout = groups == 3 && sliding_window > 0 ? 0.2 : 0};
            SCOPED_TRACE(kernels->name);
            const std::vector<Tensor> x = inputs_of(c);
            expect_twin(c, rounded(kernels), x, gate_of(c, x[3]), kBf16Tolerance);
          }
}

TEST(RoundedAttention, IsNotTheSameAsOfReal) {
  const Case c{.seq_len = 200, .head_dim = 16, .top_k = 1};
  const std::vector<Tensor> x = inputs_of(c);
  const auto out = [&](const simd::Bf16Kernels* kernels) {
    return rounded(kernels)(x[0], x[1], x[2], x[3], options_of(c), gate_of(c, x[3])).value();
  };
  for (const simd::Bf16Kernels* kernels : simd::usable_bf16_kernels()) {
    if (simd::kernels().vector % kernels->vector != 0) continue;  // these vectors do not fit
    EXPECT_FALSE(same_bits(out(kernels), out(nullptr))) << kernels->name;
  }
}

}  // namespace
}  // namespace focus
