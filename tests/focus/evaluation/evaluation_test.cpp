#include "focus/evaluation/evaluation.h"

#include <gmock/gmock.h>

#include <numbers>

#include "data/settings/struct_json.h"
#include "tests/support/compare.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thread_ranks.h"
#include "tests/support/tiny_session.h"

namespace focus {
namespace {

using testing::HasSubstr;

LoadedModel with_focus(const FocusConfig& focus = tiny_focus(Balance::carried)) {
  LoadedModel model = tiny_loaded();
  RunConfig config;
  config.focus = focus;
  Rng rng(3);
  attach_adapters(config, model, rng);
  return model;
}

LoadedModel with_keys() { return with_focus(tiny_keys()); }

AttentionSpec spec_of(const std::string& word, LoadedModel& model) {
  return resolve_attention(parse_attention(word), model, "here");
}

EvalText tiny_text(Index tokens = 60) {
  return {"tiny", random_ids(tokens, kTinyVocabulary, 8), 4 * tokens};
}

std::vector<std::string> names_of(LoadedModel& model, const std::vector<std::string>& words,
                                  DefaultBalance unsaid = DefaultBalance::causal_and_trained) {
  std::vector<std::string> names;
  for (const AttentionSpec& spec : resolve_words(words, model, unsaid, "here"))
    names.push_back(ActiveAttention(model, spec).title());
  return names;
}
using Words = std::vector<std::string>;

void expect_refused(LoadedModel& model, const std::string& word, const std::string& part) {
  EXPECT_THAT(error_of([&] { names_of(model, {word}); }), HasSubstr(part)) << word;
}

TEST(AttentionSpec, WordsAreReadInOneWay) {
  EXPECT_EQ(parse_attention("hard").top_k, 1);
  EXPECT_EQ(parse_attention("hard:2").top_k, 2);
  EXPECT_EQ(parse_attention("hard:k=2:gate=drop").gate, HardGate::drop);
  EXPECT_EQ(parse_attention("soft:sinks=4").summary.sinks, 4);
  EXPECT_EQ(parse_attention("focus").top_k, 0);
  EXPECT_EQ(parse_attention("focus:gate=keep").top_k, 0);
  EXPECT_EQ(parse_attention("focus:2").top_k, 2);
  EXPECT_EQ(parse_attention("soft:balance=sequence").balance, Balance::sequence);
  EXPECT_EQ(parse_attention("routing:4").mechanism, "routing_transformer");
  EXPECT_EQ(dump_config(*parse_attention("window:9").settings), "local_window: 9\n");
}

TEST(AttentionSpec, MistakesNameTheWord) {
  for (const auto& [word, part] :
       {std::pair("sparc:3", "sparc"), std::pair("hard:0", "hard:0"), std::pair("hard:x", "hard:x"),
        std::pair("dense:3", "no settings"), std::pair("window:3:4", "KEY=VALUE")})
    EXPECT_THAT(error_of([&] { parse_attention(word, "--attention"); }), HasSubstr(part));
}

TEST(AttentionSpec, ResolvesForTheModel) {
  LoadedModel dense = tiny_loaded(), focus = with_focus(),
              leaky = with_focus(tiny_focus(Balance::sequence));
  EXPECT_EQ(names_of(dense, {}), (Words{"dense"}));
  EXPECT_EQ(names_of(focus, {"local", "focus:1", "soft", "hard:1", "hard:2:gate=drop"}),
            (Words{"local only", "soft, carried", "hard k=1 keep, carried", "hard k=2, carried"}));
  EXPECT_EQ(names_of(focus, {"soft", "soft:sinks=0", "soft:sinks=2", "hard:1:sinks=2"}),
            (Words{"soft, carried", "soft sinks=2, carried", "hard k=1 keep sinks=2, carried"}));
  EXPECT_EQ(names_of(leaky, {"soft"}), (Words{"soft, carried", "soft, sequence (not causal)"}));
  EXPECT_EQ(names_of(leaky, {"soft"}, DefaultBalance::trained),
            (Words{"soft, sequence (not causal)"}));
  EXPECT_EQ(names_of(dense, {"window:5", "dense"}), (Words{"window w=5", "dense"}));
  expect_refused(dense, "soft", "no Focus");
  expect_refused(focus, "hard:5", "4 groups");
  expect_refused(focus, "trained", "trained");
}

TEST(AttentionSpec, SummarySettingsAreReadAndCompleted) {
  const AttentionSpec bare = parse_attention("summary");
  EXPECT_EQ(bare.kind, AttentionKind::summary);
  EXPECT_TRUE(bare.needs_focus());
  EXPECT_EQ(bare.summary, SummaryFields<std::optional>{});
  EXPECT_EQ(parse_attention("summary:0").summary.num_selected_groups, 0);
  const SummaryFields<std::optional> all =
      parse_attention(
          "summary:1:selection=mass:unselected_groups=drop:local_window=20:block=8:sinks=3")
          .summary;
  EXPECT_EQ(all, (SummaryFields<std::optional>{.local_window = 20,
                                               .block = 8,
                                               .sinks = 3,
                                               .num_selected_groups = 1,
                                               .selection = GroupSelection::mass,
                                               .unselected_groups = UnselectedGroups::drop}));
  FocusConfig config;
  config.num_groups = 4;
  config.summary.selection = GroupSelection::own;
  config.summary.sinks = 5;
  // A number of groups sets their selection, too; the rest is the adapter's.
  const AttentionSpec mass = parse_attention("summary:3").or_from(config);
  EXPECT_EQ(mass.kind, AttentionKind::summary);
  EXPECT_EQ(mass.summary.num_selected_groups, 3);
  EXPECT_EQ(mass.summary.selection, GroupSelection::mass);
  EXPECT_EQ(mass.summary.sinks, 5);
  EXPECT_EQ(mass.summary.local_window, config.local_window);
  const AttentionSpec own = bare.or_from(config);
  EXPECT_EQ(own.summary.selection, GroupSelection::own);
  EXPECT_EQ(own.summary.num_selected_groups, 1);
  for (const char* wrong :
       {"summary:257", "summary:-1", "summary:x", "summary:1:2", "summary:unselected_groups=some",
        "summary:block=0", "summary:sinks=65", "summary:window=3"})
    EXPECT_THAT(error_of([&] { parse_attention(wrong, "--attention"); }), HasSubstr(wrong));
}

TEST(AttentionSpec, GroupsOfKeysHaveSummaryAlone) {
  LoadedModel keys = with_keys(), tokens = with_focus();
  EXPECT_EQ(names_of(keys, {}), (Words{"dense", "summary m=2 w=4, keys"}));
  EXPECT_EQ(
      names_of(keys, {"focus", "summary", "summary:2", "summary:0:unselected_groups=drop:block=1"}),
      (Words{"summary m=2 w=4, keys", "selection m=0 w=4 block=1, keys"}));
  EXPECT_EQ(names_of(keys, {"local"}), (Words{"local only"}));
  EXPECT_EQ(names_of(tokens, {"summary:1", "summary:selection=own:local_window=9:sinks=0"}),
            (Words{"summary m=1 w=4, carried", "summary own w=9 sinks=0, carried"}));
  EXPECT_EQ(own_attention(keys).kind, AttentionKind::summary);
  expect_refused(keys, "soft", "groups keys and supports only summary:M");
  expect_refused(keys, "hard:1", "groups keys and supports only summary:M");
  expect_refused(keys, "summary:selection=own", "selection own is for groups of tokens");
  expect_refused(keys, "summary:5", "4 groups");
  LoadedModel dense = tiny_loaded();
  expect_refused(dense, "summary:1", "no Focus");
}

TEST(ActiveAttention, LeavesTheModelAsItWas) {
  LoadedModel model = with_focus();
  const NoGrad guard;
  const auto hidden = [&] {
    return model.decoder->hidden_states(random_ids(20, kTinyVocabulary, 2), 1).value();
  };
  const Tensor before = hidden();
  for (const char* word : {"dense", "local", "hard:1", "window:3"}) {
    {
      const ActiveAttention active(model, spec_of(word, model));
      EXPECT_FALSE(same_bits(hidden(), before)) << word;
    }
    EXPECT_TRUE(same_bits(hidden(), before)) << word;
  }
}

TEST(ActiveAttention, SummaryTokensDifferByLayerWhereTheSpecSaysSo) {
  LoadedModel model = with_keys();
  const NoGrad guard;
  const auto hidden = [&](const std::string& word) {
    const ActiveAttention active(model, spec_of(word, model));
    return model.decoder->hidden_states(random_ids(20, kTinyVocabulary, 2), 1).value();
  };
  EXPECT_TRUE(same_bits(hidden("summary:m_by_layer=1+1+1"), hidden("summary:1")));
  EXPECT_FALSE(same_bits(hidden("summary:block=1:m_by_layer=1+0+1"), hidden("summary:1:block=1")));
  // A layer that reads every group is a dense one.
  EXPECT_LT(relative_difference(hidden("summary:block=1:m_by_layer=4+4+4"), hidden("dense")), 1e-5);
  EXPECT_TRUE(same_bits(hidden("summary:1:w_by_layer=7+7+7"), hidden("summary:1:local_window=7")));
  EXPECT_EQ(names_of(model, {"summary:m_by_layer=4+0+1", "summary:1:w_by_layer=0+2+1"}),
            (Words{"summary m=4+0+1 by layer w=4, keys", "summary m=1 w=0+2+1 by layer, keys"}));
  for (const auto& [word, part] :
       {std::pair("summary:m_by_layer=", "not a list of numbers"),
        std::pair("summary:m_by_layer=1+", "not a list of numbers"),
        std::pair("summary:m_by_layer=-1", "not a list of numbers"),
        std::pair("summary:m_by_layer=1+2", "2 values for 3 layers"),
        std::pair("summary:m_by_layer=1+2+5", "has 4 groups"),
        std::pair("summary:w_by_layer=1+2", "w_by_layer has 2 values for 3 layers")})
    expect_refused(model, word, part);
}

TEST(Evaluation, EveryTokenButTheFirstIsScoredOnce) {
  LoadedModel model = tiny_loaded();
  const EvalText text = tiny_text(53);
  for (const Index stride : {1, 5, 8}) {
    const Row row = evaluate(*model.decoder, text, {.context = 16, .stride = stride});
    EXPECT_EQ(row.tokens_scored, 52) << stride;
    EXPECT_NEAR(row.bits_per_byte * 4 * 53 * std::numbers::ln2, row.nats_per_token * 52, 1e-9);
  }
  // Windows that do not overlap: the first token of each has nothing before it.
  EXPECT_EQ(evaluate(*model.decoder, text, {.context = 16, .stride = 16}).tokens_scored, 49);
}

TEST(Evaluation, OneWindowIsTheLoss) {
  LoadedModel model = tiny_loaded();
  const EvalText text = tiny_text(30);
  const Row row = evaluate(*model.decoder, text, {.context = 30, .stride = 30});
  const NoGrad guard;
  const double loss = static_cast<double>(model.decoder->loss(text.ids, 1).value()[0]);
  EXPECT_NEAR(row.nats_per_token, loss, 1e-5);
}

TEST(Evaluation, RowsSayWhatRan) {
  LoadedModel model = with_focus();
  const std::vector<EvalText> texts = {tiny_text(), tiny_text(30)};
  const EvalSettings settings = EvalSettings{.context = 16}.for_model(model);
  EXPECT_EQ(settings.stride, 8);
  const auto row = [&](const char* word) {
    return evaluate(model, spec_of(word, model), texts, settings);
  };
  const Row dense = row("dense"), soft = row("soft"), hard = row("hard:1"), all = row("hard:4"),
            local = row("local"), window = row("window:4");
  EXPECT_EQ(dense.attention.kind, AttentionKind::dense);
  EXPECT_FALSE(dense.attention.routing || dense.largest_group);
  EXPECT_EQ(soft.attention.routing, "carried");
  EXPECT_EQ(hard.attention.name, "hard k=1 keep");
  EXPECT_EQ(hard.attention.kind, AttentionKind::hard);
  EXPECT_EQ(hard.attention.gate, HardGate::keep);
  EXPECT_LT(hard.pairs_attended, 1);
  EXPECT_EQ(all.pairs_attended, 1);
  EXPECT_EQ(window.attention.kind, AttentionKind::baseline);
  EXPECT_EQ(window.settings.value(),
            (std::vector<std::pair<std::string, std::string>>{{"local_window", "4"}}));
  // tiny_focus()'s w is 4 as well: one convention.
  EXPECT_EQ(local.pairs_attended, window.pairs_attended);
  EXPECT_NEAR(local.nats_per_token, window.nats_per_token, 1e-5);
  // Each text's own loss, whose mean over tokens is the whole's.
  double nats = 0;
  for (std::size_t i = 0; i < texts.size(); ++i)
    nats += hard.nats_of_documents->at(i) * static_cast<double>(texts[i].scored());
  EXPECT_NEAR(nats, hard.nats_per_token * static_cast<double>(hard.tokens_scored), 1e-9);
}

TEST(Evaluation, AgainstDenseIsZeroForDenseAndPairedForOthers) {
  LoadedModel model = with_keys();
  EvalSettings settings{.context = 40, .stride = 20, .against = Against::dense};
  const std::vector<EvalText> texts = {tiny_text()};
  const Row dense = evaluate(model, {}, texts, settings);
  EXPECT_NEAR(dense.kl.value(), 0, 1e-6);
  EXPECT_EQ(dense.nats_against_dense, 0);
  const auto row_of = [&](const std::string& word) {
    return evaluate(model, spec_of(word, model), texts, settings);
  };
  const Row drop = row_of("summary:0:unselected_groups=drop:local_window=0:block=1:sinks=0");
  EXPECT_GT(drop.kl.value(), 1e-4);
  EXPECT_GT(drop.nats_against_dense_error.value(), 0);
  EXPECT_NEAR(drop.nats_against_dense.value(), drop.nats_per_token - dense.nats_per_token, 1e-6);
  // All groups read exactly: dense attention.
  const Row all = row_of("summary:4");
  EXPECT_NEAR(all.kl.value(), 0, 1e-6);
  EXPECT_NEAR(all.nats_against_dense.value(), 0, 1e-5);
  settings.against = Against::none;
  EXPECT_FALSE(row_of("summary").kl);
}

TEST(Evaluation, RowsShareWhatDenseAttentionPredicts) {
  LoadedModel model = with_keys();
  const EvalSettings settings{.context = 40, .stride = 20, .against = Against::dense};
  const std::vector<EvalText> texts = {tiny_text(), tiny_text(90)};
  DenseReference shared;
  for (const char* word : {"summary:0:block=1", "window:3", "dense"}) {
    const AttentionSpec spec = spec_of(word, model);
    const Row alone = evaluate(model, spec, texts, settings);
    const Row shared_row = evaluate(model, spec, texts, settings, {.dense = &shared});
    EXPECT_EQ(shared_row.kl, alone.kl) << word;
    EXPECT_EQ(shared_row.nats_against_dense, alone.nats_against_dense) << word;
    EXPECT_EQ(shared_row.nats_per_token, alone.nats_per_token) << word;
  }
}

/// What an evaluation of several texts says, as text.
std::string said_by(Ranks& ranks, const char* word) {
  LoadedModel model = with_focus();
  // One pass holds 256 windows of 16 tokens.
  const std::vector<EvalText> texts = {tiny_text(700), tiny_text(30), tiny_text(600)};
  const EvalSettings settings{.context = 16, .stride = 1, .against = Against::dense};
  Row row = evaluate(model, spec_of(word, model), texts, settings, {.ranks = &ranks});
  EXPECT_EQ(row.tokens_scored, 699 + 29 + 599);
  row.tokens_per_second.reset();
  return struct_to_json(row).dump();
}

TEST(Evaluation, ProcessesThatShareItHaveTheFiguresOfOne) {
  for (const char* word : {"soft", "hard:1", "window:4", "dense"}) {
    SCOPED_TRACE(word);
    const auto wanted = said_by(one_process(), word);
    for (const int count : {2, 3, 9})  // more than there are passes, too
      ThreadRanks::run(count, [&](Ranks& ranks) { EXPECT_EQ(said_by(ranks, word), wanted); });
  }
}

TEST(Evaluation, RefusesWindowsThatDoNotFit) {
  LoadedModel model = tiny_loaded();
  EXPECT_THROW((EvalSettings{.context = 100000}.for_model(model)), std::invalid_argument);
  EXPECT_THROW((EvalSettings{.context = 16, .stride = 17}.for_model(model)), std::invalid_argument);
  EXPECT_THROW(evaluate(*model.decoder, {"one", {1}, 1}, {.context = 16, .stride = 8}),
               std::runtime_error);
}

/// -log p of each token of `ids` but the first.
std::vector<double> nats_of(const Decoder& decoder, const std::vector<std::int32_t>& ids) {
  const NoGrad guard;
  auto nats =
      decoder.cross_entropy_rows(decoder.hidden_states(ids, 1).value(), shifted_targets(ids, 1));
  nats.pop_back();
  return nats;
}

TEST(Evaluation, ATokenBeforeEachWindowIsItsFirst) {
  const LoadedModel model = tiny_loaded();
  EvalText text = tiny_text(23);
  text.window_start = 3;
  const Row row = evaluate(*model.decoder, text, {.context = 8, .stride = 5});
  double expected = 0;
  std::size_t scored = 0;
  for (std::size_t begin = 0; scored < text.ids.size(); begin += 5) {
    const std::size_t end = std::min(begin + 7, text.ids.size());
    std::vector<std::int32_t> window(text.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                     text.ids.begin() + static_cast<std::ptrdiff_t>(end));
    window.insert(window.begin(), 3);
    const std::vector<double> nats = nats_of(*model.decoder, window);
    expected = std::accumulate(nats.end() - static_cast<std::ptrdiff_t>(end - scored), nats.end(),
                               expected);
    scored = end;
  }
  ASSERT_EQ(row.tokens_scored, std::ssize(text.ids));  // the first one too
  EXPECT_NEAR(row.nats_per_token, expected / static_cast<double>(text.ids.size()), 1e-5);
  EXPECT_THROW(evaluate(*model.decoder, text, {.context = 8, .stride = 8}), std::invalid_argument);
}

std::string problem(const EvalSettings& settings, const std::string& family) {
  return error_of([&] { settings.for_model(tiny_loaded(family)); });
}

TEST(Positions, RotaryOnesGoOnWhereTheUserSaysSoAndLearnedOnesEnd) {
  EXPECT_EQ(problem({.context = 128}, "llama"), "");
  EXPECT_THAT(problem({.context = 129}, "llama"), HasSubstr("--beyond-positions"));
  EXPECT_EQ(problem({.context = 129, .beyond_positions = true}, "llama"), "");
  EXPECT_EQ(problem({.context = 128, .beyond_positions = true}, "gpt2"), "");
  for (const bool beyond : {false, true}) {
    const std::string error = problem({.context = 129, .beyond_positions = beyond}, "gpt2");
    EXPECT_THAT(error, HasSubstr("128 positions"));
    EXPECT_THAT(error, Not(HasSubstr("--beyond-positions"))) << "no way out for it";
  }
}

TEST(Positions, WhoGoesOnIsTold) {
  EXPECT_EQ(positions_notice(tiny_loaded("llama"), 128), "");
  EXPECT_THAT(positions_notice(tiny_loaded("llama"), 129),
              AllOf(HasSubstr("129 tokens"), HasSubstr("128 positions")));
}

TEST(Positions, WhatStandsBeyondTheTableIsEvaluated) {
  LoadedModel model = tiny_loaded("llama");
  const EvalText text{"tiny", random_ids(300, kTinyVocabulary, 8), 300};
  const EvalSettings settings =
      EvalSettings{.context = 300, .beyond_positions = true}.for_model(model);
  const auto far = nats_of(*model.decoder, text.ids);
  const auto near = nats_of(*model.decoder, {text.ids.begin(), text.ids.begin() + 128});
  ASSERT_EQ(far.size(), 299U);
  for (std::size_t i = 0; i < 127; ++i) EXPECT_NEAR(far[i], near[i], 1e-4) << i;
  EXPECT_NEAR(evaluate(*model.decoder, text, settings).nats_per_token,
              std::accumulate(far.begin(), far.end(), 0.0) / 299, 1e-4);
}

}  // namespace
}  // namespace focus
