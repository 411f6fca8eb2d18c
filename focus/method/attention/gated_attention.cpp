#include "focus/method/attention/gated_attention.h"

#include "autograd/base/check.h"
#include "focus/method/attention/focus_rule.h"
#include "focus/method/documents.h"

namespace focus {

Variable gated_attention(const Variable& q, const Variable& k, const Variable& v, const Variable& g,
                         const AttentionOptions& options, const GateOptions& gate) {
  check(g.shape().rank() == 3 && q.shape().rank() == 4 && g.dim(0) == q.dim(0) &&
            g.dim(1) == q.dim(1),
        "gated_attention: g {} does not fit q {}", g.shape(), q.shape());
  check(gate.membership.empty(),
        "gated_attention: got membership sets; hard attention is sparse_attention");
  if (!gate.gated) return attention(q, k, v, options);
  const std::shared_ptr<const ScoreRule> rule =
      focus_rule(g.value(), gate, g.requires_grad(), documents_of(options));
  return attention_with_rule("gated_attention", q, k, v, g, options, rule);
}

}  // namespace focus
