#include "focus/adapters/baselines/oracle.h"

#include <gtest/gtest.h>

#include "tests/support/baseline_case.h"

namespace focus {
namespace {

Tensor run(const std::vector<Tensor>& x, const AttentionOptions& options,
           const OracleConfig& config, PairCounts* pairs = nullptr) {
  return oracle_attention(x[0], x[1], x[2], options, config, pairs).value();
}

MaskRow reads(const NaiveQuery& q, const AttentionOptions& options, const OracleConfig& config) {
  MaskRow row = local_keys(q, options, q.token - config.local_window, config.sinks);
  std::vector<double> weights(row.size(), 0);
  const Index group = q.heads() / q.kv_heads(), first = q.kv_head() * group;
  for (Index h = first; h < first + group; ++h) {
    if (config.heads == OracleHeads::each && h != q.head) continue;
    const NaiveQuery other{q.x, q.sequence, q.token, h};
    double total = 0;
    for (Index j = 0; j <= q.token; ++j)
      total += q.sees(j, options) ? std::exp(other.score(j, options)) : 0;
    for (Index j = 0; j <= q.token; ++j)
      weights[static_cast<std::size_t>(j)] += std::exp(other.score(j, options)) / total;
  }
  std::vector<std::pair<double, Index>> distant;
  for (Index j = 0; j <= q.token; ++j)
    if (const auto at = static_cast<std::size_t>(j); !row[at] && q.sees(j, options))
      distant.emplace_back(weights[at], j);
  for (const Index j : largest_places(distant, config.tokens))
    row[static_cast<std::size_t>(j)] = true;
  return row;
}

TEST(Oracle, ReadsTheHeaviestKeysOfEachHeadOrOfAll) {
  for (const AwkwardCase& c : awkward_cases())
    for (const OracleHeads heads : {OracleHeads::each, OracleHeads::shared})
      for (OracleConfig config : {OracleConfig{.tokens = 5, .local_window = 6, .sinks = 2},
                                  OracleConfig{.tokens = 1, .local_window = 0, .sinks = 0},
                                  OracleConfig{.tokens = 0, .local_window = 40, .sinks = 1}}) {
        config.heads = heads;
        expect_reads(
            c,
            [&](const auto& x, const auto& options, PairCounts* pairs) {
              return run(x, options, config, pairs);
            },
            [&](const NaiveQuery& q) { return reads(q, c.options, config); });
      }
}

TEST(Oracle, HeadsThatShareKeysMayWantOthers) {
  const auto x = inputs_of({.heads = 6});
  EXPECT_FALSE(
      same_bits(run(x, {}, {.tokens = 4, .heads = OracleHeads::each, .local_window = 3}),
                run(x, {}, {.tokens = 4, .heads = OracleHeads::shared, .local_window = 3})));
}

TEST(Oracle, WithAllTokensIsDense) {
  for (const AwkwardCase& c : awkward_cases())
    for (const OracleHeads heads : {OracleHeads::each, OracleHeads::shared})
      expect_dense(c, [heads](const auto& x, const auto& options, PairCounts* pairs) {
        return run(x, options, {.tokens = 70, .heads = heads, .local_window = 5}, pairs);
      });
}

TEST(Oracle, IsCausalToTheBitAndForAnyThreads) {
  for (const OracleHeads heads : {OracleHeads::each, OracleHeads::shared}) {
    const auto attend = [heads](const std::vector<Tensor>& x) {
      return run(x, {.scale = Real(0.35)}, {.tokens = 5, .heads = heads, .local_window = 5});
    };
    expect_causal(inputs_of({}), 41, attend);
    expect_same_bits_for_any_threads("oracle", [&] { return std::vector{attend(inputs_of({}))}; });
  }
}

TEST(Oracle, CountsThePairsItAttends) {
  PairCounts pairs;
  run(inputs_of({.seq_len = 10, .heads = 4}), {}, {.tokens = 2, .local_window = 1, .sinks = 1},
      &pairs);
  EXPECT_EQ(pairs.all, 2 * 55);
  EXPECT_EQ(pairs.attended, 2 * (1 + 2 + 3 + 4 + 6 * 5));
}

TEST(Oracle, RefusesToTrainAndSettingsThatMeanNothing) {
  const Variables x = leaves(inputs_of({}));
  EXPECT_THROW(oracle_attention(x[0], x[1], x[2], {}, {}), std::invalid_argument);
  EXPECT_THROW(OracleConfig{.tokens = -1}.validate(), std::invalid_argument);
}

}  // namespace
}  // namespace focus
