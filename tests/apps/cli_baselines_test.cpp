#include <cmath>

#include "tests/support/cli.h"

// Models with the baselines' attention: trained, stored, resumed, evaluated, refused.
namespace focus {
namespace {

Words with(const std::string& attention) {
  const std::map<std::string, std::string> specs = {
      {"window", "window:11"},
      {"performer", "performer:16"},
      {"routing_transformer", "routing_transformer:3:local_window=4"},
      {"sink_window", "sink_window:9"}};
  return {"attention=" + specs.at(attention)};
}
nlohmann::json baseline_rows(const Words& more) {
  return cli().figures(Words{"eval"} + more + Words{"--text", cli().valid_text()}).at("rows");
}

const Words kTrained = {"window", "performer", "routing_transformer", "sink_window"};

TEST(CliRivals, TrainStoreAndUseWhatWasTrained) {
  for (const std::string& name : kTrained) {
    SCOPED_TRACE(name);
    const std::string out = cli().fresh(name);
    const auto trained = cli().figures(cli().scratch(with(name) + Words{"out=" + out, "steps=20"}));
    EXPECT_LT(trained.at("valid_loss"), trained.at("valid_loss_start").get<double>() - 0.3);

    const std::string model = out + "/model.h5";
    EXPECT_EQ(cli().figures({"info", model}).at("attention"), name);
    const auto rows = baseline_rows({model, "--context", "64"});
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].at("attention"), "dense");
    EXPECT_TRUE(rows[1].at("attention").get<std::string>().starts_with(name.substr(0, 6)));
    EXPECT_TRUE(rows[1].at("causal").get<bool>());
    EXPECT_NE(rows[0].at("perplexity"), rows[1].at("perplexity"));
    if (name == "performer")
      EXPECT_EQ(rows[1].at("pairs_attended"), 1.0);
    else
      EXPECT_LT(rows[1].at("pairs_attended"), 0.9);
    EXPECT_EQ(baseline_rows({model, "--context", "64", "--attention", "trained"})[0], rows[1]);

    const Words prompt = {"generate", model, "--prompt", "Once", "--max-new-tokens", "12"};
    const auto own = cli().figures(prompt);
    EXPECT_EQ(own.at("attention"), rows[1].at("attention"));
    EXPECT_EQ(own.at("new_tokens"), 12);
    EXPECT_EQ(cli().figures(prompt + Words{"--attention", "dense"}).at("attention"), "dense");
    expect_refused(prompt + Words{"--attention", "hard"}, {model, "has no Focus"});
    EXPECT_EQ(cli().run({"leak-test", model, "--context", "64"}).status, 0);
  }
}

TEST(CliRivals, ResumingChangesNothing) {
  for (const std::string& name : kTrained) {
    SCOPED_TRACE(name);
    const std::string whole = cli().fresh("whole"), parts = cli().fresh("parts");
    const Words config = cli().scratch(with(name));
    cli().must_run(config + Words{"out=" + whole});
    cli().must_run(config + Words{"out=" + parts, "--stop-at", "5"});
    cli().must_run(config + Words{"out=" + parts, "--resume"});
    const StoreReader a(whole + "/model.h5"), b(parts + "/model.h5");
    for (const std::string& path : a.all_datasets()) {
      if (!path.starts_with("/model") && !path.ends_with("/constants")) continue;
      EXPECT_TRUE(same_bits(a.tensor(path), b.tensor(path))) << path;
    }
    EXPECT_EQ(a.has("/attention/layer_000/constants"), !name.ends_with("window"));
  }
}

TEST(CliRivals, RowsOfABaseAsItIs) {
  const auto rows = baseline_rows(
      {cli().base(), "--context", "64", "--attention",
       "dense,window:63,window:7,performer:64,routing:1:shared_qk=false,"
       "routing:3:choice=balanced:local_window=2,sparq:64:rank=64,sparq:4:rank=2,"
       "sparq:4:rank=2:reallocate=false,magicpig:0,magicpig:4:tables=8:local_window=1"});
  Words names;
  for (const auto& row : rows) names.push_back(row.at("attention"));
  EXPECT_EQ(names, (Words{"dense", "window w=63", "window w=7", "performer m=64", "routing 1",
                          "routing 3 shared balanced", "sparq k=64 r=64 mean", "sparq k=4 r=2 mean",
                          "sparq k=4 r=2", "magicpig K=0 L=75", "magicpig K=4 L=8"}));
  EXPECT_EQ(rows[8].at("settings"),
            (nlohmann::json{
                {"tokens", "4"}, {"rank", "2"}, {"last_keys", "0"}, {"reallocate", "false"}}));
  EXPECT_TRUE(rows[0].at("settings").is_null());
  const double dense = rows[0].at("perplexity");
  for (const std::size_t exact : {1, 4, 6, 9}) {
    EXPECT_NEAR(rows[exact].at("perplexity"), dense, 1e-4 * dense) << names[exact];
    EXPECT_EQ(rows[exact].at("pairs_attended"), 1.0) << names[exact];
  }
  for (const std::size_t sparse : {2, 5, 7, 8, 10})
    EXPECT_LT(rows[sparse].at("pairs_attended"), 0.9) << names[sparse];
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("causal").get<bool>(), i != 5) << names[i];
    EXPECT_TRUE(std::isfinite(rows[i].at("perplexity").get<double>())) << names[i];
  }
}

TEST(CliRivals, RowsOfThoseOfToday) {
  const auto rows =
      baseline_rows({cli().base(), "--context", "64", "--attention",
                     "dense,sink_window:3:sinks=64,quest:64:page_size=4,moba:9:block_size=8,"
                     "oracle:64,random_groups:1,sink_window:5:sinks=1,"
                     "quest:1:page_size=4:local_window=3,moba:1:block_size=8,"
                     "oracle:3:heads=shared:local_window=3,random_groups:4:local_window=3"});
  Words names;
  for (const auto& row : rows) names.push_back(row.at("attention"));
  EXPECT_EQ(names, (Words{"dense", "sink_window w=3 s=64", "quest p=64x4 w=32", "moba b=9x8",
                          "oracle k=64 w=32", "random_groups 1 w=32", "sink_window w=5 s=1",
                          "quest p=1x4 w=3", "moba b=1x8", "oracle k=3 w=3 shared",
                          "random_groups 4 w=3"}));
  const double dense = rows[0].at("perplexity");
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_TRUE(rows[i].at("causal").get<bool>()) << names[i];
    if (i <= 5) {
      EXPECT_NEAR(rows[i].at("perplexity"), dense, 1e-4 * dense) << names[i];
      EXPECT_EQ(rows[i].at("pairs_attended"), 1.0) << names[i];
    } else {
      EXPECT_NE(rows[i].at("perplexity"), dense) << names[i];
      EXPECT_LT(rows[i].at("pairs_attended"), 0.7) << names[i];
    }
  }
}

TEST(CliRivals, AnIndexerIsTrainedOnAFrozenBaseAndStored) {
  const std::string out = cli().fresh("indexer"), parts = cli().fresh("indexer_parts");
  const Words config = cli().retrofit({"attention=indexer:6:local_window=3:heads=2"});
  cli().must_run(config + Words{"out=" + out});
  cli().must_run(config + Words{"out=" + parts, "--stop-at", "3"});
  cli().must_run(config + Words{"out=" + parts, "--resume"});
  const std::string trained = out + "/indexer.h5";
  const StoreReader a(trained), b(parts + "/indexer.h5");
  EXPECT_FALSE(a.has("/model"));
  EXPECT_FALSE(a.has("/focus"));
  EXPECT_EQ(cli().figures({"info", trained}).at("attention"), "indexer");
  const std::string path = "/attention/parameters/indexer/layers/0/q";
  ASSERT_TRUE(a.has(path));
  for (const std::string& name : a.all_datasets()) {
    if (!name.starts_with("/attention/parameters")) continue;
    EXPECT_TRUE(same_bits(a.tensor(name), b.tensor(name))) << name;
  }

  const Words eval = {cli().base(), "--adapter", trained, "--context", "64"};
  const auto rows = baseline_rows(eval);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("attention"), "dense");
  EXPECT_EQ(rows[1].at("attention"), "indexer k=6 w=3");
  EXPECT_LT(rows[1].at("pairs_attended"), 0.6);
  const auto more = baseline_rows(
      eval +
      Words{"--attention", "indexer:64:heads=2,indexer:6:heads=2:local_window=3,oracle:6,dense"});
  ASSERT_EQ(more.size(), 4u);
  EXPECT_EQ(more[0].at("pairs_attended"), 1.0);
  EXPECT_EQ(more[1].at("perplexity"), rows[1].at("perplexity"));
  EXPECT_EQ(more[3], rows[0]);

  const Words text = {"--text", cli().valid_text()};
  expect_refused(Words{"eval"} + eval + text + Words{"--attention", "indexer:8:heads=3"},
                 {"indexer", "settings that it was trained with"});
  expect_refused(Words{"eval", cli().base()} + text + Words{"--attention", "indexer:8"},
                 {"indexer", "--adapter"});
  expect_refused(cli().scratch({"attention=indexer", "out=" + cli().fresh("refused")}),
                 {"indexer", "retrofit"});
}

TEST(CliRivals, TheTableAndTheLeakTestSayWhatIsNotCausal) {
  const std::string balanced = "routing:3:choice=balanced:local_window=2";
  const ProcessResult table = cli().must_run({"eval", cli().base(), "--text", cli().valid_text(),
                                              "--context", "64", "--attention", balanced});
  EXPECT_TRUE(contains(table.out, "routing 3 shared balanced  not causal")) << table.out;
  const Words leak = {"leak-test", cli().base(), "--context", "64", "--attention"};
  const ProcessResult sound = cli().must_run(
      leak + Words{"window:7,performer:16,routing:3,sparq:4,magicpig:4:tables=8:local_window=1,"
                   "sink_window:7,quest:1:page_size=4:local_window=3,moba:1:block_size=8,"
                   "oracle:3:local_window=3,random_groups:4:local_window=3"});
  EXPECT_FALSE(contains(sound.out, "LEAKS")) << sound.out;
  const ProcessResult leaks = cli().run(leak + Words{balanced});
  EXPECT_EQ(leaks.status, 1);
  EXPECT_TRUE(contains(leaks.out, "routing 3 shared balanced, not causal")) << leaks.out;
  EXPECT_TRUE(contains(leaks.out, "LEAKS")) << leaks.out;
}

TEST(CliRivals, FocusBesideARival) {
  const auto rows = baseline_rows({cli().base(), "--adapter", cli().adapter(), "--context", "64",
                                   "--attention", "window:7,focus"});
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0].at("attention"), "window w=7");
  EXPECT_EQ(rows[1].at("attention"), "soft");
  EXPECT_EQ(baseline_rows({cli().base(), "--adapter", cli().adapter(), "--context", "64"})[1],
            rows[1]);
}

TEST(CliRivals, RowsOfFocusByName) {
  const Words eval = {cli().base(), "--adapter", cli().adapter(), "--context", "64"};
  const auto all = baseline_rows(
      eval + Words{"--attention", "dense,local,focus"});  // dense, local, soft, k = 1, 2, 3
  const auto rows =
      baseline_rows(eval + Words{"--attention", "hard:3,soft,sparq:8,hard:1,local,dense"});
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0], all[5]);
  EXPECT_EQ(rows[1], all[2]);
  EXPECT_EQ(rows[2].at("attention"), "sparq k=8 r=32 mean");
  EXPECT_EQ(rows[3], all[3]);
  EXPECT_EQ(rows[4], all[1]);
  EXPECT_EQ(rows[5], all[0]);
  EXPECT_EQ(baseline_rows(eval + Words{"--attention", "hard:2:gate=keep,hard:2:gate=drop"}).size(),
            2u);
  const Words refused = Words{"eval"} + eval + Words{"--text", cli().valid_text(), "--attention"};
  expect_refused(refused + Words{"hard:4"}, {"hard:4", "3 groups"});
  for (const char* word : {"hard:", "hard:0", "hard:two", "hard:1x"})
    expect_refused(refused + Words{word}, {word, "k: expected"});
}

TEST(CliRivals, WhatDoesNotFitIsRefusedByName) {
  const Words eval = {"eval", cli().base(), "--text", cli().valid_text(), "--attention"};
  expect_refused(eval + Words{"longformer:8"}, {"longformer", "window, performer"});
  expect_refused(eval + Words{"window:none"}, {"window:none", "window"});
  expect_refused(eval + Words{"sparq:8:tokns=3"}, {"tokns", "did you mean tokens?"});
  expect_refused(eval + Words{"sparq:8:16"}, {"sparq:8:16", "KEY=VALUE"});
  for (const char* word : {"focus", "soft", "hard:1", "local"})
    expect_refused(eval + Words{word}, {"has no Focus", "--adapter"});
  expect_refused(eval + Words{"trained"}, {"was trained with dense or Focus attention only"});
  const std::string out = cli().fresh("refused");
  expect_refused(cli().retrofit({"attention=performer", "out=" + out}),
                 {"performer", "frozen base", "focus eval"});
  expect_refused(cli().scratch({"attention=performer", "out=" + out, "model.model_type=mistral",
                                "model.sliding_window=8"}),
                 {"performer", "mistral", "sliding window of 8"});
  expect_refused(
      cli().scratch({"attention=routing_transformer", "out=" + out, "model.num_key_value_heads=2"}),
      {"shared_qk=false"});
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace focus
