#include "focus/adapters/baselines/moba.h"

#include <gtest/gtest.h>

#include "tests/support/baseline_case.h"

namespace focus {
namespace {

Tensor run(const std::vector<Tensor>& x, const AttentionOptions& options, const MobaConfig& config,
           PairCounts* pairs = nullptr) {
  return moba_attention(x[0], x[1], x[2], options, config, pairs).value();
}

MaskRow reads(const NaiveQuery& q, const AttentionOptions& options, const MobaConfig& config) {
  const Index size = config.block_size, own = q.token / size;
  MaskRow row = local_keys(q, options, own * size, 0);
  std::vector<std::pair<double, Index>> blocks;
  for (Index block = 0; block < own; ++block) {
    if (!q.sees((block + 1) * size - 1, options)) continue;
    double sum = 0;
    for (Index j = block * size; j < (block + 1) * size; ++j)
      for (Index d = 0; d < q.head_dim(); ++d) sum += q.q(d) * q.k(j, d);
    blocks.emplace_back(sum / static_cast<double>(size), block);
  }
  for (const Index block : largest_places(blocks, config.blocks))
    for (Index j = block * size; j < (block + 1) * size; ++j)
      if (q.sees(j, options)) row[static_cast<std::size_t>(j)] = true;
  return row;
}

TEST(Moba, ReadsTheBlocksOfTheNearestMeans) {
  for (const AwkwardCase& c : awkward_cases())
    for (const MobaConfig& config :
         {MobaConfig{.blocks = 2, .block_size = 8}, MobaConfig{.blocks = 0, .block_size = 5},
          MobaConfig{.blocks = 4, .block_size = 1}, MobaConfig{.blocks = 1, .block_size = 100}})
      expect_reads(
          c,
          [&](const auto& x, const auto& options, PairCounts* pairs) {
            return run(x, options, config, pairs);
          },
          [&](const NaiveQuery& q) { return reads(q, c.options, config); });
}

TEST(Moba, WithAllBlocksIsDense) {
  for (const AwkwardCase& c : awkward_cases())
    expect_dense(c, [](const auto& x, const auto& options, PairCounts* pairs) {
      return run(x, options, {.blocks = 70, .block_size = 8}, pairs);
    });
}

TEST(Moba, IsCausalToTheBitAndForAnyThreads) {
  const auto attend = [](const std::vector<Tensor>& x) {
    return run(x, {.scale = Real(0.35)}, {.blocks = 2, .block_size = 8});
  };
  for (const Index cut : {40, 41, 47}) expect_causal(inputs_of({}), cut, attend);
  expect_same_bits_for_any_threads("moba", [&] { return std::vector{attend(inputs_of({}))}; });
}

TEST(Moba, CountsThePairsItAttends) {
  PairCounts pairs;
  run(inputs_of({.seq_len = 10, .heads = 4}), {}, {.blocks = 1, .block_size = 4}, &pairs);
  EXPECT_EQ(pairs.all, 2 * 55);
  EXPECT_EQ(pairs.attended, 2 * (10 + (4 * 4 + 10) + (2 * 4 + 3)));  // the own block, and one
}

TEST(Moba, RefusesToTrainAndSettingsThatMeanNothing) {
  const Variables x = leaves(inputs_of({}));
  EXPECT_THROW(moba_attention(x[0], x[1], x[2], {}, {}), std::invalid_argument);
  EXPECT_THROW(MobaConfig{.block_size = 0}.validate(), std::invalid_argument);
  EXPECT_THROW(MobaConfig{.blocks = -1}.validate(), std::invalid_argument);
}

}  // namespace
}  // namespace focus
