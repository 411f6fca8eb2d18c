#pragma once

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "focus/method/attention/gate.h"
#include "tests/support/compare.h"
#include "tests/support/composed.h"

// Cases of Focus attention, and their comparison with the composed twin.
namespace focus {

/// One attention of random inputs; top_k 0 is soft.
struct Case {
  Index batch = 1, seq_len = 65, heads = 2, kv_heads = 2, head_dim = 4, groups = 3;
  Gate gate = Gate::affinity;
  bool gated = true;
  int top_k = 0;
  Index local_window = 7, sliding_window = 0, sinks = 0;
  double softcap = 0, dropout = 0;
  bool empty_group = false;  // no token has any of the last group
  std::uint64_t seed = 1;

  std::string str() const {
    return fmt::format(
        "batch {} T {} heads {}/{} head_dim {} K {} {} {} k {} w {} sliding {} sinks {} softcap "
        "{} dropout {}{}",
        batch, seq_len, heads, kv_heads, head_dim, groups, value_text(gate),
        gated ? "gated" : "ungated", top_k, local_window, sliding_window, sinks, softcap, dropout,
        empty_group ? " empty group" : "");
  }
};

/// Rows that sum to 1, some close to one-hot.
inline Tensor random_assignments(const Case& c) {
  const Tensor logits = randn({c.batch, c.seq_len, c.groups}, c.seed + 10, 2);
  Tensor g = softmax(logits).value().clone();
  if (c.empty_group && c.groups > 1)
    for (Index i = 0; i < g.rows(); ++i) {
      Real* row = g.data() + i * c.groups;
      row[0] += row[c.groups - 1];
      row[c.groups - 1] = 0;
    }
  return g;
}

inline std::vector<std::uint64_t> top_sets(const Tensor& g, int top_k) {
  std::vector<std::uint64_t> sets;
  for (Index i = 0; i < g.rows(); ++i) {
    std::uint64_t set = 0;
    for (int n = 0; n < top_k; ++n) {
      Index best = -1;
      for (Index k = 0; k < g.cols(); ++k)
        if (!(set >> k & 1) && (best < 0 || g[i * g.cols() + k] > g[i * g.cols() + best])) best = k;
      set |= std::uint64_t{1} << best;
    }
    sets.push_back(set);
  }
  return sets;
}

inline std::vector<Tensor> inputs_of(const Case& c) {
  return {randn({c.batch, c.seq_len, c.heads, c.head_dim}, c.seed + 1),
          randn({c.batch, c.seq_len, c.kv_heads, c.head_dim}, c.seed + 2),
          randn({c.batch, c.seq_len, c.kv_heads, c.head_dim}, c.seed + 3), random_assignments(c)};
}
inline AttentionOptions options_of(const Case& c) {
  return {.scale = Real(0.6),
          .softcap = static_cast<Real>(c.softcap),
          .sliding_window = c.sliding_window,
          .dropout = c.dropout,
          .dropout_key = c.seed};
}
inline GateOptions gate_of(const Case& c, const Tensor& g) {
  return {.gate = c.gate,
          .steepness = 5,
          .affinity_floor = 1e-3,
          .local_window = c.local_window,
          .sinks = c.sinks,
          .gated = c.gated,
          .membership = c.top_k > 0 ? top_sets(g, c.top_k) : std::vector<std::uint64_t>{}};
}

/// gated_attention or sparse_attention.
using FocusAttention =
    std::function<Variable(const Variable& q, const Variable& k, const Variable& v,
                           const Variable& g, const AttentionOptions& options, GateOptions gate)>;

/// On the inputs of a case, Tensors or Variables.
inline Variable run(const FocusAttention& op, const Case& c, const auto& x,
                    const GateOptions& gate) {
  return op(x[0], x[1], x[2], x[3], options_of(c), gate);
}

/// The largest relative difference from the composed twin in value and gradients, and where.
inline std::pair<double, std::string> difference_from_twin(const Case& c, const FocusAttention& op,
                                                           const std::vector<Tensor>& inputs,
                                                           const GateOptions& gate) {
  const Variables fused = leaves(inputs), composed = leaves(inputs);
  const Variable out = run(op, c, fused, gate);
  const Variable expected =
      composed_attention(composed[0], composed[1], composed[2], composed[3], options_of(c), &gate);
  const Variable d_out(randn(out.shape(), c.seed + 5));
  backward(multiply(out, d_out));
  backward(multiply(expected, d_out));

  std::pair<double, std::string> worst{relative_difference(out.value(), expected.value()), "out"};
  const auto consider = [&](const std::string& what, double difference) {
    if (!(difference <= worst.first)) worst = {difference, what};
  };
  const char* names[] = {"dq", "dk", "dv", "dg"};
  for (std::size_t i = 0; i < 4; ++i) {
    if (!composed[i].grad().defined() && !fused[i].grad().defined()) continue;  // g, not gated
    // Beside 1: the softmax over a single key is constant, and its gradients are zero.
    consider(names[i], relative_difference(fused[i].grad(), composed[i].grad(), 1));
  }
  return worst;
}

inline std::pair<double, std::string> difference_from_twin(const Case& c,
                                                           const FocusAttention& op) {
  const std::vector<Tensor> inputs = inputs_of(c);
  return difference_from_twin(c, op, inputs, gate_of(c, inputs[3]));
}

inline const double kTwinTolerance = tolerance(2e-5, 1e-9);

/// On other inputs and gate options than the case's own.
inline void expect_twin(const Case& c, const FocusAttention& op, const std::vector<Tensor>& inputs,
                        const GateOptions& gate, double accepted = kTwinTolerance) {
  const auto [worst, where] = difference_from_twin(c, op, inputs, gate);
  EXPECT_LE(worst, accepted) << where << " of " << c.str();
}
inline void expect_twin(const Case& c, const FocusAttention& op) {
  const std::vector<Tensor> inputs = inputs_of(c);
  expect_twin(c, op, inputs, gate_of(c, inputs[3]));
}
/// The inputs with q and k so much larger that scores differ by hundreds.
inline std::vector<Tensor> sharp_inputs_of(const Case& c) {
  std::vector<Tensor> inputs = inputs_of(c);
  for (std::size_t i = 0; i < 2; ++i)
    for (Index j = 0; j < inputs[i].size(); ++j) inputs[i].data()[j] *= 10;
  return inputs;
}
inline const double kSharpTolerance = tolerance(2e-4, 1e-9);

/// What a case runs: top_k 0 is soft.
struct TwinMode {
  int top_k;
  bool gated;
};
/// Calls expect_twin on every option beside a plain case of each mode.
inline void sweep_twins(const std::vector<TwinMode>& modes, const FocusAttention& op) {
  for (const Index seq_len : {1, 65, 200})
    for (const Gate gate : {Gate::logit, Gate::affinity})
      for (const auto& [top_k, gated] : modes) {
        const Case plain{.seq_len = seq_len, .gate = gate, .gated = gated, .top_k = top_k};
        expect_twin(plain, op);
        const auto with = [&](auto&& change) {
          Case c = plain;
          change(c);
          expect_twin(c, op);
        };
        with([](Case& c) { c.softcap = 1.5; });
        with([](Case& c) { c.sliding_window = 40; });
        with([](Case& c) { c.sliding_window = 5; });  // narrower than the local window
        with([](Case& c) { c.heads = 4; });           // grouped queries
        with([](Case& c) { c.local_window = 0; });
        with([](Case& c) { c.local_window = 1000; });
        with([](Case& c) { c.empty_group = true; });
        with([](Case& c) { c.batch = 2; });
        with([](Case& c) { c.sinks = 3; });
        with([](Case& c) { c.sinks = 20, c.batch = 2; });  // more than the local window
      }
}

/// A random case; top_k from `least_top_k`.
inline Case any_case(int least_top_k) {
  const auto in = [](int low, int high) { return *rc::gen::inRange(low, high + 1); };
  Case c;
  c.batch = in(1, 3);
  c.seq_len = in(1, 140);
  c.kv_heads = in(1, 3);
  c.heads = c.kv_heads * in(1, 3);
  c.head_dim = in(1, 9);
  c.groups = in(1, 6);
  c.gate = *rc::gen::element(Gate::logit, Gate::affinity);
  c.gated = *rc::gen::arbitrary<bool>();
  c.top_k = in(least_top_k, static_cast<int>(c.groups));
  c.local_window = in(0, 150);
  c.sliding_window = *rc::gen::element<Index>(0, in(1, 150));
  c.sinks = *rc::gen::element<Index>(0, in(1, 20));
  c.softcap = *rc::gen::element(0.0, 0.8, 3.0);
  c.dropout = *rc::gen::element(0.0, 0.3);
  c.empty_group = *rc::gen::arbitrary<bool>();
  c.seed = static_cast<std::uint64_t>(in(1, 1000)) * 100;
  return c;
}

}  // namespace focus
