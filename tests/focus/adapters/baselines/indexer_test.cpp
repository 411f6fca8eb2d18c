#include "focus/adapters/baselines/indexer.h"

#include <gtest/gtest.h>

#include "focus/adapters/mechanism.h"
#include "tests/support/baseline_case.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tiny_model.h"

namespace focus {
namespace {

constexpr Index kHeads = 3;

IndexVectors vectors_of(const BaselineCase& c) {
  return {.q = Variable(randn({c.batch, c.seq_len, kHeads, 16}, 11)),
          .k = Variable(randn({c.batch, c.seq_len, 1, 16}, 12)),
          .w = Variable(randn({c.batch, c.seq_len, kHeads}, 13))};
}

double naive_score(const IndexVectors& index, Index sequence, Index i, Index j) {
  const Index seq_len = index.q.dim(1), heads = index.q.dim(2);
  double sum = 0;
  for (Index h = 0; h < heads; ++h) {
    const Index row = (sequence * seq_len + i) * heads + h;
    double dot = 0;
    for (Index d = 0; d < 16; ++d)
      dot += static_cast<double>(index.q.value()[row * 16 + d]) *
             static_cast<double>(index.k.value()[(sequence * seq_len + j) * 16 + d]);
    sum += static_cast<double>(index.w.value()[row]) * std::max(dot, 0.0);
  }
  return sum;
}

double naive_loss(const std::vector<Tensor>& x, const IndexVectors& index,
                  const AttentionOptions& options) {
  double loss = 0;
  for (Index s = 0; s < x[0].dim(0); ++s)
    for (Index i = 0; i < x[0].dim(1); ++i) {
      std::vector<double> wanted(static_cast<std::size_t>(i + 1), 0);
      for (Index h = 0; h < x[0].dim(2); ++h) {
        const NaiveQuery q{x, s, i, h};
        double total = 0;
        for (Index j = 0; j <= i; ++j)
          total += q.sees(j, options) ? std::exp(q.score(j, options)) : 0;
        for (Index j = 0; j <= i; ++j)
          if (q.sees(j, options))
            wanted[static_cast<std::size_t>(j)] +=
                std::exp(q.score(j, options)) / total / static_cast<double>(x[0].dim(2));
      }
      double total = 0;
      for (Index j = 0; j <= i; ++j)
        if (wanted[static_cast<std::size_t>(j)] > 0) total += std::exp(naive_score(index, s, i, j));
      for (Index j = 0; j <= i; ++j)
        if (const double p = wanted[static_cast<std::size_t>(j)]; p > 0)
          loss += p * (std::log(p) - naive_score(index, s, i, j) + std::log(total));
    }
  return loss / static_cast<double>(x[0].dim(0) * x[0].dim(1));
}

Tensor run(const std::vector<Tensor>& x, const AttentionOptions& options, const IndexVectors& index,
           const IndexerConfig& config, PairCounts* pairs = nullptr) {
  return indexer_attention(x[0], x[1], x[2], index, options, config, pairs).value();
}

TEST(Indexer, ReadsTheKeysOfTheLargestIndex) {
  for (const AwkwardCase& c : awkward_cases())
    for (const IndexerConfig& config : {IndexerConfig{.tokens = 5, .local_window = 6, .sinks = 2},
                                        IndexerConfig{.tokens = 1, .local_window = 0, .sinks = 0},
                                        IndexerConfig{.tokens = 0, .local_window = 3}}) {
      const IndexVectors index = vectors_of(c.inputs);
      expect_reads(
          c,
          [&](const auto& x, const auto& options, PairCounts* pairs) {
            return run(x, options, index, config, pairs);
          },
          [&](const NaiveQuery& q) {
            MaskRow row = local_keys(q, c.options, q.token - config.local_window, config.sinks);
            std::vector<std::pair<double, Index>> distant;
            for (Index j = 0; j <= q.token; ++j)
              if (!row[static_cast<std::size_t>(j)] && q.sees(j, c.options))
                distant.emplace_back(naive_score(index, q.sequence, q.token, j), j);
            for (const Index j : largest_places(distant, config.tokens))
              row[static_cast<std::size_t>(j)] = true;
            return row;
          });
    }
}

TEST(Indexer, WithAllTokensIsDense) {
  for (const AwkwardCase& c : awkward_cases())
    expect_dense(c, [&](const auto& x, const auto& options, PairCounts* pairs) {
      return run(x, options, vectors_of(c.inputs), {.tokens = 70, .local_window = 5}, pairs);
    });
}

TEST(Indexer, LossIsTheDivergenceFromTheWeightsOfAllHeads) {
  for (const AwkwardCase& c : awkward_cases()) {
    SCOPED_TRACE(text_of(c));
    const auto x = inputs_of(c.inputs);
    const IndexVectors index = vectors_of(c.inputs);
    const double expected = naive_loss(x, index, c.options);
    EXPECT_NEAR(static_cast<double>(indexer_loss(index, x[0], x[1], c.options).value()[0]),
                expected, tolerance(1e-5, 1e-12) * (1 + expected));
  }
}

TEST(Indexer, LossGradient) {
  for (const Index sliding : {0, 4}) {
    const auto x = inputs_of({.seq_len = 35, .heads = 4, .head_dim = 3});
    const IndexVectors index = vectors_of({.seq_len = 35});
    expect_gradients(
        [&](const Variables& v) {
          return indexer_loss({v[0], v[1], v[2]}, x[0], x[1],
                              {.scale = Real(0.4), .sliding_window = sliding});
        },
        {index.q.value(), index.k.value(), index.w.value()});
  }
}

TEST(Indexer, IsCausalToTheBitAndForAnyThreads) {
  // The index vectors of a token come from q here, so that later tokens could leak through them.
  const auto attend = [](const std::vector<Tensor>& x) {
    const BaselineCase c;
    const IndexVectors index{.q = reshape(Variable(x[0]), {c.batch, c.seq_len, 1, 16}),
                             .k = reshape(Variable(x[1]), {c.batch, c.seq_len, 1, 16}),
                             .w = Variable(Tensor::full({c.batch, c.seq_len, 1}, 1))};
    return run(x, {.scale = Real(0.35)}, index, {.tokens = 5, .local_window = 5});
  };
  expect_causal(inputs_of({}), 41, attend);
  expect_same_bits_for_any_threads("indexer", [&] {
    const auto x = inputs_of({});
    IndexVectors index = vectors_of({});
    const Variables v = leaves({index.q.value(), index.k.value(), index.w.value()});
    backward(indexer_loss({v[0], v[1], v[2]}, x[0], x[1], {}));
    return std::vector{attend(x), v[0].grad(), v[1].grad(), v[2].grad()};
  });
}

TEST(Indexer, LearnsOnAFrozenModelWhichItDoesNotChange) {
  for (const std::string family : {"gpt2", "llama", "gemma2"}) {
    SCOPED_TRACE(family);
    Decoder decoder = tiny_decoder(family);
    const auto ids = random_ids(120, 37, 4);
    const Tensor dense = decoder.hidden_states(ids, 2).value();
    const auto indexer = make_mechanism(
        "indexer", IndexerConfig{.tokens = 3, .local_window = 2, .sinks = 1}, decoder.config());
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

TEST(Indexer, OfAllTokensIsDenseOnEveryFamily) {
  const NoGrad guard;
  for (const std::string& family : family_names()) {
    Decoder decoder = tiny_decoder(family);
    const auto ids = random_ids(120, 37, 4);
    const Tensor dense = decoder.hidden_states(ids, 2).value();
    const auto indexer = make_mechanism("indexer", IndexerConfig{.tokens = 60}, decoder.config());
    indexer->attach(decoder);
    EXPECT_LE(relative_difference(decoder.hidden_states(ids, 2).value(), dense),
              tolerance(1e-4, 1e-10))
        << family;
  }
}

TEST(Indexer, OfALongropeBaseRotatesPlainly) {
  const NoGrad guard;
  ModelConfig config = tiny_config("phi3");
  config.rope = {.scaling = RopeConfig::Scaling::longrope,
                 .short_factor = {1, 2, 3},
                 .long_factor = {4, 5, 6},
                 .original_max_position_embeddings = 30};
  Decoder decoder(config);
  Rng rng(1);
  initialise(decoder, rng);
  const auto ids = random_ids(60, 37, 4);
  const Tensor dense = decoder.hidden_states(ids, 1).value();
  const auto indexer = make_mechanism("indexer", IndexerConfig{.tokens = 60}, config);
  indexer->attach(decoder);
  EXPECT_LE(relative_difference(decoder.hidden_states(ids, 1).value(), dense),
            tolerance(1e-4, 1e-10));
}

TEST(Indexer, CopiesOfATrainedOneMayReadMoreButHaveItsShape) {
  const ModelConfig shape = tiny_config("gpt2");
  const auto trained = make_mechanism("indexer", IndexerConfig{.seed = 5}, shape);
  const auto copy = make_mechanism("indexer", IndexerConfig{.tokens = 7, .seed = 6}, shape);
  copy->copy_parameters(*trained);
  std::vector<Tensor> theirs, ours;
  trained->visit_parameters([&](const std::string&, Variable& p) { theirs.push_back(p.value()); });
  copy->visit_parameters([&](const std::string&, Variable& p) { ours.push_back(p.value()); });
  ASSERT_EQ(ours.size(), 3 * trained->layers.size());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(same_bits(ours[i], theirs[i]));
  const auto other = make_mechanism("indexer", IndexerConfig{.heads = 2}, shape);
  EXPECT_THROW(other->copy_parameters(*trained), std::invalid_argument);
}

TEST(Indexer, RefusesSettingsThatMeanNothing) {
  EXPECT_THROW(IndexerConfig{.tokens = -1}.validate(), std::invalid_argument);
  EXPECT_THROW(IndexerConfig{.heads = 0}.validate(), std::invalid_argument);
}

}  // namespace
}  // namespace focus
