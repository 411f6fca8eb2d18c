#include "focus/adapters/baselines/quest.h"

#include <gtest/gtest.h>

#include "tests/support/baseline_case.h"

namespace focus {
namespace {

Tensor run(const std::vector<Tensor>& x, const AttentionOptions& options, const QuestConfig& config,
           PairCounts* pairs = nullptr) {
  return quest_attention(x[0], x[1], x[2], options, config, pairs).value();
}

/// The most that a head's query could score on a page.
double bound(const NaiveQuery& q, Index page, Index size) {
  double sum = 0;
  for (Index d = 0; d < q.head_dim(); ++d) {
    double least = INFINITY, greatest = -INFINITY;
    for (Index j = page * size; j < (page + 1) * size; ++j) {
      least = std::min(least, q.k(j, d));
      greatest = std::max(greatest, q.k(j, d));
    }
    sum += std::max(q.q(d) * least, q.q(d) * greatest);
  }
  return sum;
}

MaskRow reads(const NaiveQuery& q, const AttentionOptions& options, const QuestConfig& config) {
  const Index size = config.page_size;
  const Index begin = std::max<Index>(0, q.token - config.local_window) / size * size;
  MaskRow row = local_keys(q, options, begin, config.sinks);
  std::vector<std::pair<double, Index>> pages;
  for (Index page = 0; (page + 1) * size <= begin; ++page) {
    bool has_key = false;
    for (Index j = page * size; j < (page + 1) * size; ++j)
      has_key = has_key || (j >= config.sinks && q.sees(j, options));
    if (!has_key) continue;
    const Index group = q.heads() / q.kv_heads();
    double sum = 0;
    for (Index h = q.kv_head() * group; h < (q.kv_head() + 1) * group; ++h)
      sum += bound({q.x, q.sequence, q.token, h}, page, size);
    pages.emplace_back(sum, page);
  }
  for (const Index page : largest_places(pages, config.pages))
    for (Index j = page * size; j < (page + 1) * size; ++j)
      if (q.sees(j, options)) row[static_cast<std::size_t>(j)] = true;
  return row;
}

TEST(Quest, ReadsThePagesOfTheLargestBounds) {
  for (const AwkwardCase& c : awkward_cases())
    for (const QuestConfig& config :
         {QuestConfig{.pages = 2, .page_size = 4, .local_window = 6, .sinks = 2},
          QuestConfig{.pages = 1, .page_size = 8, .local_window = 0, .sinks = 0},
          QuestConfig{.pages = 0, .page_size = 3, .local_window = 2, .sinks = 5},
          QuestConfig{.pages = 3, .page_size = 1, .local_window = 1, .sinks = 1},
          QuestConfig{.pages = 1, .page_size = 64, .local_window = 2, .sinks = 0}})
      expect_reads(
          c,
          [&](const auto& x, const auto& options, PairCounts* pairs) {
            return run(x, options, config, pairs);
          },
          [&](const NaiveQuery& q) { return reads(q, c.options, config); });
}

TEST(Quest, WithAllPagesIsDense) {
  for (const AwkwardCase& c : awkward_cases())
    expect_dense(c, [](const auto& x, const auto& options, PairCounts* pairs) {
      return run(x, options, {.pages = 70, .page_size = 4, .local_window = 5, .sinks = 1}, pairs);
    });
}

TEST(Quest, IsCausalToTheBitAndForAnyThreads) {
  const auto attend = [](const std::vector<Tensor>& x) {
    return run(x, {.scale = Real(0.35)}, {.pages = 2, .page_size = 4, .local_window = 5});
  };
  for (const Index cut : {40, 41, 43}) expect_causal(inputs_of({}), cut, attend);
  expect_same_bits_for_any_threads("quest", [&] { return std::vector{attend(inputs_of({}))}; });
}

TEST(Quest, CountsThePairsItAttends) {
  PairCounts pairs;
  run(inputs_of({.seq_len = 10, .heads = 4}), {},
      {.pages = 1, .page_size = 2, .local_window = 1, .sinks = 0}, &pairs);
  EXPECT_EQ(pairs.all, 2 * 55);
  EXPECT_EQ(pairs.attended, 2 * (1 + 2 + 3 + (2 + 2) + 3 * ((3 + 2) + (2 + 2))));
}

TEST(Quest, RefusesToTrainAndSettingsThatMeanNothing) {
  const Variables x = leaves(inputs_of({}));
  EXPECT_THROW(quest_attention(x[0], x[1], x[2], {}, {}), std::invalid_argument);
  EXPECT_THROW(QuestConfig{.page_size = 0}.validate(), std::invalid_argument);
  EXPECT_THROW(QuestConfig{.sinks = -1}.validate(), std::invalid_argument);
  EXPECT_NO_THROW(QuestConfig{.pages = 0}.validate());
}

}  // namespace
}  // namespace focus
