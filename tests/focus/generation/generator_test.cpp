#include "focus/generation/generator.h"

#include <gtest/gtest.h>

#include "focus/generation/sampling.h"
#include "tests/support/compare.h"
#include "tests/support/tiny_focus.h"

namespace focus {
namespace {

using Kind = AttentionKind;

std::vector<AttentionSpec> modes() {
  std::vector<AttentionSpec> modes = {{.kind = Kind::dense}};
  for (const int top_k : {0, 1, 2, 4})
    for (const HardGate gate : {HardGate::drop, HardGate::keep})
      modes.push_back(
          {.kind = top_k == 0 ? Kind::local : Kind::hard, .top_k = top_k, .gate = gate});
  AttentionSpec summary{.kind = Kind::summary,
                        .summary = {.local_window = 4, .block = 1, .sinks = 1}};
  modes.push_back(summary);
  summary.m_by_layer = {4, 0, 1};
  summary.w_by_layer = {0, 9, 4};
  modes.push_back(summary);
  return modes;
}

TEST(Generator, GreedyTokensAndLogitsEqualThoseWithoutACache) {
  for (const std::string& type : family_names())
    for (const AttentionSpec& mode : modes()) {
      TinyFocus model(type);
      const auto prompt = random_ids(20, 37, 7);
      const auto generate = [&](std::optional<CacheDtype> cache, std::vector<Tensor>& logits) {
        Generator generator(model.decoder, &*model.focus, mode, cache);
        std::vector<std::int32_t> ids = prompt;
        Rng rng;
        logits.push_back(generator.next_logits(ids));
        for (int i = 0; i < 40; ++i) {
          ids.push_back(sample(logits.back().span(), {}, rng));
          logits.push_back(generator.next_logits(std::span(ids).last(1)));
        }
        EXPECT_EQ(generator.cache().size(), 60);
        return ids;
      };
      std::vector<Tensor> cached, whole;
      EXPECT_EQ(generate(CacheDtype::float32, cached), generate(std::nullopt, whole))
          << type << ", " << mode.name();
      for (std::size_t i = 0; i < whole.size(); ++i)
        EXPECT_LE(relative_difference(cached[i], whole[i]), tolerance(2e-5, 1e-10))
            << type << ", " << mode.name() << ", token " << i;
    }
}

TEST(Generator, ACacheOfFloat16MovesLogitsByItsRounding) {
  for (const AttentionSpec& mode : modes()) {
    TinyFocus model("llama");
    const auto ids = random_ids(40, 37, 7);
    const auto logits = [&](CacheDtype dtype) {
      Generator generator(model.decoder, &*model.focus, mode, dtype);
      generator.next_logits(std::span(ids).first(30));
      return generator.next_logits(std::span(ids).subspan(30));
    };
    const Tensor exact = logits(CacheDtype::float32), rounded = logits(CacheDtype::float16);
    EXPECT_LT(relative_difference(rounded, exact), 1e-3) << mode.name();
    EXPECT_FALSE(same_bits(rounded, exact)) << mode.name();
  }
}

TEST(Generator, LongropeRotatesATextAnewOnceItIsLong) {
  const ModelConfig config = tiny_longrope();
  const auto ids = random_ids(60, 37, 7);
  for (const AttentionSpec& mode : modes()) {
    TinyFocus model(config), other(config);
    Generator cached(model.decoder, &*model.focus, mode);
    Generator whole(other.decoder, &*other.focus, mode, std::nullopt);
    Index done = 0;
    for (const Index tokens : {20, 10, 1, 1, 9, 19}) {
      const auto next = std::span(ids).subspan(done, tokens);
      EXPECT_LE(relative_difference(cached.next_logits(next), whole.next_logits(next)),
                tolerance(2e-5, 1e-10))
          << mode.name() << ", after " << done;
      done += tokens;
    }
    EXPECT_EQ(cached.cache().size(), 60);
  }
}

TEST(Generator, TakesSeveralTokensAtATime) {
  for (const AttentionSpec& mode : modes()) {
    TinyFocus model("llama");
    const auto ids = random_ids(60, 37, 7);
    Generator whole(model.decoder, &*model.focus, mode, std::nullopt);
    const Tensor expected = whole.next_logits(ids);
    Generator generator(model.decoder, &*model.focus, mode);
    generator.next_logits(std::span(ids).first(1));
    generator.next_logits(std::span(ids).subspan(1, 40));
    EXPECT_LE(relative_difference(generator.next_logits(std::span(ids).subspan(41)), expected),
              tolerance(2e-5, 1e-10))
        << mode.name();
  }
}

TEST(Generator, AModelWithoutFocusIsDense) {
  Decoder decoder = tiny_decoder("llama");
  const auto ids = random_ids(30, 37, 7);
  const AttentionSpec dense{.kind = Kind::dense};
  const Tensor expected = Generator(decoder, nullptr, dense, std::nullopt).next_logits(ids);
  Generator cached(decoder, nullptr, dense);
  cached.next_logits(std::span(ids).first(29));
  EXPECT_LE(relative_difference(cached.next_logits(std::span(ids).last(1)), expected),
            tolerance(2e-5, 1e-10));
}

TEST(Generator, ReadsTheShareOfPairsThatTheStatisticsCount) {
  TinyFocus model("llama");
  const AttentionSpec mode{.kind = Kind::hard, .top_k = 1, .gate = HardGate::drop};
  const auto ids = random_ids(100, 37, 7);
  model.focus->mode = mode;
  const auto attended = [&](Index tokens) {
    const NoGrad guard;
    model.focus->start_counting();
    model.decoder.hidden_states(std::span(ids).first(tokens), 1);
    return model.focus->counts().pairs;
  };
  const PairCounts prompt = attended(50), all = attended(100);
  Generator generator(model.decoder, &*model.focus, mode);
  generator.next_logits(std::span(ids).first(50));
  EXPECT_EQ(generator.cache().share_read(), 1);
  for (std::size_t t = 50; t < 100; ++t) generator.next_logits(std::span(ids).subspan(t, 1));
  EXPECT_DOUBLE_EQ(generator.cache().share_read(),
                   static_cast<double>(all.attended - prompt.attended) /
                       static_cast<double>(all.all - prompt.all));
  EXPECT_LT(generator.cache().share_read(), 0.7);
  EXPECT_EQ(generator.cache().size(), 100);
  EXPECT_GE(generator.cache().bytes(), 3 * 100 * 2 * 2 * 6 * sizeof(Real));
}

TEST(Generator, StopsAtTheLastLearnedPosition) {
  TinyFocus model("gpt2");
  Generator generator(model.decoder, &*model.focus, {.kind = Kind::dense});
  generator.next_logits(random_ids(128, 37, 7));
  EXPECT_THROW(generator.next_logits(random_ids(1, 37, 7)), std::invalid_argument);
}

}  // namespace
}  // namespace focus
