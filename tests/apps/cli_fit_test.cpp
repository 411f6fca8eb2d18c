#include "data/tensors/safetensors.h"
#include "tests/support/cli.h"

// `focus fit`, and what the other commands do with groups of keys.
namespace focus {
namespace {

Words fit(const Words& more) {
  return Words{"fit",
               cli().base(),
               "--text",
               cli().train_text(),
               "--num-groups",
               "4",
               "--tokens",
               "512",
               "--local-window",
               "4",
               "--block",
               "4",
               "--context",
               "64"} +
         more;
}

/// The adapter of fit(), made once.
std::string fitted_keys() {
  static const std::string path = [] {
    const std::string out = cli().fresh("keys.h5");
    cli().must_run(fit({"--out", out}));
    return out;
  }();
  return path;
}

Words with_keys(const std::string& command, const Words& more) {
  return Words{command, cli().base(), "--adapter", fitted_keys()} + more;
}
Words evaluate(const Words& more) {
  return with_keys("eval", Words{"--text", cli().valid_text(), "--context", "64"} + more);
}

TEST(CliFit, WritesAnAdapterAndSaysWhatItMade) {
  const std::string out = cli().fresh("keys.h5");
  const ProcessResult result = cli().must_run(fit({"--out", out}));
  for (const char* part : {"4 groups for each of 4 key heads in 2 layers", "fitted on 512 tokens",
                           "a query head selects 1 to "})
    EXPECT_TRUE(contains(result.out, part)) << part << " in\n" << result.out;
  const std::string info = cli().must_run({"info", out}).out;
  EXPECT_TRUE(contains(info, "head_budgets           1 to ")) << info;
}

TEST(CliFit, IsTheSameEveryTimeAndAnotherForAnotherSeed) {
  const std::string again = cli().fresh("keys.h5"), other = cli().fresh("keys.h5");
  cli().must_run(fit({"--out", again, "--threads", "2"}));
  cli().must_run(fit({"--out", other, "--seed", "2"}));
  expect_same_store(again, fitted_keys());
  const StoreReader a(fitted_keys()), b(other);
  EXPECT_FALSE(
      same_bits(a.tensor("/focus/layer_000/centroids"), b.tensor("/focus/layer_000/centroids")));
}

TEST(CliFit, BadInputIsOneLine) {
  const std::string out = cli().fresh("keys.h5");
  const auto refused = [&](const Words& more, const Words& parts) {
    expect_refused(Words{"fit", cli().base(), "--text", cli().train_text(), "--out", out} + more,
                   parts);
    EXPECT_FALSE(fs::exists(out));
  };
  refused({"--num-groups", "3", "--num-selected-groups", "4"},
          {"focus.summary.num_selected_groups", "num_groups 3"});
  refused({"--text", "nowhere.txt"}, {"nowhere.txt"});
  refused({"--context", "200"}, {"context 200", "positions"});
  expect_refused(fit({"--out", fitted_keys()}), {"exists already", "--overwrite"});
  expect_refused({"fit", "nowhere.h5", "--text", cli().train_text(), "--out", out}, {"nowhere.h5"});
}

TEST(CliFit, TheAdapterIsForItsBaseAlone) {
  expect_refused(
      {"eval", cli().other_base(), "--adapter", fitted_keys(), "--text", cli().valid_text()},
      {"base"});
}

TEST(CliKeys, EvalAgainstDense) {
  const auto json = cli().figures(
      evaluate({"--against-dense", "--attention", "dense,local,summary:0,summary:1,summary:4"}));
  const auto& rows = json.at("rows");
  ASSERT_EQ(rows.size(), 5u);
  const auto of_dense = [&](std::size_t row, const char* key) {
    return rows.at(row).at(key).get<double>();
  };
  EXPECT_EQ(of_dense(0, "nats_against_dense"), 0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double difference =
        std::log(rows[i].at("perplexity").get<double>() / rows[0].at("perplexity").get<double>());
    EXPECT_NEAR(of_dense(i, "nats_against_dense"), difference, 1e-5) << rows[i];
  }
  EXPECT_GT(of_dense(1, "kl"), of_dense(3, "kl"));
  EXPECT_GT(of_dense(2, "nats_against_dense_error"), 0);
  EXPECT_NEAR(of_dense(4, "kl"), 0, 1e-5);  // all groups: dense
  EXPECT_LT(rows[1].at("pairs_attended"), rows[2].at("pairs_attended"));
  EXPECT_LT(rows[2].at("pairs_attended"), rows[3].at("pairs_attended"));
  EXPECT_EQ(rows[4].at("pairs_attended"), 1.0);
  EXPECT_TRUE(rows[3].at("entropy").is_null());
  EXPECT_EQ(rows[3].at("routing"), "keys");
  EXPECT_GT(rows[3].at("largest_group"), 0.24);
  EXPECT_LE(rows[3].at("largest_group"), 1.0);
  const ProcessResult table = cli().must_run(evaluate({"--against-dense"}));
  EXPECT_TRUE(contains(table.out, "KL  nats against dense")) << table.out;
  EXPECT_FALSE(contains(table.out, "balanced: ")) << table.out;
  EXPECT_FALSE(contains(table.out, "nan")) << table.out;
}

TEST(CliKeys, WhatTheyDoNotHaveIsRefused) {
  for (const char* word : {"soft", "hard"})
    expect_refused(evaluate({"--attention", word}), {word, "groups keys"});
  expect_refused(evaluate({"--attention", "summary:5"}), {"summary:5", "4 groups"});
  expect_refused(evaluate({"--attention", "summary:selection=own"}), {"selection own"});
  expect_refused({"eval", cli().base(), "--text", cli().valid_text(), "--attention", "summary:1"},
                 {"no Focus"});
}

TEST(CliKeys, GenerateEqualsWithoutACache) {
  const auto generate = [](const Words& more) {
    return cli().figures(with_keys(
        "generate",
        Words{"--prompt", "Once upon a time, there was", "--max-new-tokens", "30"} + more));
  };
  for (const Words& mode :
       {Words{}, Words{"--attention", "summary:1"}, Words{"--attention", "summary:0"},
        Words{"--attention", "focus"},
        Words{"--attention", "summary:1:unselected_groups=drop:block=1:sinks=0"},
        Words{"--attention", "local"}}) {
    const auto cached = generate(mode), whole = generate(mode + Words{"--no-cache"});
    EXPECT_EQ(cached.at("ids"), whole.at("ids")) << testing::PrintToString(mode);
    EXPECT_LT(cached.at("keys_read"), 1.0);
    EXPECT_GT(cached.at("cache_bytes"), 0);
  }
  EXPECT_EQ(generate({}).at("attention"), "summary m=2 w=4 block=4");
  expect_refused(with_keys("generate", {"--prompt", "a", "--attention", "soft"}), {"soft"});
}

TEST(CliKeys, DecodingIsTimedWithSummaryTokens) {
  const auto json = cli().figures(
      with_keys("speed", {"--decode", "--attention", "dense,summary:0", "--lengths", "28"}));
  EXPECT_EQ(json.at("rows").at(0).at("keys_read"), 1.0);
  EXPECT_GT(json.at("rows").at(1).at("cache_bytes"), 0);
  EXPECT_LT(json.at("rows").at(1).at("keys_read"), 1.0);
}

TEST(CliKeys, DoNotLeak) {
  const auto json = cli().figures(
      with_keys("leak-test",
                {"--attention", "dense,local,summary:0,summary:1:unselected_groups=drop,summary"}));
  EXPECT_EQ(json.at("leaks"), false);
  EXPECT_EQ(json.at("modes").size(), 5u);
}

TEST(CliKeys, LogitsHoldTheClassesOfEachKeyHead) {
  const std::string out = cli().fresh("logits.safetensors");
  cli().must_run(with_keys("logits", {"--text", "Once upon a time", "--out", out}));
  const SafetensorsFile file(out);
  for (const char* name : {"layers.0.classes", "layers.1.classes"}) {
    const Tensor classes = file.read(name);
    ASSERT_EQ(classes.shape(), Shape({16, 4}));
    for (const Real c : classes.span()) EXPECT_TRUE(c == 0 || c == 1 || c == 2 || c == 3) << c;
  }
  // Local attention has no groups.
  cli().must_run(with_keys("logits", {"--text", "Once", "--out", out, "--attention", "local"}));
}

TEST(CliKeys, InfoTellsWhatTheyAre) {
  const auto json = cli().figures({"info", fitted_keys()});
  EXPECT_EQ(json.at("kind"), "adapter");
  EXPECT_EQ(json.at("focus_grouping"), "keys");
  EXPECT_EQ(json.at("focus_groups"), 4);
  EXPECT_EQ(json.at("focus_layers"), 2);
  EXPECT_EQ(json.at("fitted_context"), 64);
  // Two layers, four key heads of four groups: centroids of width 8, b and beta.
  EXPECT_EQ(json.at("focus_parameters"), 2 * 4 * 4 * (8 + 2));
}

TEST(CliKeys, ALongerContextThanTheFitHadIsNoticed) {
  const std::string out = cli().fresh("short.h5");
  Words words = fit({"--out", out});
  std::ranges::replace(words, "64", "32");
  cli().must_run(words);
  const auto noticed = [&](const Words& more) {
    const Words model = {more.front(), cli().base(), "--adapter", out};
    const ProcessResult result = cli().must_run(model + Words(more.begin() + 1, more.end()));
    return contains(result.err, "the groups were fitted on windows of 32 tokens");
  };
  EXPECT_FALSE(noticed({"eval", "--text", cli().valid_text(), "--context", "32"}));
  EXPECT_TRUE(noticed({"eval", "--text", cli().valid_text(), "--context", "33"}));
  const Words prompt = {"generate", "--prompt", std::string(40, 'a'), "--max-new-tokens", "1"};
  EXPECT_TRUE(noticed(prompt + Words{"--attention", "summary"}));
  EXPECT_FALSE(noticed(prompt + Words{"--attention", "dense"}));
}

TEST(CliKeys, AFolderOfThemIsTheSameAdapter) {
  const std::string folder = cli().fresh("folder"), both = cli().fresh("both"),
                    back = cli().fresh("back.h5");
  cli().must_run({"export", fitted_keys(), "--out", folder});
  const auto config = nlohmann::json::parse(read_text(folder + "/focus_config.json"));
  EXPECT_EQ(config.at("num_key_value_heads"), 4);
  EXPECT_EQ(config.at("head_dim"), 8);
  const auto rows = [&](const Words& model) {
    return cli()
        .figures(Words{"eval"} + model +
                 Words{"--text", cli().valid_text(), "--context", "64", "--tokenizer", "bytes"})
        .at("rows");
  };
  const auto wanted = rows({cli().base(), "--adapter", fitted_keys()});
  ASSERT_EQ(wanted.size(), 2u);
  EXPECT_EQ(rows({cli().base(), "--adapter", folder}), wanted);
  // As part of its model, there and back.
  cli().must_run({"export", cli().base(), "--adapter", fitted_keys(), "--out", both});
  cli().must_run({"import", both, "--out", back});
  EXPECT_EQ(rows({both}), wanted);
  EXPECT_EQ(rows({back}), wanted);
  const StoreReader a(back), b(fitted_keys());
  for (const char* name : {"centroids", "bias", "beta", "temperature", "spread"}) {
    const std::string path = fmt::format("/focus/layer_001/{}", name);
    EXPECT_TRUE(same_bits(a.tensor(path), b.tensor(path))) << path;
  }
  EXPECT_EQ(a.int_attribute("/focus/layer_001", "updates"), 512);
  EXPECT_EQ(a.int_attribute("/focus", "fitted_context"), 64);
  // A tensor that is not there is named.
  fs::remove(folder + "/focus_model.safetensors");
  expect_refused({"eval", cli().base(), "--adapter", folder, "--text", cli().valid_text()},
                 {"focus_model.safetensors"});
}

Words keys_run(const Words& more) {
  return Words{"focus.grouping=keys", "focus.training=summary", "focus.summary.block=4",
               "focus.summary.num_selected_groups=1", "focus.keys.fit_tokens=512"} +
         more;
}

TEST(CliKeys, TrainGoesOnFromACheckpointToTheSameBits) {
  const auto run = [](const std::string& out, const Words& more) {
    cli().must_run(cli().retrofit(keys_run({"out=" + out, "checkpoint_every=3"}) + more));
  };
  for (const char* objective : {"lm", "logit_distillation", "layer_distillation"}) {
    const Words said = {fmt::format("focus.objective={}", objective)};
    const std::string whole = cli().fresh("whole"), half = cli().fresh("half");
    run(whole, said);
    run(half, said + Words{"--stop-at", "3"});
    run(half, said + Words{"--resume"});
    expect_same_run(half, whole);
  }
}

TEST(CliKeys, WithoutAStepTheyArePlacedOnly) {
  const std::string out = cli().fresh("placed"), trained = cli().fresh("trained");
  cli().must_run(cli().retrofit(keys_run({"out=" + out, "steps=0"})));
  cli().must_run(cli().retrofit(keys_run({"out=" + trained, "steps=2"})));
  const StoreReader placed(out + "/focus.h5"), other(trained + "/focus.h5");
  const std::string path = "/focus/layer_000";
  EXPECT_EQ(placed.int_attribute(path, "updates"), 512);
  EXPECT_EQ(other.int_attribute(path, "updates"), 512);
  EXPECT_FALSE(same_bits(placed.tensor(path + "/beta"), other.tensor(path + "/beta")));
  const Tensor beta = placed.tensor(path + "/beta");
  for (const Real x : beta.span()) EXPECT_EQ(x, 0);
  // Keys have sizes of groups, and no assignments.
  const auto step = metrics_of(trained).at(1);
  EXPECT_GT(step.at("size_entropy"), 0.0);
  EXPECT_FALSE(step.contains("assignment_entropy"));
  // The first validations, before any step, are of the same keys.
  EXPECT_EQ(metrics_of(out).front(), metrics_of(trained).front());
  cli().must_run(cli().retrofit(keys_run({"out=" + out, "steps=0", "--dry-run"})));
  expect_refused(cli().retrofit({"out=" + cli().fresh("none"), "steps=0"}), {"steps is 0"});
  expect_refused(cli().scratch({"out=" + cli().fresh("none"), "steps=0"}), {"steps is 0"});
}

TEST(CliKeys, LoraBesideThemIsReadBackWithBoth) {
  const std::string out = cli().fresh("lora");
  cli().must_run(cli().retrofit(
      keys_run({"method=lora", "attention=focus", "lora.r=2", "optim.lr=0.02", "out=" + out})));
  const StoreReader store(out + "/lora.h5");
  EXPECT_TRUE(store.has("/lora") && store.has("/focus"));
  const auto perplexity = [&](const Words& more, const std::string& word) {
    return cli()
        .figures(Words{"eval", cli().base(), "--text", cli().train_text(), "--context", "64",
                       "--attention", word} +
                 more)
        .at("rows")
        .at(0)
        .at("perplexity")
        .get<double>();
  };
  const Words both = {"--adapter", out + "/lora.h5"};
  // With dense attention LoRA alone is seen, with summary both are.
  EXPECT_NE(perplexity(both, "dense"), perplexity({}, "dense"));
  EXPECT_NE(perplexity(both, "summary"), perplexity(both, "dense"));
  const auto info = cli().figures({"info", out + "/lora.h5"});
  EXPECT_GT(info.at("lora_parameters"), 0);
  EXPECT_EQ(info.at("focus_grouping"), "keys");
}

TEST(CliKeys, SpeedAndBenchStepKnowThem) {
  const auto speed = cli().figures({"speed", "--lengths", "96", "--heads", "2", "--head-dim", "8",
                                    "--num-groups", "3", "--local-window", "4", "--repeats", "1",
                                    "--attention", "summary:1", "--backward"});
  const auto& row = speed.at("rows").at(0);
  EXPECT_GT(row.at("focus").at("gflops"), 0);
  EXPECT_LT(row.at("pairs_attended"), row.at("pairs_all"));
  const auto step = cli().figures({"speed", "--step", "--vocab-size", "50", "--repeats", "1",
                                   "model.hidden_size=16", "model.num_hidden_layers=2",
                                   "data.context=32", "focus.num_groups=3", "focus.local_window=4",
                                   "focus.grouping=keys", "focus.training=summary",
                                   "focus.keys.fit_tokens=64", "focus.summary.block=4"});
  EXPECT_EQ(step.at("attention"), "summary m=2 w=4 block=4");
  // Two layers, four key heads of three groups: centroids of width 4, b and beta.
  EXPECT_EQ(step.at("trained"), 2 * 4 * 3 * (4 + 2));
  expect_refused({"speed", "--lengths", "96", "--attention", "summary:99"}, {"summary:99"});
}

TEST(CliKeys, CompareHasThemPlacedAndTrainedAgainstDense) {
  const std::string path = cli().fresh("compare.yaml"), out = cli().fresh("compare");
  write_text(path, fmt::format(R"(common:
  base: {2}
  data: {{train: [{0}], valid: [{1}], context: 64, batch: 2}}
  steps: 2
  eval_windows: 2
  focus: {{num_groups: 4, local_window: 4, summary: {{block: 4}}, keys: {{fit_tokens: 512}}}}
runs:
  - {{name: tokens, focus.tokens.routing_dim: 8}}
  - {{name: placed, steps: 0, focus: {{grouping: keys, training: summary}}}}
  - {{name: trained, focus: {{grouping: keys, training: summary}}}}
eval: {{valid: [{1}], context: 64, against_dense: true,
       attentions: [dense, "hard:1", "summary:1", "summary:9"]}}
)",
                               cli().train_text(), cli().valid_text(), cli().base()));
  cli().must_run({"compare", path, "--dry-run"});
  const ProcessResult result = cli().must_run({"compare", path, "out=" + out});
  EXPECT_TRUE(contains(result.out, "nats against dense")) << result.out;
  std::map<std::string, Words> attentions;
  for (const std::string& line : lines_of(read_text(out + "/compare.jsonl"))) {
    const auto row = nlohmann::json::parse(line);
    attentions[row.at("run")].push_back(row.at("attention"));
    EXPECT_GE(row.at("kl"), 0.0);
    EXPECT_TRUE(row.at("nats_against_dense_error").is_number());
    EXPECT_EQ(row.at("train_tokens"), row.at("run") == "placed" ? 0 : 2 * 2 * 64);
  }
  EXPECT_EQ(attentions["tokens"], (Words{"dense", "hard k=1 keep", "summary m=1 w=4 block=4"}));
  EXPECT_EQ(attentions["placed"], (Words{"dense", "summary m=1 w=4 block=4"}));
  EXPECT_EQ(attentions["trained"], attentions["placed"]);
  const std::string page = read_text(out + "/compare.html");
  EXPECT_TRUE(contains(page, "nats against dense"));
  EXPECT_FALSE(contains(page, "nan"));
  // Done before: nothing is trained again.
  const ProcessResult again = cli().must_run({"compare", path, "out=" + out});
  EXPECT_EQ(again.out, result.out);
  EXPECT_FALSE(contains(again.err, "training")) << again.err;
}

}  // namespace
}  // namespace focus
