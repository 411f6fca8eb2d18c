#include <gtest/gtest.h>

#include "tests/support/baseline_case.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tiny_model.h"

namespace focus {
namespace {

constexpr Index kHeads = 3;

/// q^I [batch, seq_len, heads * 16], k^I [batch, seq_len, 16] and w [batch, seq_len, heads] of a
/// mechanism without rotary positions, whose input is q.
struct IndexVectors {
  Tensor q, k, w;
};
IndexVectors vectors_of(const Variables& weights, const Tensor& q) {
  const Variable h(q.reshape({q.dim(0), q.dim(1), q.dim(2) * q.dim(3)}));
  return {linear(h, weights[0], {}).value(), linear(h, weights[1], {}).value(),
          scale(linear(h, weights[2], {}), 1 / std::sqrt(Real(kHeads * 16))).value()};
}
Variables weights_of(Mechanism& indexer) {
  Variables weights;
  indexer.visit_parameters([&](const std::string&, Variable& p) { weights.push_back(p); });
  return weights;
}
/// The loss of a layer's indexer, with its graph.
Variable loss_of(Mechanism& indexer, const std::vector<Tensor>& x,
                 const AttentionOptions& options) {
  indexer.set_trainable(true);
  attend(indexer, x, options);
  return indexer.after_forward();
}

double naive_score(const IndexVectors& index, Index sequence, Index i, Index j) {
  return index_score({index.q, index.k, index.w}, sequence, i, j);
}

double naive_loss(const std::vector<Tensor>& x, const IndexVectors& index,
                  const AttentionOptions& options) {
  double loss = 0;
  for (Index s = 0; s < x[0].dim(0); ++s)
    for (Index i = 0; i < x[0].dim(1); ++i) {
      std::vector<double> wanted(i + 1, 0);
      for (Index h = 0; h < x[0].dim(2); ++h) {
        const NaiveQuery q{x, s, i, h};
        double total = 0;
        for (Index j = 0; j <= i; ++j)
          total += q.sees(j, options) ? std::exp(q.score(j, options)) : 0;
        for (Index j = 0; j <= i; ++j)
          if (q.sees(j, options))
            wanted[j] += std::exp(q.score(j, options)) / total / static_cast<double>(x[0].dim(2));
      }
      double total = 0;
      for (Index j = 0; j <= i; ++j)
        if (wanted[j] > 0) total += std::exp(naive_score(index, s, i, j));
      for (Index j = 0; j <= i; ++j)
        if (const double p = wanted[j]; p > 0)
          loss += p * (std::log(p) - naive_score(index, s, i, j) + std::log(total));
    }
  return loss / static_cast<double>(x[0].dim(0) * x[0].dim(1));
}

TEST(Indexer, LossIsTheDivergenceFromTheWeightsOfAllHeads) {
  for (const AwkwardCase& c : awkward_cases()) {
    SCOPED_TRACE(text_of(c));
    const auto x = inputs_of(c.inputs);
    const auto indexer = mechanism_of("indexer", "{heads: 3}", c.inputs);
    const double expected = naive_loss(x, vectors_of(weights_of(*indexer), x[0]), c.options);
    EXPECT_NEAR(static_cast<double>(loss_of(*indexer, x, c.options).value()[0]), expected,
                tolerance(1e-5, 1e-12) * (1 + expected));
  }
}

TEST(Indexer, LossGradient) {
  const BaselineCase c{.seq_len = 35, .heads = 4, .head_dim = 3};
  for (const Index sliding : {0, 4}) {
    const auto indexer = mechanism_of("indexer", "{heads: 3}", c);
    indexer->set_trainable(true);
    std::vector<Tensor> values;
    for (const Variable& p : weights_of(*indexer)) values.push_back(p.value());
    expect_gradients(
        [&](const Variables& v) {
          std::size_t next = 0;
          indexer->visit_parameters([&](const std::string&, Variable& p) { p = v[next++]; });
          attend(*indexer, inputs_of(c), {.scale = Real(0.4), .sliding_window = sliding});
          return indexer->after_forward();
        },
        values);
  }
}

TEST(Indexer, SameBitsOfGradientsForAnyThreads) {
  expect_same_bits_for_any_threads("indexer", [] {
    const auto indexer = mechanism_of("indexer", "{heads: 3}", {});
    backward(loss_of(*indexer, inputs_of({}), {}));
    std::vector<Tensor> gradients;
    for (const Variable& p : weights_of(*indexer)) gradients.push_back(p.grad());
    return gradients;
  });
}

TEST(Indexer, LearnsOnAFrozenModelWhichItDoesNotChange) {
  for (const std::string family : {"gpt2", "llama", "gemma2"}) {
    SCOPED_TRACE(family);
    Decoder decoder = tiny_decoder(family);
    const auto ids = random_ids(120, 37, 4);
    const Tensor dense = decoder.hidden_states(ids, 2).value();
    const auto indexer =
        make_mechanism("indexer", settings_of("indexer", "{tokens: 3, local_window: 2, sinks: 1}"),
                       decoder.config());
    indexer->attach(decoder);
    indexer->set_trainable(true);
    double first = 0, last = 0;
    for (int step = 0; step < 30; ++step) {
      EXPECT_TRUE(same_bits(decoder.hidden_states(ids, 2).value(), dense));
      const Variable loss = indexer->after_forward();
      last = static_cast<double>(loss.value()[0]);
      if (step == 0) first = last;
      backward(loss);
      indexer->visit_parameters([](const std::string& name, Variable& p) {
        ASSERT_TRUE(p.grad().defined()) << name;
        for (Index i = 0; i < p.value().size(); ++i)
          p.mutable_value().data()[i] -= Real(0.3) * p.grad()[i];
        p.zero_grad();
      });
    }
    EXPECT_LT(last, 0.9 * first);
    EXPECT_GT(last, 0);
    const NoGrad guard;  // what is validated and evaluated selects
    indexer->start_counting();
    EXPECT_FALSE(same_bits(decoder.hidden_states(ids, 2).value(), dense));
    EXPECT_LT(indexer->counts().pairs.attended, indexer->counts().pairs.all / 2);
    EXPECT_FALSE(indexer->after_forward().defined());
  }
}

TEST(Indexer, OfALongropeBaseRotatesPlainly) {
  const NoGrad guard;
  ModelConfig config = tiny_config("phi3");
  config.rope = {.scaling = RopeConfig::Scaling::longrope,
                 .short_factor = {1, 2, 3},
                 .long_factor = {4, 5, 6},
                 .original_max_position_embeddings = 30};
  Decoder decoder = tiny_decoder(config);
  const auto ids = random_ids(60, 37, 4);
  const Tensor dense = decoder.hidden_states(ids, 1).value();
  const auto indexer = make_mechanism("indexer", settings_of("indexer", "{tokens: 60}"), config);
  indexer->attach(decoder);
  EXPECT_LE(relative_difference(decoder.hidden_states(ids, 1).value(), dense),
            tolerance(1e-4, 1e-10));
}

TEST(Indexer, CopiesOfATrainedOneMayReadMoreButHaveItsShape) {
  const ModelConfig shape = tiny_config("gpt2");
  const auto trained = make_mechanism("indexer", settings_of("indexer", "{seed: 5}"), shape);
  const auto copy =
      make_mechanism("indexer", settings_of("indexer", "{tokens: 7, seed: 6}"), shape);
  copy->copy_parameters(*trained);
  const Variables theirs = weights_of(*trained), ours = weights_of(*copy);
  ASSERT_EQ(ours.size(), 3 * trained->layers.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(same_bits(ours[i].value(), theirs[i].value()));
  const auto other = make_mechanism("indexer", settings_of("indexer", "{heads: 2}"), shape);
  EXPECT_THROW(other->copy_parameters(*trained), std::invalid_argument);
}

}  // namespace
}  // namespace focus
