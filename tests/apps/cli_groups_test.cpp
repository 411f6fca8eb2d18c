#include "tests/support/cli.h"

// `focus groups`.
namespace focus {
namespace {

/// A keys adapter on the tests' base.
std::string keys_for_groups() {
  static const std::string path = [] {
    const std::string out = cli().fresh("keys.h5");
    cli().must_run({"fit", cli().base(), "--text", cli().train_text(), "--num-groups", "4",
                    "--tokens", "512", "--local-window", "4", "--block", "4", "--context", "64",
                    "--out", out});
    return out;
  }();
  return path;
}

Words groups_of(const std::string& adapter, const std::string& out, const Words& more = {}) {
  return Words{"groups",           cli().base(), "--adapter", adapter, "--text",
               cli().valid_text(), "--context",  "64",        "--out", out} +
         more;
}

nlohmann::json groups_json(const std::string& folder) {
  return nlohmann::json::parse(read_text(folder + "/groups.json"));
}

TEST(CliGroups, WritesAPageAndAllFigures) {
  const std::string out = cli().fresh("groups");
  const ProcessResult result = cli().must_run(groups_of(cli().adapter(), out));
  EXPECT_TRUE(contains(result.out, "size entropy")) << result.out;
  const auto json = groups_json(out);
  EXPECT_EQ(json.at("grouping"), "tokens");
  EXPECT_EQ(json.at("num_groups"), 3);
  EXPECT_EQ(json.at("tokens"), 700);
  EXPECT_TRUE(json.at("against").is_null());
  ASSERT_EQ(json.at("groupings").size(), 2u);
  for (const auto& grouping : json.at("groupings")) {
    EXPECT_TRUE(grouping.at("head").is_null());
    std::int64_t tokens = 0;
    double confidence = 0;
    for (const auto& group : grouping.at("groups")) {
      tokens += group.at("size").get<std::int64_t>();
      confidence += group.at("size").get<double>() * group.at("confidence").get<double>() / 700;
      double of_categories = 0;
      for (const auto& share : group.at("categories")) of_categories += share.get<double>();
      if (group.at("size") > 0) {
        EXPECT_NEAR(of_categories, 1, 1e-9);
      }
    }
    EXPECT_EQ(tokens, 700);
    EXPECT_NEAR(grouping.at("confidence").get<double>(), confidence, 1e-6);
    EXPECT_GE(grouping.at("purity").at("categories"), grouping.at("purity").at("categories_base"));
  }
  EXPECT_EQ(json.at("between_layers").at("adjusted_rand_index").at(1).at(1), 1.0);
  const auto& passage = json.at("passage");
  ASSERT_EQ(passage.at("tokens").size(), 64u);  // a window has no more
  std::string read;
  for (const auto& token : passage.at("tokens")) read += token.at("text").get<std::string>();
  EXPECT_TRUE(contains(read_text(cli().valid_text()), read)) << read;

  const std::string page = read_text(out + "/groups.html");
  for (const char* part : {"Layer 1", "Agreement between layers", "class=\"passage\"",
                           "Group sizes", "Categories of each group"})
    EXPECT_TRUE(contains(page, part)) << part;
  for (const char* part : {"<script", "http://", "https://", "nan"})
    EXPECT_FALSE(contains(page, part)) << part;
  // Names of files, not where they lie; line breaks of the passage are seen.
  EXPECT_FALSE(contains(page, fs::path(cli().valid_text()).parent_path().string()));
  EXPECT_TRUE(contains(page, fs::path(cli().valid_text()).filename().string()));
  EXPECT_TRUE(!contains(read, "\n") || contains(page, "\u21B5</span>"));
}

TEST(CliGroups, TheSizesAreThoseOfEval) {
  const std::string out = cli().fresh("groups");
  cli().must_run(groups_of(cli().adapter(), out));
  const auto eval = cli().figures({"eval", cli().base(), "--adapter", cli().adapter(), "--text",
                                   cli().valid_text(), "--context", "64", "--stride", "64",
                                   "--attention", "soft"});
  const auto json = groups_json(out);
  for (std::size_t layer = 0; layer < 2; ++layer)
    for (std::size_t g = 0; g < 3; ++g)
      EXPECT_EQ(json.at("groupings").at(layer).at("groups").at(g).at("size"),
                eval.at("rows").at(0).at("group_sizes").at(layer).at(g));
}

TEST(CliGroups, OfKeysHaveHeadsAndAgreeWithThemselves) {
  const std::string out = cli().fresh("groups"), again = cli().fresh("groups");
  const Words more = {"--against", keys_for_groups()};
  cli().must_run(groups_of(keys_for_groups(), out, more));
  cli().must_run(groups_of(keys_for_groups(), again, more + Words{"--threads", "2"}));
  EXPECT_EQ(read_text(out + "/groups.json"), read_text(again + "/groups.json"));
  EXPECT_EQ(read_text(out + "/groups.html"), read_text(again + "/groups.html"));
  const auto json = groups_json(out);
  ASSERT_EQ(json.at("groupings").size(), 2u * 4);
  EXPECT_EQ(json.at("groupings").at(5).at("layer"), 1);
  EXPECT_EQ(json.at("groupings").at(5).at("head"), 1);
  EXPECT_EQ(json.at("against").at("mean").at("adjusted_rand_index"), 1.0);
  EXPECT_EQ(json.at("against").at("mean").at("kept_share"), 1.0);
  EXPECT_LT(json.at("between_layers").at("adjusted_rand_index").at(0).at(0), 1.0);  // other heads
  EXPECT_TRUE(contains(read_text(out + "/groups.html"), "layer 1, key head 3"));
  // Groups of hidden states against them.
  const std::string across = cli().fresh("groups");
  cli().must_run(groups_of(keys_for_groups(), across, {"--against", cli().adapter()}));
  EXPECT_LT(groups_json(across).at("against").at("mean").at("adjusted_rand_index"), 0.9);
}

TEST(CliGroups, StabilityBetweenTheCheckpointsOfARun) {
  const std::string run = cli().fresh("run"), out = cli().fresh("groups");
  cli().must_run(cli().retrofit(
      {"out=" + run, "steps=6", "checkpoint_every=2", "checkpoint_keep=9", "optim.lr=0.1"}));
  cli().must_run(groups_of(cli().adapter(), out, {"--checkpoints", run}));
  const auto steps = groups_json(out).at("checkpoints");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps.at(0).at("first"), "step_000002");
  EXPECT_EQ(steps.at(1).at("second"), "step_000006");
  for (const auto& step : steps) {
    EXPECT_GT(step.at("mean").at("kept_share"), 0.3);
    EXPECT_LT(step.at("mean").at("kept_share"), 1.0);
  }
  EXPECT_TRUE(contains(read_text(out + "/groups.html"), "Stability between checkpoints"));
  // The same checkpoint twice has lost nothing.
  const std::string same = cli().fresh("groups"), last = run + "/checkpoints/step_000006.h5";
  cli().must_run(groups_of(cli().adapter(), same, {"--checkpoints", last, last}));
  EXPECT_EQ(groups_json(same).at("checkpoints").at(0).at("mean").at("kept_share"), 1.0);
}

TEST(CliGroups, AModelWithAFocusOfItsOwn) {
  const std::string run = cli().fresh("run"), out = cli().fresh("groups");
  cli().must_run(cli().scratch({"out=" + run, "attention=focus", "steps=4", "checkpoint_every=2"}));
  cli().must_run({"groups", run + "/model.h5", "--text", cli().valid_text(), "--context", "64",
                  "--out", out, "--checkpoints", run, "--against", run + "/model.h5"});
  EXPECT_EQ(groups_json(out).at("checkpoints").size(), 1u);
  EXPECT_EQ(groups_json(out).at("against").at("mean").at("kept_share"), 1.0);
}

TEST(CliGroups, BadInputIsOneLineAndNothingIsWritten) {
  const std::string out = cli().fresh("groups"), small = cli().fresh("small.txt");
  const auto refused = [&](const Words& arguments, const Words& parts) {
    expect_refused(arguments, parts);
    EXPECT_FALSE(fs::exists(out));
  };
  refused({"groups", cli().base(), "--text", cli().valid_text(), "--out", out}, {"no groups"});
  const std::string lora = cli().fresh("lora");
  cli().must_run(cli().config({"method=lora", "base=" + cli().base(), "out=" + lora, "steps=1"}));
  refused(groups_of(lora + "/lora.h5", out), {"no groups"});
  refused(groups_of(cli().adapter(), out, {"--against", lora + "/lora.h5"}),
          {"lora.h5", "holds no Focus"});
  write_text(small, "Once upon a time.");
  refused({"groups", cli().base(), "--adapter", cli().adapter(), "--text", small, "--context", "64",
           "--out", out},
          {"small.txt", "17 tokens", "64 of a window", "--context"});
  refused(groups_of(cli().adapter(), out, {"--against", "nowhere.h5"}), {"nowhere.h5"});
  refused({"groups", cli().base(), "--adapter", cli().adapter(), "--text", cli().valid_text(),
           "--context", "4000", "--out", out},
          {"context 4000", "positions"});
  refused(groups_of(cli().adapter(), out, {"--checkpoints", cli().adapter()}), {"at least two"});
  // Another model with another number of layers.
  const std::string deep = cli().fresh("deep");
  cli().must_run(
      cli().scratch({"out=" + deep, "attention=focus", "steps=1", "model.num_hidden_layers=3"}));
  refused(groups_of(cli().adapter(), out, {"--against", deep + "/model.h5"}),
          {"3 layers", "has 2"});
  const std::string foreign = cli().fresh("foreign");
  cli().must_run(cli().config({"base=" + cli().other_base(), "out=" + foreign, "steps=1"}));
  refused(groups_of(cli().adapter(), out, {"--against", foreign + "/focus.h5"}), {"base"});
  cli().must_run(groups_of(cli().adapter(), out));
  expect_refused(groups_of(cli().adapter(), out), {"exists already", "--overwrite"});
  cli().must_run(groups_of(cli().adapter(), out, {"--overwrite"}));
}

}  // namespace
}  // namespace focus
