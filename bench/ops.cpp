#include "autograd/ops.h"

#include <cmath>

#include "bench/cases.h"

namespace focus::bench {
namespace {

constexpr Index kHidden = 768, kIntermediate = 3072, kVocab = 50257;
constexpr Index kHeads = 12, kHeadDim = 64;

/// What an op moves through memory, in arrays of its first input's size.
struct Traffic {
  double forward, backward;
};

/// An op on one shape, forward and with backward; parameters may follow the inputs.
template <class Op>
void add_op(const std::string& name, Index seq_len, const std::vector<Shape>& shapes,
            Traffic traffic, Op op) {
  for (const auto& [pass, with_backward] : kPasses)
    add_case(fmt::format("{}/{}/T:{}", name, pass, seq_len), [=, both = with_backward] {
      Variables inputs;
      for (const Shape& shape : shapes)
        inputs.emplace_back(random_tensor(shape, inputs.size() + 1));
      Case c;
      c.bytes = static_cast<double>(shapes[0].size()) * sizeof(Real) *
                (traffic.forward + (both ? traffic.backward : 0));
      c.run = both ? forward_backward(std::move(inputs), op) : forward(std::move(inputs), op);
      return c;
    });
}

RotaryTable rotary_table(Index seq_len) {
  RotaryTable table{Tensor({seq_len, kHeadDim / 2}), Tensor({seq_len, kHeadDim / 2})};
  for (Index t = 0; t < seq_len; ++t)
    for (Index i = 0; i < kHeadDim / 2; ++i) {
      const double angle =
          static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(i) / kHeadDim);
      table.cos.data()[t * kHeadDim / 2 + i] = static_cast<Real>(std::cos(angle));
      table.sin.data()[t * kHeadDim / 2 + i] = static_cast<Real>(std::sin(angle));
    }
  return table;
}

void add_embedding(Index seq_len) {
  add_case(fmt::format("embedding/forward/T:{}", seq_len), [=] {
    const Variable weight = random_tensor({kVocab, kHidden}, 1);
    const auto ids = random_ids(seq_len, kVocab, 2);
    return Case{.run = forward({weight},
                               [=](const Variables& x) {
                                 return embedding(x[0], ids, {1, seq_len});
                               }),
                .bytes = 2.0 * static_cast<double>(seq_len * kHidden) * sizeof(Real),
                .tokens = static_cast<double>(seq_len)};
  });
}

/// Output head and loss. `gradients`: of nothing, of the hidden states alone (the head is frozen,
/// as in a retrofit), of both. Each is a product as large as the logits'.
void add_loss(const std::string& pass, Index seq_len, int gradients) {
  add_case(fmt::format("linear_cross_entropy/{}/T:{}", pass, seq_len), [=] {
    Variable x = random_tensor({seq_len, kHidden}, 1);
    Variable weight = random_tensor({kVocab, kHidden}, 2);
    x.set_requires_grad(gradients > 0);
    weight.set_requires_grad(gradients > 1);
    const auto targets = random_ids(seq_len, kVocab, 3);
    Case c;
    c.run = [=]() mutable {
      const Variable loss = linear_cross_entropy(x, weight, targets);
      if (gradients == 0) return;
      backward(loss);
      x.zero_grad();
      if (gradients > 1) weight.zero_grad();
    };
    c.flops = 2.0 * static_cast<double>(seq_len * kHidden * kVocab) * (1 + gradients);
    c.tokens = static_cast<double>(seq_len);
    return c;
  });
}

}  // namespace

void add_op_cases() {
  for (const Index seq_len : {1024, 4096}) {
    const Shape hidden{1, seq_len, kHidden}, wide{1, seq_len, kIntermediate};
    add_op("layer_norm", seq_len, {hidden, {kHidden}, {kHidden}}, {2, 3},
           [](const Variables& x) { return layer_norm(x[0], x[1], x[2], 1e-5F); });
    add_op("rms_norm", seq_len, {hidden, {kHidden}}, {2, 3},
           [](const Variables& x) { return rms_norm(x[0], x[1], 1e-5F); });
    add_op("gelu", seq_len, {wide}, {2, 3}, [](const Variables& x) { return gelu(x[0]); });
    add_op("gelu_tanh", seq_len, {wide}, {2, 3},
           [](const Variables& x) { return gelu_tanh(x[0]); });
    add_op("swiglu", seq_len, {wide, wide}, {3, 5},
           [](const Variables& x) { return swiglu(x[0], x[1]); });
    add_op("rope", seq_len, {{1, seq_len, kHeads, kHeadDim}}, {2, 2},
           [table = rotary_table(seq_len)](const Variables& x) { return rope(x[0], table); });
    add_embedding(seq_len);
  }
  add_loss("forward", 1024, 0);
  add_loss("forward_backward_frozen", 1024, 1);
  add_loss("forward_backward", 1024, 2);
}

}  // namespace focus::bench
