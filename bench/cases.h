#pragma once

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/base/random.h"
#include "autograd/variable.h"

// The kernels' benchmarks. Every case has its operands made before the clock runs and reports, next
// to its time, what it got done a second.
namespace focus::bench {

/// A case ready to run. The amounts are those of one call of `run`; what is left 0 is not reported.
struct Case {
  std::function<void()> run;
  double flops = 0;   // floating-point operations that the result needs: GFLOP/s
  double bytes = 0;   // each array counted once where it is read and once where written: GB/s
  double tokens = 0;  // tokens/s
  double pairs = 0;   // attended pairs of one head: reported as they are
};

/// Registers a case under a name of Google Benchmark's form, "layer_norm/forward/T:1024".
void add_case(const std::string& name, std::function<Case()> setup);

void add_gemm_cases();       // the seven shapes of gemm_shapes.h
void add_op_cases();         // norms, activations, rope, embedding, loss
void add_attention_cases();  // dense, sliding window, soft, hard
void add_routing_cases();    // routing, Sinkhorn, membership, class plan
void add_other_cases();      // AdamW, tokenizer

/// Numbers in [low, high): much cheaper to make than normal ones, and no kernel here minds.
inline Tensor random_tensor(const Shape& shape, std::uint64_t seed, double low = -1,
                            double high = 1) {
  Rng rng(seed);
  Tensor tensor(shape);
  for (Real& x : tensor.span()) x = static_cast<Real>(low + (high - low) * rng.uniform());
  return tensor;
}

/// Token ids below `vocab`.
inline std::vector<std::int32_t> random_ids(Index count, std::int32_t vocab, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (auto& id : ids) id = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab)));
  return ids;
}

/// One call of op(inputs) without a graph.
template <class Op>
std::function<void()> forward(Variables inputs, Op op) {
  return [inputs = std::move(inputs), op] {
    const NoGrad off;
    const Variable out = op(inputs);
  };
}

/// One call of op(inputs) and the gradients of all inputs, that of the output being 1.
template <class Op>
std::function<void()> forward_backward(Variables inputs, Op op) {
  for (Variable& input : inputs) input.set_requires_grad(true);
  return [inputs = std::move(inputs), op]() mutable {
    backward(op(inputs));
    for (Variable& input : inputs) input.zero_grad();
  };
}

/// Both passes of a case under "<name>/forward/<arguments>" and "<name>/forward_backward/...".
inline constexpr std::array kPasses = {std::pair{"forward", false},
                                       std::pair{"forward_backward", true}};

inline constexpr std::array<Index, 6> kLengths = {512, 1024, 2048, 4096, 8192, 16384};

}  // namespace focus::bench
