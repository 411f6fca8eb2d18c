#include "focus/adapters/baselines/sink_window.h"

#include <gtest/gtest.h>

#include "tests/support/baseline_case.h"
#include "tests/support/gradcheck.h"

namespace focus {
namespace {

Tensor run(const std::vector<Tensor>& x, const AttentionOptions& options,
           const SinkWindowConfig& config, PairCounts* pairs = nullptr) {
  return sink_window_attention(x[0], x[1], x[2], options, config, pairs).value();
}

std::vector<SinkWindowConfig> configs() {
  return {{.local_window = 8, .sinks = 4},
          {.local_window = 0, .sinks = 1},
          {.local_window = 7, .sinks = 0},
          {.local_window = 3, .sinks = 50}};
}

TEST(SinkWindow, AttendsTheLastAndTheFirstTokens) {
  for (const AwkwardCase& c : awkward_cases())
    for (const SinkWindowConfig& config : configs())
      expect_reads(
          c,
          [&](const auto& x, const auto& options, PairCounts* pairs) {
            return run(x, options, config, pairs);
          },
          [&](const NaiveQuery& q) {
            return local_keys(q, c.options, q.token - config.local_window, config.sinks);
          });
}

TEST(SinkWindow, OfMoreThanATileOfQueriesAndOfSinks) {
  for (const Index sliding : {0, 170})
    for (const SinkWindowConfig& config : {SinkWindowConfig{.local_window = 20, .sinks = 4},
                                           SinkWindowConfig{.local_window = 90, .sinks = 150},
                                           SinkWindowConfig{.local_window = 5, .sinks = 128}}) {
      const AwkwardCase c{{.seq_len = 301, .heads = 2, .kv_heads = 1},
                          {.scale = Real(0.35), .sliding_window = sliding}};
      expect_reads(
          c,
          [&](const auto& x, const auto& options, PairCounts* pairs) {
            return run(x, options, config, pairs);
          },
          [&](const NaiveQuery& q) {
            return local_keys(q, c.options, q.token - config.local_window, config.sinks);
          });
    }
}

TEST(SinkWindow, IsDenseWhereEitherHoldsEveryToken) {
  for (const AwkwardCase& c : awkward_cases())
    for (const SinkWindowConfig& config : {SinkWindowConfig{.local_window = 69, .sinks = 0},
                                           SinkWindowConfig{.local_window = 0, .sinks = 69}})
      expect_dense(c, [&](const auto& x, const auto& options, PairCounts* pairs) {
        return run(x, options, config, pairs);
      });
}

TEST(SinkWindow, IsCausalToTheBitAndForAnyThreads) {
  const auto attend = [](const std::vector<Tensor>& x) {
    return run(x, {.scale = Real(0.35)}, {.local_window = 5, .sinks = 2});
  };
  expect_causal(inputs_of({}), 40, attend);
  expect_same_bits_for_any_threads("sink_window",
                                   [&] { return std::vector{attend(inputs_of({}))}; });
}

TEST(SinkWindow, Gradient) {
  for (const Index sliding : {0, 5})
    for (const Real softcap : {Real(0), Real(2)})
      for (const SinkWindowConfig& config : {SinkWindowConfig{.local_window = 2, .sinks = 2},
                                             SinkWindowConfig{.local_window = 20, .sinks = 1}})
        expect_gradients(
            [&](const Variables& x) {
              return sink_window_attention(
                  x[0], x[1], x[2],
                  {.scale = Real(0.4), .softcap = softcap, .sliding_window = sliding}, config);
            },
            inputs_of({.seq_len = 9, .heads = 4, .head_dim = 3}));
}

TEST(SinkWindow, CountsItsPairs) {
  PairCounts pairs;
  run(inputs_of({.seq_len = 10}), {}, {.local_window = 2, .sinks = 1}, &pairs);
  EXPECT_EQ(pairs.all, 2 * 55);
  EXPECT_EQ(pairs.attended, 2 * (1 + 2 + 3 + 7 * 4));
}

TEST(SinkWindow, RefusesSettingsThatMeanNothing) {
  EXPECT_NO_THROW((SinkWindowConfig{.local_window = 0, .sinks = 0}.validate()));
  EXPECT_THROW(SinkWindowConfig{.local_window = -1}.validate(), std::invalid_argument);
  EXPECT_THROW(SinkWindowConfig{.sinks = -1}.validate(), std::invalid_argument);
}

}  // namespace
}  // namespace focus
