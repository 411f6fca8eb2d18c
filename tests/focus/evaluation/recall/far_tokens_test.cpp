#include <gmock/gmock.h>

#include "data/settings/struct_json.h"
#include "focus/evaluation/recall/long_range.h"
#include "focus/evaluation/report/evaluation_file.h"
#include "tests/support/tiny_session.h"

namespace focus {
namespace {

using testing::HasSubstr;

/// Losses of tokens 1, 2, ... of one text.
TokenLosses losses_of(const std::vector<double>& nats) {
  TokenLosses losses{.nats = nats, .tokens = std::ssize(nats) + 1};
  for (Index token = 1; token < losses.tokens; ++token) {
    losses.before.push_back(token);
    losses.token.push_back(token);
  }
  return losses;
}

EvalText random_text(Index tokens, std::uint64_t seed = 8) {
  return {"tiny", random_ids(static_cast<std::size_t>(tokens), kTinyVocabulary, seed), tokens};
}

TEST(TokenLosses, AreThoseOfTheScore) {
  LoadedModel model = tiny_loaded();
  const EvalText text = random_text(53);
  TokenLosses losses;
  const Row first =
      evaluate(*model.decoder, text, {.context = 16, .stride = 5}, {.losses = &losses});
  ASSERT_EQ(losses.nats.size(), 52U);
  double sum = 0;
  for (std::size_t i = 0; i < losses.nats.size(); ++i) {
    sum += losses.nats[i];
    EXPECT_EQ(losses.token[i], static_cast<Index>(i) + 1);
    EXPECT_LE(losses.before[i], 15);
    EXPECT_GE(losses.before[i], std::min<Index>(static_cast<Index>(i) + 1, 11));
  }
  EXPECT_NEAR(sum / 52, first.nats_per_token, 1e-9);
  // A second text continues where the first ended.
  evaluate(*model.decoder, text, {.context = 16, .stride = 16}, {.losses = &losses});
  EXPECT_EQ(losses.tokens, 106);
  EXPECT_EQ(losses.token[52], 54);
  EXPECT_EQ(losses.nats.size(), 52U + 49U);
}

TEST(FarTokens, TheShortContextIsWhatAModelSeesThatReadsNothingElse) {
  for (const char* family : {"gpt2", "llama"}) {
    LoadedModel model = tiny_loaded(family);
    const EvalText text = random_text(60);
    const FarSettings settings{.context = 8};
    EXPECT_EQ(settings.step(), 2);
    TokenLosses losses;
    evaluate(*model.decoder, text, settings.windows(), {.losses = &losses});
    ASSERT_EQ(losses.nats.size(), 59U);
    const NoGrad guard;
    for (std::size_t i = 0; i < losses.nats.size(); ++i) {
      const auto token = static_cast<Index>(i) + 1;
      const Index before = losses.before[i];
      EXPECT_GE(before, std::min<Index>(token, 8));
      EXPECT_LE(before, 9);
      // Nothing but these tokens is read.
      const std::vector<std::int32_t> seen(text.ids.begin() + (token - before),
                                           text.ids.begin() + token + 1);
      const Variable hidden = model.decoder->hidden_states(seen, 1);
      const double alone =
          model.decoder->cross_entropy_rows(hidden.value(), shifted_targets(seen, 1))
              .at(static_cast<std::size_t>(before) - 1);
      EXPECT_NEAR(losses.nats[i], alone, 1e-4) << family << " " << i;
    }
  }
}

TEST(FarTokens, AreThoseThatGainMoreThanTheMargin) {
  EXPECT_EQ(far_tokens(losses_of({1, 1, 1, 1}), losses_of({1.4, 1.5, 1.51, 0.2}), 0.5),
            (std::vector<bool>{false, false, true, false}));
  // Windows without overlap do not score their first tokens.
  TokenLosses dense = losses_of({1, 1, 1, 1});
  dense.nats.erase(dense.nats.begin() + 1);
  dense.token.erase(dense.token.begin() + 1);
  EXPECT_EQ(far_tokens(dense, losses_of({1, 9, 2, 1}), 0.5),
            (std::vector<bool>{false, true, false}));
  EXPECT_THROW(far_tokens(losses_of({1, 1, 1}), losses_of({1, 1}), 0.5), std::invalid_argument);
}

RowLosses row_of(const std::string& name, const std::vector<double>& nats) {
  return {.attention = {.name = name}, .losses = losses_of(nats)};
}

FarReport example() {
  const RowLosses dense = row_of("dense", {1, 1, 1, 2}), window = row_of("window", {3, 5, 1, 3});
  return far_report(std::vector{dense, row_of("hard", {2, 2, 1, 3}), window}, dense, window,
                    losses_of({2, 3, 1.2, 2.1}), {.context = 64, .margin = 0.5});
}

TEST(FarTokens, KeptIsTheShareOfTheGain) {
  const FarReport report = example();
  EXPECT_EQ(report.tokens, 4);
  EXPECT_EQ(report.far, 2);
  EXPECT_EQ(report.share(), 0.5);
  EXPECT_EQ(report.window, "window");
  ASSERT_EQ(report.rows.size(), 3U);
  EXPECT_EQ(report.rows[0].figures.kept_far, 1);
  EXPECT_EQ(report.rows[2].figures.kept_far, 0);
  const FarFigures& hard = report.rows[1].figures;
  EXPECT_EQ(hard.nats_far, 2);
  EXPECT_EQ(hard.nats_others, 2);
  EXPECT_NEAR(hard.kept_far.value(), (4.0 - 2) / (4 - 1), 1e-12);
  EXPECT_NEAR(hard.kept_all.value(), (3.0 - 2) / (3 - 1.25), 1e-12);
}

TEST(FarTokens, WithoutAGainNothingIsKept) {
  const RowLosses dense = row_of("dense", {1, 1});
  const FarReport report =
      far_report(std::vector{dense}, dense, dense, losses_of({1, 1}), {.context = 64});
  EXPECT_EQ(report.far, 0);
  EXPECT_FALSE(report.rows[0].figures.kept_far || report.rows[0].figures.kept_all);
  EXPECT_TRUE(struct_to_json(report).at("rows")[0].at("kept_far").is_null());
  EXPECT_EQ(far_table(report).rows[0].at(4), "-");
}

TEST(FarTokens, TableAndJsonSayTheSame) {
  const std::string text = far_legend(example()) + plain_text(far_table(example()));
  for (const char* part : {"2 of 4 tokens are long-range (50.00 %)", "64 to 79 tokens", "66.7 %",
                           "57.1 %", "window: window"})
    EXPECT_THAT(text, HasSubstr(part));
  const auto json = struct_to_json(example());
  EXPECT_EQ(json.at("far"), 2);
  EXPECT_EQ(json.at("step"), 16);
  EXPECT_EQ(json.at("rows")[1].at("attention"), "hard");
  EXPECT_NEAR(json.at("rows")[1].at("kept_far").get<double>(), 2.0 / 3, 1e-12);
}

TEST(FarTokens, WhatIsMissingIsMeasured) {
  LoadedModel model = tiny_loaded();
  RunConfig config;
  config.focus = tiny_focus();
  config.focus.summary.sinks = 2;
  Rng rng(3);
  attach_adapters(config, model, rng);
  const std::vector<EvalText> texts = {random_text(60), random_text(40, 9)};
  const EvalSettings settings{.context = 32, .stride = 16};
  const AttentionSpec soft = resolve_attention(parse_attention("soft"), model, "here");
  RowLosses row{.attention = {.name = "soft"}};
  evaluate(model, soft, texts, settings, {.losses = &row.losses});
  const FarReport report = measure_far(model, texts, settings, {.context = 8}, {row});
  ASSERT_EQ(report.rows.size(), 3U);
  EXPECT_EQ(report.tokens, 98);
  EXPECT_EQ(report.rows[0].attention.name, "dense");
  EXPECT_EQ(report.rows[1].attention.name, "soft");
  EXPECT_EQ(report.rows[2].attention.name, report.window);
  EXPECT_EQ(report.window,
            ActiveAttention(model, parse_attention(fmt::format("sink_window:{}:sinks=2",
                                                               config.focus.local_window)))
                .name());
  const Row dense = evaluate(model, {.kind = AttentionKind::dense}, texts, settings);
  const FarFigures& first = report.rows[0].figures;
  const double others = static_cast<double>(report.tokens - report.far) * first.nats_others.value();
  const double far = static_cast<double>(report.far) * first.nats_far.value_or(0);
  EXPECT_NEAR(far + others, dense.nats_per_token * static_cast<double>(dense.tokens_scored), 1e-6);
}

TEST(FarTokens, ThoseOfAnotherModelAreItsOwn) {
  LoadedModel model = tiny_loaded(), other = tiny_loaded("llama");
  other.where = "other.h5";
  const std::vector<EvalText> texts = {random_text(60), random_text(40, 9)};
  const EvalSettings settings{.context = 32, .stride = 16};
  const AttentionSpec window = parse_attention("window:4");
  RowLosses row{.attention = {.name = "window w=4"}};
  evaluate(model, window, texts, settings, {.losses = &row.losses});
  const FarReport own = measure_far(other, texts, settings, {.context = 8, .margin = 0}, {});
  const FarReport report = measure_far(model, texts, settings, {.context = 8, .margin = 0}, {row},
                                       one_process(), &other);
  EXPECT_EQ(report.reference, "other.h5");
  EXPECT_GT(report.far, 0);
  EXPECT_EQ(report.far, own.far);
  ASSERT_EQ(report.rows.size(), 3U);
  EXPECT_EQ(report.rows[0].attention.name, "other.h5: dense");
  EXPECT_EQ(report.rows[0].figures.nats_far, own.rows[0].figures.nats_far);
  EXPECT_EQ(report.rows[1].attention.name, "window w=4");
  EXPECT_EQ(report.rows[2].figures.nats_far, own.rows[1].figures.nats_far);
  EXPECT_THAT(far_legend(report), HasSubstr("tokens are long-range for other.h5 ("));
}

TEST(PositionLosses, BucketsDoubleAndThenGoInQuarters) {
  TokenLosses losses;
  for (Index before = 1; before <= 70; ++before) {
    if (before == 5) continue;
    losses.before.push_back(before);
    losses.nats.push_back(static_cast<double>(before));
  }
  const auto buckets = losses_by_position(losses);
  std::vector<Index> from;
  for (const PositionLoss& bucket : buckets) from.push_back(bucket.from);
  EXPECT_EQ(from, (std::vector<Index>{1, 2, 4, 8, 16, 20, 24, 28, 32, 40, 48, 56, 64}));
  EXPECT_EQ(buckets[1].tokens, 2);
  EXPECT_EQ(buckets[1].nats_per_token, 2.5);
  EXPECT_EQ(buckets[2].tokens, 3);
  EXPECT_EQ(buckets.back().tokens, 7);
  EXPECT_EQ(struct_to_json(buckets[4]).at("from"), 16);
  EXPECT_EQ(struct_to_json(buckets[4]).at("to"), 19);
  // Buckets that hold nothing are left out.
  EXPECT_EQ(losses_by_position({.nats = {1, 3}, .before = {2, 33}}).size(), 2U);
  EXPECT_TRUE(losses_by_position({}).empty());
}

}  // namespace
}  // namespace focus
