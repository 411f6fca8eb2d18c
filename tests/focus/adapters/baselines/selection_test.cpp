#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "tests/support/baseline_case.h"
#include "tests/support/gradcheck.h"

namespace focus {

std::vector<int> random_groups(int groups, std::int64_t seed, Index layer, Index seq_len);

namespace {

/// Settings by their keys.
using Numbers = std::map<std::string, Index>;
using Reads = std::function<MaskRow(const NaiveQuery&)>;

/// A kind of the table under some settings.
struct Settings {
  std::string kind;
  Numbers numbers;
  std::string more = {};  // ", heads: shared"

  Index operator[](const char* key) const { return numbers.at(key); }
  std::string text() const {
    std::string text;
    for (const auto& [key, number] : numbers)
      text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", key, number);
    return "{" + text + more + "}";
  }
};

void read_block(MaskRow& row, const NaiveQuery& q, const AttentionOptions& options, Index block,
                Index size) {
  for (Index j = block * size; j < (block + 1) * size; ++j)
    if (q.sees(j, options)) row[j] = true;
}

/// Lets a query read the `count` keys of largest weight among those that it sees and does not read.
void read_largest(MaskRow& row, const NaiveQuery& q, const AttentionOptions& options, Index count,
                  const std::function<double(Index)>& weight) {
  std::vector<std::pair<double, Index>> distant;
  for (Index j = 0; j <= q.token; ++j)
    if (!row[j] && q.sees(j, options)) distant.emplace_back(weight(j), j);
  for (const Index j : largest_places(distant, count)) row[j] = true;
}

MaskRow moba_reads(const Settings& setup, const NaiveQuery& q, const AttentionOptions& options) {
  const Index size = setup["block_size"], own = q.token / size;
  MaskRow row = local_keys(q, options, own * size, 0);
  std::vector<std::pair<double, Index>> blocks;
  for (Index block = 0; block < own; ++block) {
    if (!q.sees((block + 1) * size - 1, options)) continue;
    double sum = 0;
    for (Index j = block * size; j < (block + 1) * size; ++j)
      for (Index d = 0; d < q.head_dim(); ++d) sum += q.q(d) * q.k(j, d);
    blocks.emplace_back(sum / static_cast<double>(size), block);
  }
  for (const Index block : largest_places(blocks, setup["blocks"]))
    read_block(row, q, options, block, size);
  return row;
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

MaskRow quest_reads(const Settings& setup, const NaiveQuery& q, const AttentionOptions& options) {
  const Index size = setup["page_size"], group = q.heads() / q.kv_heads();
  const Index begin = std::max<Index>(0, q.token - setup["local_window"]) / size * size;
  MaskRow row = local_keys(q, options, begin, setup["sinks"]);
  std::vector<std::pair<double, Index>> pages;
  for (Index page = 0; (page + 1) * size <= begin; ++page) {
    bool has_key = false;
    for (Index j = page * size; j < (page + 1) * size; ++j)
      has_key = has_key || (j >= setup["sinks"] && q.sees(j, options));
    if (!has_key) continue;
    double sum = 0;
    for (Index h = q.kv_head() * group; h < (q.kv_head() + 1) * group; ++h)
      sum += bound({q.x, q.sequence, q.token, h}, page, size);
    pages.emplace_back(sum, page);
  }
  for (const Index page : largest_places(pages, setup["pages"]))
    read_block(row, q, options, page, size);
  return row;
}

MaskRow oracle_reads(const Settings& setup, const NaiveQuery& q, const AttentionOptions& options) {
  MaskRow row = local_keys(q, options, q.token - setup["local_window"], setup["sinks"]);
  std::vector<double> weights(row.size(), 0);
  const Index group = q.heads() / q.kv_heads(), first = q.kv_head() * group;
  for (Index h = first; h < first + group; ++h) {
    if (setup.more.empty() && h != q.head) continue;
    const NaiveQuery other{q.x, q.sequence, q.token, h};
    double total = 0;
    for (Index j = 0; j <= q.token; ++j)
      total += q.sees(j, options) ? std::exp(other.score(j, options)) : 0;
    for (Index j = 0; j <= q.token; ++j) weights[j] += std::exp(other.score(j, options)) / total;
  }
  read_largest(row, q, options, setup["tokens"], [&](Index j) { return weights[j]; });
  return row;
}

/// Its matrices are those of the mechanism, its input is q.
Reads indexer_reads(const Settings& setup, Mechanism& mechanism, const AwkwardCase& c) {
  std::vector<Tensor> index;  // q^I [batch, seq_len, heads * 16], k^I and w
  const Tensor q = inputs_of(c.inputs)[0].reshape(
      {c.inputs.batch, c.inputs.seq_len, c.inputs.heads * c.inputs.head_dim});
  mechanism.visit_parameters([&](const std::string&, Variable& weight) {
    index.push_back(linear(q, weight, {}).value());
  });
  return [setup, index, options = c.options](const NaiveQuery& query) {
    MaskRow row = local_keys(query, options, query.token - setup["local_window"], setup["sinks"]);
    read_largest(row, query, options, setup["tokens"],
                 [&](Index j) { return index_score(index, query.sequence, query.token, j); });
    return row;
  };
}

MaskRow own_group_reads(const Settings& setup, const NaiveQuery& q,
                        const AttentionOptions& options) {
  const auto groups = random_groups(static_cast<int>(setup["groups"]), 1, 0, q.x[0].dim(1));
  MaskRow row = local_keys(q, options, q.token - setup["local_window"], setup["sinks"]);
  for (Index j = 0; j <= q.token; ++j)
    if (q.sees(j, options) && groups[j] == groups[q.token]) row[j] = true;
  return row;
}

Reads reads_of(const Settings& setup, Mechanism& mechanism, const AwkwardCase& c) {
  if (setup.kind == "indexer") return indexer_reads(setup, mechanism, c);
  return [&setup, &c](const NaiveQuery& q) {
    if (setup.kind == "moba") return moba_reads(setup, q, c.options);
    if (setup.kind == "quest") return quest_reads(setup, q, c.options);
    if (setup.kind == "oracle") return oracle_reads(setup, q, c.options);
    if (setup.kind == "random_groups") return own_group_reads(setup, q, c.options);
    return local_keys(q, c.options, q.token - setup["local_window"],
                      setup.kind == "window" ? 0 : setup["sinks"]);
  };
}

void expect_reads(const Settings& setup, const AwkwardCase& c) {
  const auto mechanism = mechanism_of(setup.kind, setup.text(), c.inputs);
  expect_reads(c, *mechanism, reads_of(setup, *mechanism, c));
}

TEST(Selection, ReadsTheKeysOfTheFormula) {
  std::vector<Settings> setups = {
      {"moba", {{"blocks", 2}, {"block_size", 8}}},
      {"moba", {{"blocks", 0}, {"block_size", 5}}},
      {"moba", {{"blocks", 4}, {"block_size", 1}}},
      {"moba", {{"blocks", 1}, {"block_size", 100}}},
      {"quest", {{"pages", 2}, {"page_size", 4}, {"local_window", 6}, {"sinks", 2}}},
      {"quest", {{"pages", 1}, {"page_size", 8}, {"local_window", 0}, {"sinks", 0}}},
      {"quest", {{"pages", 0}, {"page_size", 3}, {"local_window", 2}, {"sinks", 5}}},
      {"quest", {{"pages", 3}, {"page_size", 1}, {"local_window", 1}, {"sinks", 1}}},
      {"quest", {{"pages", 1}, {"page_size", 64}, {"local_window", 2}, {"sinks", 0}}},
      {"indexer", {{"tokens", 5}, {"heads", 3}, {"local_window", 6}, {"sinks", 2}}},
      {"indexer", {{"tokens", 1}, {"heads", 3}, {"local_window", 0}, {"sinks", 0}}},
      {"indexer", {{"tokens", 0}, {"heads", 3}, {"local_window", 3}, {"sinks", 4}}},
      {"sink_window", {{"local_window", 8}, {"sinks", 4}}},
      {"sink_window", {{"local_window", 0}, {"sinks", 1}}},
      {"sink_window", {{"local_window", 7}, {"sinks", 0}}},
      {"sink_window", {{"local_window", 3}, {"sinks", 50}}},
      {"window", {{"local_window", 8}}},
      {"random_groups", {{"groups", 4}, {"local_window", 6}, {"sinks", 2}}},
      {"random_groups", {{"groups", 3}, {"local_window", 0}, {"sinks", 0}}},
      {"random_groups", {{"groups", 64}, {"local_window", 1}, {"sinks", 1}}}};
  for (const std::string more : {"", ", heads: shared"}) {
    setups.push_back({"oracle", {{"tokens", 5}, {"local_window", 6}, {"sinks", 2}}, more});
    setups.push_back({"oracle", {{"tokens", 1}, {"local_window", 0}, {"sinks", 0}}, more});
    setups.push_back({"oracle", {{"tokens", 0}, {"local_window", 40}, {"sinks", 1}}, more});
  }
  for (const AwkwardCase& c : awkward_cases())
    for (const Settings& setup : setups) expect_reads(setup, c);
}

TEST(Selection, SinksOfMoreThanATileOfQueriesAndOfSinks) {
  for (const Index sliding : {0, 170})
    for (const auto& [local_window, sinks] : {std::pair{20, 4}, {90, 150}, {5, 128}})
      expect_reads({"sink_window", {{"local_window", local_window}, {"sinks", sinks}}},
                   {{.seq_len = 301, .heads = 2, .kv_heads = 1},
                    {.scale = Real(0.35), .sliding_window = sliding}});
}

TEST(Selection, IsCausalToTheBitAndForAnyThreads) {
  struct Row {
    const char *kind, *settings;
    std::vector<Index> cuts;
    Index seq_len = 70;
  };
  for (const Row& row :
       {Row{"moba", "{blocks: 2, block_size: 8}", {40, 41, 47}},
        Row{"quest", "{pages: 2, page_size: 4, local_window: 5}", {40, 41, 43}},
        Row{"oracle", "{tokens: 5, local_window: 5}", {41}},
        Row{"oracle", "{tokens: 5, local_window: 5, heads: shared}", {41}},
        Row{"indexer", "{tokens: 5, local_window: 5}", {41}},
        Row{"sparq", "{tokens: 5, rank: 3}", {40}},
        Row{"magicpig", "{bits: 4, tables: 10, local_window: 1}", {50, 64, 100}, 150},
        Row{"performer", "{num_features: 32}", {30, 64, 100}, 130},
        Row{"sink_window", "{local_window: 5, sinks: 2}", {40}},
        Row{"window", "{local_window: 5}", {40}},
        Row{"random_groups", "{groups: 3, local_window: 5, sinks: 2}", {41}}}) {
    SCOPED_TRACE(row.kind);
    const BaselineCase c{.seq_len = row.seq_len};
    const auto mechanism = mechanism_of(row.kind, row.settings, c);
    const auto run = [&](const std::vector<Tensor>& x) {
      return attend(*mechanism, x, {.scale = Real(0.35)});
    };
    for (const Index cut : row.cuts) expect_causal(inputs_of(c), cut, run);
    expect_same_bits_for_any_threads(row.kind, [&] { return std::vector{run(inputs_of(c))}; });
  }
}

TEST(Selection, CountsThePairsItAttends) {
  struct Row {
    const char *kind, *settings;
    Index attended;  // of 10 tokens, whose pairs are 55
  };
  for (const Row& row :
       {Row{"moba", "{blocks: 1, block_size: 4}", 10 + (4 * 4 + 10) + (2 * 4 + 3)},  // own, and one
        Row{"quest", "{pages: 1, page_size: 2, local_window: 1, sinks: 0}",
            1 + 2 + 3 + (2 + 2) + 3 * ((3 + 2) + (2 + 2))},
        Row{"oracle", "{tokens: 2, local_window: 1, sinks: 1}", 1 + 2 + 3 + 4 + 6 * 5},
        Row{"sparq", "{tokens: 3, rank: 2}", 1 + 2 + 8 * 3},
        Row{"sink_window", "{local_window: 2, sinks: 1}", 1 + 2 + 3 + 7 * 4},
        Row{"window", "{local_window: 2}", 1 + 2 + 8 * 3},
        Row{"window", "{local_window: 29}", 55}}) {
    PairCounts pairs;
    const BaselineCase c{.seq_len = 10, .heads = 4};
    attend(*mechanism_of(row.kind, row.settings, c), inputs_of(c), {}, &pairs);
    EXPECT_EQ(pairs.all, 2 * 55) << row.kind;
    EXPECT_EQ(pairs.attended, 2 * row.attended) << row.kind << " " << row.settings;
  }
}

TEST(Selection, GradientOfThoseByPosition) {
  for (const auto& [kind, settings] : {std::pair{"sink_window", "{local_window: 2, sinks: 2}"},
                                       {"sink_window", "{local_window: 20, sinks: 1}"},
                                       {"window", "{local_window: 3}"},
                                       {"random_groups", "{groups: 2, local_window: 2, sinks: 0}"},
                                       {"random_groups", "{groups: 2, local_window: 2, sinks: 1}"}})
    for (const Index sliding : {0, 5})
      for (const Real softcap : {Real(0), Real(2)}) {
        const BaselineCase c{.seq_len = 9, .heads = 4, .head_dim = 3};
        const auto mechanism = mechanism_of(kind, settings, c);
        expect_gradients(
            [&](const Variables& x) {
              return attend(*mechanism, x,
                            {.scale = Real(0.4), .softcap = softcap, .sliding_window = sliding});
            },
            inputs_of(c));
      }
}

TEST(Selection, AtInferenceRefusesToTrain) {
  const Variables x = leaves(inputs_of({}));
  for (const char* kind : {"moba", "quest", "oracle", "sparq", "magicpig", "indexer"}) {
    EXPECT_EQ(find_attention(kind, "test").role == AdapterRole::selection,
              kind != std::string("indexer"));
    const auto mechanism = mechanism_of(kind, "{}", {});
    EXPECT_THROW(attend(*mechanism, x, {}), std::invalid_argument) << kind;
    const NoGrad guard;
    EXPECT_NO_THROW(attend(*mechanism, x, {})) << kind;
  }
}

TEST(Selection, RefusesSettingsThatMeanNothing) {
  for (const auto& [kind, settings] : {std::pair{"moba", "{block_size: 0}"},
                                       {"moba", "{blocks: -1}"},
                                       {"quest", "{page_size: 0}"},
                                       {"quest", "{sinks: -1}"},
                                       {"oracle", "{tokens: -1}"},
                                       {"oracle", "{local_window: -1}"},
                                       {"indexer", "{tokens: -1}"},
                                       {"indexer", "{heads: 0}"},
                                       {"sparq", "{tokens: 0}"},
                                       {"sparq", "{rank: 0}"},
                                       {"sparq", "{last_keys: -1}"},
                                       {"magicpig", "{tables: 1}"},
                                       {"magicpig", "{bits: 33}"},
                                       {"performer", "{num_features: 0}"},
                                       {"routing_transformer", "{num_clusters: 65}"},
                                       {"routing_transformer", "{decay: 1.5}"},
                                       {"sink_window", "{local_window: -1}"},
                                       {"sink_window", "{sinks: -1}"},
                                       {"window", "{local_window: -1}"},
                                       {"random_groups", "{groups: 0}"},
                                       {"random_groups", "{groups: 65}"},
                                       {"random_groups", "{sinks: -1}"}})
    EXPECT_THROW(settings_of(kind, settings), std::runtime_error) << kind << settings;
  EXPECT_NO_THROW(settings_of("quest", "{pages: 0}"));
  EXPECT_NO_THROW(settings_of("sink_window", "{local_window: 0, sinks: 0}"));
  EXPECT_NO_THROW(settings_of("window", "{local_window: 0}"));  // the token itself
}

TEST(Selection, RandomGroupsAreEvenAndOtherOnesForAnotherSeedAndLayer) {
  const std::vector<int> groups = random_groups(5, 7, 0, 5000);
  for (int group = 0; group < 5; ++group)
    EXPECT_NEAR(std::ranges::count(groups, group), 1000, 120) << group;
  const auto same = [&](const std::vector<int>& other) {
    return std::transform_reduce(groups.begin(), groups.end(), other.begin(), 0, std::plus{},
                                 [](int a, int b) { return a == b ? 1 : 0; });
  };
  EXPECT_EQ(same(random_groups(5, 7, 0, 5000)), 5000);
  EXPECT_NEAR(same(random_groups(5, 7, 1, 5000)), 1000, 120);
  EXPECT_NEAR(same(random_groups(5, 8, 0, 5000)), 1000, 120);
  const std::vector<int> first(groups.begin(), groups.begin() + 100);
  EXPECT_EQ(random_groups(5, 7, 0, 100), first);  // a hash of the position alone
  const auto run = [x = inputs_of({})](Index layer) {
    const auto mechanism = mechanism_of("random_groups", "{local_window: 2}", {}, 2);
    return attend(*mechanism, Variables{x[0], x[1], x[2]}, {}, nullptr, layer).value();
  };
  EXPECT_FALSE(same_bits(run(0), run(1)));
}

}  // namespace
}  // namespace focus
