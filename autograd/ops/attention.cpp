#include <algorithm>

#include "autograd/attention/tiled_attention.h"
#include "autograd/base/check.h"

namespace focus {
namespace {

AttentionPlan plan_of(const Variable& q, const AttentionOptions& options) {
  if (!options.documents) return causal_plan(q.dim(0), q.dim(1), options.sliding_window);
  const std::vector<Index>& starts = *options.documents;
  check(q.dim(0) == 1 && starts.size() >= 2 && starts.front() == 0 && starts.back() == q.dim(1) &&
            std::ranges::is_sorted(starts, std::less_equal()),
        "attention: document offsets in one row must increase from 0 to its {} tokens, the rows "
        "are {}",
        q.dim(1), q.dim(0));
  return document_plan(starts, options.sliding_window);
}

}  // namespace

Variable attention_with_rule(const char* op, const Variable& q, const Variable& k,
                             const Variable& v, const Variable& rule_input,
                             const AttentionOptions& options,
                             std::shared_ptr<const ScoreRule> rule) {
  const AttentionInputs inputs{q.value(), k.value(), v.value(), options};
  check_attention_inputs(inputs);
  const auto plan = std::make_shared<const AttentionPlan>(plan_of(q, options));
  const AttentionResult result = tiled_attention(inputs, *plan, rule.get());
  return Variable::from_op(
      op, result.out, {q, k, v, rule_input},
      [inputs, plan, result, rule, rule_shape = rule_input.shape()](const Tensor& d_out,
                                                                    Grads grads) {
        const WantedGradients wanted{grads[0].wanted(), grads[1].wanted(), grads[2].wanted()};
        const AttentionGradients d =
            tiled_attention_backward(inputs, *plan, result, d_out, rule.get(), wanted);
        if (wanted.q) grads[0].add(d.q);
        if (wanted.k) grads[1].add(d.k);
        if (wanted.v) grads[2].add(d.v);
        if (grads[3].wanted()) grads[3].add(d.rule.reshape(rule_shape));
      });
}

Variable attention(const Variable& q, const Variable& k, const Variable& v,
                   const AttentionOptions& options) {
  return attention_with_rule("attention", q, k, v, {}, options, nullptr);
}

}  // namespace focus
