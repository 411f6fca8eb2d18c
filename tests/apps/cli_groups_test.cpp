// `focus groups`.
#include "tests/support/cli.h"

namespace focus {
namespace {

Words groups_of(const std::string& adapter, const std::string& out, const Words& more = {}) {
  return words("groups {base} --adapter {} --text {valid} --context 64 --out {}", adapter, out) +
         more;
}

nlohmann::json groups_json(const std::string& folder) { return read_json(folder + "/groups.json"); }

TEST(CliGroups, WritesAPageAndAllFigures) {
  const std::string out = cli().fresh("groups");
  expect_parts(cli().must_run(groups_of(cli().adapter(), out)).out, {"size entropy", ": density "});
  const auto json = groups_json(out);
  EXPECT_EQ(json.at("grouping"), "tokens");
  EXPECT_EQ(json.at("num_groups"), 3);
  EXPECT_EQ(json.at("tokens"), 700);
  ASSERT_EQ(json.at("groupings").size(), 2u);
  for (const auto& grouping : json.at("groupings")) {
    EXPECT_TRUE(grouping.at("head").is_null());
    std::int64_t tokens = 0;
    for (const auto& group : grouping.at("groups")) tokens += group.at("size").get<std::int64_t>();
    EXPECT_EQ(tokens, 700);
    EXPECT_GT(grouping.at("confidence"), 0.0);
    EXPECT_GE(grouping.at("purity").at("categories"), grouping.at("purity").at("categories_base"));
  }
  EXPECT_EQ(json.at("between_layers").at("adjusted_rand_index").at(1).at(1), 1.0);
  const auto& passage = json.at("passage");
  ASSERT_EQ(passage.at("tokens").size(), 64u);  // a window has no more
  std::string read;
  for (const auto& token : passage.at("tokens")) read += token.at("text").get<std::string>();
  EXPECT_TRUE(contains(read_text(cli().valid_text()), read)) << read;

  const std::string page = read_text(out + "/groups.html");
  expect_parts(page, {"Agreement between layers", "class=\"passage\"", "tokens by lift",
                      fs::path(cli().valid_text()).filename().string()});
  for (const char* part : {"<script", "http://", "https://", "nan"})
    EXPECT_FALSE(contains(page, part)) << part;
  // Names of files, not where they lie; line breaks of the passage are seen.
  EXPECT_FALSE(contains(page, fs::path(cli().valid_text()).parent_path().string()));
  EXPECT_TRUE(!contains(read, "\n") || contains(page, "\u21B5</i>"));
}

TEST(CliGroups, OfKeysHaveHeads) {
  const std::string out = cli().fresh("groups"), again = cli().fresh("groups");
  cli().must_run(groups_of(cli().keys(), out));
  cli().must_run(groups_of(cli().keys(), again, {"--threads", "2"}));
  EXPECT_EQ(read_text(out + "/groups.json"), read_text(again + "/groups.json"));
  EXPECT_EQ(read_text(out + "/groups.html"), read_text(again + "/groups.html"));
  const auto json = groups_json(out);
  ASSERT_EQ(json.at("groupings").size(), 2u * 4);
  EXPECT_EQ(json.at("groupings").at(5).at("layer"), 1);
  EXPECT_EQ(json.at("groupings").at(5).at("head"), 1);
  EXPECT_LT(json.at("between_layers").at("adjusted_rand_index").at(0).at(0), 1.0);  // other heads
  expect_parts(read_text(out + "/groups.html"), {"key head", "of the causal pairs are computed"});
}

TEST(CliGroups, AModelWithAFocusOfItsOwn) {
  const std::string run = cli().fresh("run"), out = cli().fresh("groups");
  cli().must_run(cli().scratch({"out=" + run, "attention=focus", "steps=1"}));
  cli().must_run(words("groups {}/model.h5 --text {valid} --context 64 --out {}", run, out));
  EXPECT_EQ(groups_json(out).at("layers"), 2);
}

TEST(CliGroups, BadInputIsOneLineAndNothingIsWritten) {
  const std::string out = cli().fresh("groups"), small = cli().fresh("small.txt");
  const Words groups = groups_of(cli().adapter(), out);
  write_text(small, "Once upon a time.");
  expect_refused(words("groups {base} --text {valid} --out {}", out), {"no groups"});
  expect_refused(groups_of(cli().lora(), out), {"no groups"});
  const Words some = words("groups {base} --adapter {adapter} --out {}", out);
  expect_refused(some + words("--text {} --context 64", small),
                 {"small.txt", "17 tokens", "64 of a window", "--context"});
  expect_refused(some + "--text {valid} --context 4000", {"context 4000", "positions"});
  EXPECT_FALSE(fs::exists(out));
  cli().must_run(groups);
  expect_refused(groups, {"exists already", "--overwrite"});
  cli().must_run(groups + "--overwrite");
}

// `focus fit`, and what the other commands do with groups of keys.

Words with_keys(const std::string& command, const Words& more) {
  return words(command + " {base} --adapter {keys}") + more;
}
Words evaluate(const Words& more) {
  return with_keys("eval", Words("--text {valid} --context 64") + more);
}

TEST(CliFit, WritesAnAdapterAndSaysWhatItMade) {
  const std::string out = cli().fresh("keys.h5");
  expect_parts(cli().must_run(cli().fit({"--out", out})).out,
               {"4 groups for each of 4 key heads in 2 layers", "fitted on 512 tokens",
                "a query head selects 1 to "});
  expect_parts(cli().must_run({"info", out}).out, {"head_budgets           1 to "});
}

TEST(CliFit, IsTheSameEveryTimeAndAnotherForAnotherSeed) {
  const std::string again = cli().fresh("keys.h5"), other = cli().fresh("keys.h5");
  cli().must_run(cli().fit({"--out", again, "--threads", "2"}));
  cli().must_run(cli().fit({"--out", other, "--seed", "2"}));
  expect_same_store(again, cli().keys());
  const std::string centroids = "/focus/layer_000/centroids";
  EXPECT_FALSE(
      same_bits(StoreReader(cli().keys()).tensor(centroids), StoreReader(other).tensor(centroids)));
}

TEST(CliFit, BadInputIsOneLine) {
  const std::string out = cli().fresh("keys.h5");
  const Words fit = words("fit {base} --text {train} --out {}", out);
  expect_refused(fit + "--num-groups 3 --num-selected-groups 4",
                 {"focus.summary.num_selected_groups", "num_groups 3"});
  expect_refused(fit + "--text nowhere.txt", {"nowhere.txt"});
  expect_refused(fit + "--context 200", {"context 200", "positions"});
  expect_refused(words("fit nowhere.h5 --text {train} --out {}", out), {"nowhere.h5"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliFit, ChoosesByWhatItHeldBack) {
  const std::string out = cli().fresh("keys.h5");
  const Words fit = words("fit {base} --text {train} --tokens 512 --context 64 --out {}", out) +
                    "--num-groups 16 --local-window 4 --block 4 --sinks 1 --overwrite";
  const auto chosen = [&](const Words& goal) {
    const std::string said = cli().must_run(fit + goal).out;
    expect_parts(said, {"chosen on 5 windows of 64 tokens held back", "315 tokens scored", "KL",
                        "selection", "K=", "w=4, B=4, 1 sink"});
    EXPECT_EQ(said.find(" * "), said.rfind(" * ")) << said;
    return said;
  };
  const auto row = [&] {
    return cli()
        .rows(words("{base} --adapter {} --text {valid} --against dense --attention summary", out))
        .at(0);
  };
  EXPECT_FALSE(contains(chosen({"--density", "60%"}), "not reached"));
  EXPECT_NEAR(row().at("pairs_attended").get<double>(), 0.6, 0.1);
  expect_parts(chosen({"--density", "0.01"}), {"--density 1.0 % is not reached"});
  expect_parts(row().at("attention").get<std::string>(), {"summary m=0 "});
  EXPECT_FALSE(contains(chosen({"--target", "0.5"}), "not reached"));
  EXPECT_LT(row().at("nats_against_dense").get<double>(), std::log(1.6));
  const std::string before = chosen({"--target", "2 %"});
  EXPECT_EQ(before.substr(0, before.find("fitted on")),
            chosen({"--target", "0.02", "--threads", "2"}).substr(0, before.find("fitted on")));
}

TEST(CliFit, GoalsAreSharesAndOneAtATime) {
  const Words fit = words("fit {base} --text {train} --context 64 --out {}", cli().fresh("k.h5"));
  for (const std::string word : {"12", "0", "-1%", "100%", "five", "1%%", "nan"})
    expect_refused(fit + Words{"--density=" + word}, {"--density: expected a share", "0.5%"});
  for (const auto& [goals, said] : std::map<std::string, std::string>{
           {"--density 12% --target 1%", "--target excludes --density"},
           {"--target 1% --num-selected-groups 2", "--num-selected-groups excludes --target"}}) {
    const ProcessResult result = cli().run(fit + words(goals));
    EXPECT_EQ(result.status, 2);
    expect_parts(result.err, {said});
  }
}

TEST(CliKeys, EvalAgainstDense) {
  const auto rows = cli()
                        .figures(evaluate("--against dense --attention "
                                          "dense,local,summary:0,summary:1,summary:4"))
                        .at("rows");
  ASSERT_EQ(rows.size(), 5u);
  const auto of_dense = [&](std::size_t row, const char* key) {
    return rows.at(row).at(key).get<double>();
  };
  EXPECT_EQ(of_dense(0, "nats_against_dense"), 0);
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_NEAR(of_dense(i, "nats_against_dense"),
                std::log(of_dense(i, "perplexity") / of_dense(0, "perplexity")), 1e-5)
        << rows[i];
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
  const std::string table = cli().must_run(evaluate("--against dense")).out;
  expect_parts(table, {"KL  nats against dense"});
  for (const char* part : {"balanced: ", "nan"}) EXPECT_FALSE(contains(table, part)) << table;
}

TEST(CliKeys, WhatTheyDoNotHaveIsRefused) {
  expect_refused(evaluate({"--attention", "soft"}), {"soft", "groups keys"});
  expect_refused(with_keys("generate", "--prompt a --attention soft"), {"soft"});
  expect_refused("speed --lengths 96 --attention summary:99", {"summary:99"});
}

TEST(CliKeys, DoNotLeak) {
  const auto json = cli().figures(with_keys(
      "leak-test", "--attention dense,local,summary:0,summary:1:unselected_groups=drop,summary"));
  EXPECT_EQ(json.at("leaks"), false);
  EXPECT_EQ(json.at("modes").size(), 5u);
}

TEST(CliKeys, InfoTellsWhatTheyAre) {
  const auto json = cli().figures("info {keys}");
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
  Words fit = cli().fit({"--out", out});
  std::ranges::replace(fit, "64", "32");
  cli().must_run(fit);
  const auto noticed = [&](const std::string& command, const Words& more) {
    return contains(cli().must_run(words(command + " {base} --adapter {}", out) + more).err,
                    "the groups were fitted on windows of 32 tokens");
  };
  EXPECT_FALSE(noticed("eval", "--text {valid} --context 32"));
  EXPECT_TRUE(noticed("eval", "--text {valid} --context 33"));
  EXPECT_FALSE(noticed("eval", "--text {valid}")) << "the context of the fit is the default";
  const Words prompt = words("--prompt {} --max-new-tokens 1", std::string(40, 'a'));
  EXPECT_TRUE(noticed("generate", prompt + "--attention summary"));
  EXPECT_FALSE(noticed("generate", prompt + "--attention dense"));
}

Words keys_run(const Words& more) {
  return Words("focus.grouping=keys focus.training=summary focus.summary.block=4") +
         "focus.summary.num_selected_groups=1 focus.keys.fit_tokens=512" + more;
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
}

TEST(CliKeys, LoraBesideThemIsReadBackWithBoth) {
  const std::string out = cli().fresh("lora");
  cli().must_run(cli().retrofit(
      keys_run({"method=lora", "attention=focus", "lora.r=2", "optim.lr=0.02", "out=" + out})));
  const StoreReader store(out + "/focus.h5");
  EXPECT_TRUE(store.has("/lora") && store.has("/focus"));
  const Words alone = "{base} --text {train} --context 64 --attention";
  const Words both = words("{base} --adapter {}/focus.h5 --text {train} --attention", out);
  // With dense attention LoRA alone is seen, with summary both are.
  EXPECT_NE(cli().perplexity(both + "dense"), cli().perplexity(alone + "dense"));
  EXPECT_NE(cli().perplexity(both + "summary"), cli().perplexity(both + "dense"));
  const auto info = cli().figures({"info", out + "/focus.h5"});
  EXPECT_GT(info.at("lora_parameters"), 0);
  EXPECT_EQ(info.at("focus_grouping"), "keys");
  cli().must_run(words("leak-test {base} --adapter {} --attention summary", out));
  // Against the base, and not against itself with the LoRA on.
  const auto against = [&](const std::string& what) {
    return cli().rows(both + words("dense --against {}", what)).at(0);
  };
  EXPECT_EQ(against("dense").at("kl"), 0);
  EXPECT_GT(against("base").at("kl"), 1e-6);
  EXPECT_NEAR(against("base").at("nats_against_dense"),
              std::log(cli().perplexity(both + "dense") / cli().perplexity(alone + "dense")), 1e-5);
}

TEST(CliKeys, LoraAndGroupsLeaveTogether) {
  const std::string run = cli().fresh("run"), folder = cli().fresh("folder"),
                    merged = cli().fresh("merged.h5"), code = cli().fresh("code"),
                    gguf = cli().fresh("lora.gguf");
  cli().must_run(cli().retrofit(
      keys_run({"method=lora", "attention=focus", "lora.r=2", "optim.lr=0.02", "out=" + run})));
  const Words eval = "--text {train} --context 64 --attention summary,dense";
  const auto perplexities = [&](const Words& model) {
    std::vector<double> list;
    for (const auto& row : cli().rows(model + eval)) list.push_back(row.at("perplexity"));
    return list;
  };
  const auto trained = perplexities(words("{base} --adapter {}", run));
  // One folder, PEFT's files and Focus's, which one --adapter takes.
  cli().must_run(words("export {base} --adapter {} --out {}", run, folder));
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "focus_config.json",
                           "focus_model.safetensors"})
    EXPECT_TRUE(fs::exists(folder + "/" + name)) << name;
  EXPECT_EQ(perplexities(words("{base} --adapter {}", folder)), trained);
  const auto info = cli().figures({"info", folder});
  EXPECT_GT(info.at("lora_parameters"), 0);
  EXPECT_EQ(info.at("focus_grouping"), "keys");
  // One model.
  cli().must_run(words("merge {base} --adapter {} --out {}", run, merged));
  const auto near = [&](const std::vector<double>& found) {
    ASSERT_EQ(found.size(), trained.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], trained[i], 1e-4 * trained[i]) << i;
  };
  near(perplexities({merged}));
  cli().must_run(words("export {base} --adapter {} --with-code --out {}", run, code));
  EXPECT_TRUE(fs::exists(code + "/modeling_focus.py"));
  EXPECT_FALSE(fs::exists(code + ".merging"));
  near(perplexities({code, "--tokenizer", "bytes"}));
  // llama.cpp has no groups.
  const auto written = cli().must_run(words("export {base} --adapter {} --gguf {}", run, gguf));
  EXPECT_NE(written.out.find("trained with groups"), std::string::npos) << written.out;
}

TEST(CliKeys, TrainingStartsFromThoseOfAFit) {
  const std::string out = cli().fresh("run"), both = cli().fresh("both");
  const Words from = keys_run({"focus.num_groups=4", "focus.local_window=4"});
  const ProcessResult placed =
      cli().must_run(cli().retrofit(from + words("init_adapter={keys} steps=0 out={}", out)));
  expect_parts(placed.err, {"density ", "next: focus eval"});
  const StoreReader fitted(cli().keys()), kept(out + "/focus.h5");
  for (const std::string layer : {"/focus/layer_000/", "/focus/layer_001/"})
    for (const std::string name :
         {"centroids", "bias", "beta", "temperature", "spread", "needs", "summary_width"})
      EXPECT_TRUE(same_bits(fitted.tensor(layer + name), kept.tensor(layer + name)));
  EXPECT_EQ(kept.int_attribute("/focus", "fitted_context"), 64);
  // Beside a LoRA, both from one file, and from two.
  const std::string again = cli().fresh("again"), lora = "method=lora attention=focus lora.r=2";
  cli().must_run(cli().retrofit(from + words(lora + " init_adapter={keys} out={}", both)));
  cli().must_run(
      cli().retrofit(from + words(lora + " init_adapter={} steps=1 out={}", both, again)));
  EXPECT_EQ(metrics_of(again).front().at("valid_loss"), metrics_of(both).back().at("valid_loss"));
  cli().must_run(cli().retrofit(
      from + words(lora + " init_adapter=[{keys},{lora}] steps=1 out={} --overwrite", again)));
}

TEST(CliKeys, SpeedKnowsThem) {
  const auto row = cli()
                       .figures(
                           "speed --lengths 96 --heads 2 --head-dim 8 --num-groups 3 "
                           "--local-window 4 --repeats 1 --attention summary:1 --backward")
                       .at("rows")
                       .at(0);
  EXPECT_GT(row.at("focus").at("gflops"), 0);
  EXPECT_LT(row.at("pairs_attended"), row.at("pairs_all"));
  const auto step = cli().figures(
      "speed --step --vocab-size 50 --repeats 1 model.hidden_size=16 model.num_hidden_layers=2 "
      "data.context=32 focus.num_groups=3 focus.local_window=4 focus.grouping=keys "
      "focus.training=summary focus.keys.fit_tokens=64 focus.summary.block=4");
  EXPECT_EQ(step.at("attention"), "summary m=2 w=4 block=4");
  // Two layers, four key heads of three groups: centroids of width 4, b and beta.
  EXPECT_EQ(step.at("trained"), 2 * 4 * 3 * (4 + 2));
  const auto decoding =
      cli()
          .figures(with_keys("speed", "--decode --attention dense,summary:0 --lengths 28"))
          .at("rows");
  EXPECT_EQ(decoding.at(0).at("keys_read"), 1.0);
  EXPECT_GT(decoding.at(1).at("cache_bytes"), 0);
  EXPECT_LT(decoding.at(1).at("keys_read"), 1.0);
}

TEST(CliKeys, CompareHasThemPlacedAndTrainedAgainstDense) {
  const std::string out = cli().fresh("compare");
  const std::string path = compare_config(R"(common:
  base: {base}
  data: {data}
  steps: 2
  eval_windows: 2
  focus: {num_groups: 4, local_window: 4, summary: {block: 4}, keys: {fit_tokens: 512}}
runs:
  - {name: tokens, focus.tokens.routing_dim: 8}
  - {name: placed, steps: 0, focus: {grouping: keys, training: summary}}
  - {name: trained, focus: {grouping: keys, training: summary}}
eval: {valid: [{valid}], context: 64, against: dense,
       attentions: [dense, "hard:1", "summary:1", "summary:9"]}
)");
  cli().must_run({"compare", path, "--dry-run"});
  const ProcessResult result = cli().must_run({"compare", path, "out=" + out});
  expect_parts(result.out, {"nats against dense"});
  std::map<std::string, Words> attentions;
  for (const auto& row : compare_rows(out)) {
    attentions[row.at("run")].push_back(row.at("attention"));
    EXPECT_GE(row.at("kl"), 0.0);
    EXPECT_TRUE(row.at("nats_against_dense_error").is_number());
    EXPECT_EQ(row.at("train_tokens"), row.at("run") == "placed" ? 0 : 2 * 2 * 64);
  }
  EXPECT_EQ(attentions["tokens"], (Words{"dense", "hard k=1 keep", "summary m=1 w=4 block=4"}));
  EXPECT_EQ(attentions["placed"], (Words{"dense", "summary m=1 w=4 block=4"}));
  EXPECT_EQ(attentions["trained"], attentions["placed"]);
  const std::string page = read_text(out + "/compare.html");
  expect_parts(page, {"nats against dense"});
  EXPECT_FALSE(contains(page, "nan"));
  // Done before: nothing is trained again.
  const ProcessResult again = cli().must_run({"compare", path, "out=" + out});
  EXPECT_EQ(again.out, result.out);
  EXPECT_FALSE(contains(again.err, "training")) << again.err;
}

}  // namespace
}  // namespace focus
