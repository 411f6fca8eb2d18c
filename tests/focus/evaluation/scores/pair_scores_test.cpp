#include "focus/evaluation/scores/pair_scores.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/byte_model.h"
#include "tests/support/random.h"

namespace focus {
namespace {

TokenIds drawn(std::size_t n, std::uint64_t seed) { return random_ids(n, 256, seed); }

TokenIds operator+(TokenIds a, const TokenIds& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Answers to some questions that begin alike, and questions of their own.
std::vector<TokenPair> pairs() {
  const TokenIds shots = drawn(30, 1), first = shots + drawn(20, 2), second = shots + drawn(9, 3);
  return {{first, drawn(4, 4)},
          {drawn(12, 5), drawn(3, 6)},
          {first, drawn(1, 7)},
          {first, drawn(1, 8)},
          {second, drawn(7, 9)},
          {first, drawn(6, 10)},
          {shots + drawn(3, 11), {5}},
          {{0}, drawn(5, 12)},
          {second, drawn(2, 13)},
          {drawn(12, 5), drawn(40, 14)},
          {{0}, {7}}};
}

/// log p of each token of the continuation, from one pass over the sequence without its last token:
/// attention that is not causal must not see what is scored last.
std::vector<double> reference(const Decoder& decoder, const TokenPair& pair) {
  const NoGrad guard;
  const TokenIds whole = pair.context + pair.continuation;
  const std::span<const std::int32_t> fed(whole.data(), whole.size() - 1);
  const Tensor hidden = decoder.hidden_states(fed, 1).value();
  const Tensor logits = decoder.logits(Variable(hidden)).value();
  std::vector<double> log_probs;
  for (std::size_t t = pair.context.size(); t < whole.size(); ++t) {
    const Real* row = logits.data() + (static_cast<Index>(t) - 1) * logits.cols();
    double sum = 0;
    for (Index i = 0; i < logits.cols(); ++i) sum += std::exp(static_cast<double>(row[i]));
    log_probs.push_back(static_cast<double>(row[whole[t]]) - std::log(sum));
  }
  return log_probs;
}

/// Scores all pairs as they are one by one; returns the work.
ScoringWork expect_scores(Decoder& decoder, const PairScoring& options, const std::string& what) {
  ScoringWork work;
  const auto all = pairs();
  const auto scored = score_pairs(decoder, all, options, {}, &work);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto expected = reference(decoder, all[i]);
    EXPECT_EQ(scored[i].log_probs.size(), expected.size());
    for (std::size_t t = 0; t < expected.size(); ++t)
      EXPECT_NEAR(scored[i].log_probs.at(t), expected[t], 2e-5)
          << what << ", pair " << i << ", token " << t;
  }
  return work;
}

void expect_scores(LoadedModel& model, const std::vector<std::string>& words) {
  for (const AttentionSpec& spec : resolve_words(words, model, DefaultBalance::trained, "test")) {
    const ActiveAttention active(model, spec);
    const std::string what = model.where + ", " + active.title();
    for (const bool shares : {active.causal(), false}) {
      const auto [tokens, computed] = expect_scores(*model.decoder, {.causal = shares}, what);
      EXPECT_TRUE(shares ? computed < tokens * 7 / 10 : computed == tokens)
          << what << ": " << computed << " of " << tokens;
    }
  }
}

TEST(ScorePairs, SharedContextsGiveTheNumbersOfWholeSequencesInEveryFamily) {
  for (const std::string& family : family_names()) {
    LoadedModel model = byte_model_with_focus(family);
    expect_scores(model, {"dense", "soft", "hard:1"});
  }
}

TEST(ScorePairs, SequencesShareNothingWhereTheirLengthsRotateThem) {
  for (const Index original : {1000, 30}) {
    ModelConfig config = byte_model().decoder->config();
    config.rope = {.scaling = RopeConfig::Scaling::dynamic,
                   .factor = 3,
                   .original_max_position_embeddings = original};
    Decoder decoder(config);
    Rng rng(5);
    initialise(decoder, rng);
    const ScoringWork work = expect_scores(decoder, {}, std::to_string(original));
    EXPECT_EQ(work.computed < work.tokens, original == 1000);
  }
}

TEST(ScorePairs, SharedContextsGiveTheNumbersOfWholeSequencesInEveryAttention) {
  LoadedModel model = byte_model_with_focus();
  expect_scores(model, {"local", "hard:2:gate=drop", "summary:1:block=4", "soft:balance=sequence",
                        "hard:1:balance=sequence", "window:8", "sink_window:8", "performer:16",
                        "routing_transformer:4:shared_qk=false", "sparq:8", "magicpig:4", "quest:2",
                        "moba:2:block_size=8", "oracle:4", "random_groups:3"});
}

TEST(ScorePairs, GreedyWhereEveryTokenIsTheLikeliest) {
  LoadedModel model = byte_model();
  const TokenIds context = drawn(10, 1);
  TokenIds ids = context;
  const NoGrad guard;
  for (int i = 0; i < 3; ++i) {
    const Tensor logits = model.decoder->logits(model.decoder->hidden_states(ids, 1)).value();
    const auto last = logits.span().last(256);
    ids.push_back(static_cast<std::int32_t>(std::ranges::max_element(last) - last.begin()));
  }
  const TokenIds greedy(ids.end() - 3, ids.end());
  TokenIds other = greedy;
  other.back() = (other.back() + 1) % 256;
  const std::vector<TokenPair> two = {{context, greedy}, {context, other}};
  const auto scored = score_pairs(*model.decoder, two, {});
  EXPECT_TRUE(scored[0].is_greedy);
  EXPECT_FALSE(scored[1].is_greedy);
  EXPECT_GT(scored[0].sum(), scored[1].sum());
}

TEST(ScorePairs, LeavesTheDecoderAsItWas) {
  LoadedModel model = byte_model_with_focus();
  const ActiveAttention active(model, {.kind = AttentionKind::soft, .balance = Balance::carried});
  const NoGrad guard;
  const auto ids = drawn(40, 3);
  const Tensor before = model.decoder->hidden_states(ids, 1).value();
  score_pairs(*model.decoder, pairs(), {});
  const Tensor after = model.decoder->hidden_states(ids, 1).value();
  EXPECT_TRUE(std::ranges::equal(before.span(), after.span()));
}

TEST(ScorePairs, RefusesNumbersThatAreNone) {
  LoadedModel model = byte_model();
  for_each_parameter(*model.decoder, [](const std::string& name, Variable& p) {
    if (name == "norm.weight") p.mutable_value().fill(std::numeric_limits<Real>::infinity());
  });
  EXPECT_THROW(score_pairs(*model.decoder, pairs(), {}), std::runtime_error);
}

TEST(TouchedPairs, AreThoseBeyondTheWindow) {
  const ModelConfig config = tiny_config("llama");
  const auto distant = [&](Index tokens, const TouchedPairs& touches) {
    const PairCounts pairs = touches.count(config, tokens);
    EXPECT_EQ(pairs.all, config.num_hidden_layers * tokens * (tokens + 1) / 2);
    return pairs.distant;
  };
  EXPECT_EQ(distant(50, {}), 0);            // dense
  EXPECT_EQ(distant(5, {.window = 4}), 0);  // all lie inside
  EXPECT_EQ(distant(6, {.window = 4}), 3);
  EXPECT_EQ(distant(4, {.window = 0}), 18);
  EXPECT_EQ(distant(4, {.window = 1, .window_of_layer = {0, 4, 2}}), 7);
}

TEST(TouchedPairs, BeginAtTheWindowOfTheFocusOrOfTheMechanism) {
  LoadedModel model = byte_model_with_focus();
  const auto touches = [&](const std::string& word) {
    const auto specs = resolve_words({word}, model, DefaultBalance::trained, "test");
    return TouchedPairs::of(ActiveAttention(model, specs[0]));
  };
  EXPECT_EQ(touches("dense").window, std::nullopt);
  EXPECT_EQ(touches("soft").window, 4);
  EXPECT_EQ(touches("local").window, 4);
  EXPECT_EQ(touches("summary:1:local_window=7").window, 7);
  EXPECT_EQ(touches("summary:1:w_by_layer=7+0+3").window_of_layer, (std::vector<Index>{7, 0, 3}));
  EXPECT_EQ(touches("window:12").window, 12);
  EXPECT_EQ(touches("performer:16").window, 0);
}

}  // namespace
}  // namespace focus
