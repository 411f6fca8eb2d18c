#include <set>

#include "tests/support/cli.h"
#include "tests/support/golden_model.h"

// `focus export` of a Focus that groups keys, and --with-code: the Python beside a model. That the
// Python computes what the program does is tests/interop's to say.
namespace focus {
namespace {

std::string trained_keys() {
  static const std::string path = [] {
    const std::string out = cli().fresh("keys");
    cli().must_run(cli().retrofit({"out=" + out, "focus.grouping=keys", "focus.training=summary",
                                   "focus.summary.block=4", "focus.keys.fit_tokens=128"}));
    return out + "/focus.h5";
  }();
  return path;
}

nlohmann::json scores_of(const Words& model) {
  const auto rows =
      cli()
          .figures(Words{"eval"} + model +
                   Words{"--text", cli().valid_text(), "--context", "64", "--tokenizer", "bytes"})
          .at("rows");
  EXPECT_GE(rows.size(), 2u) << "nothing but dense";
  return rows;
}

nlohmann::json exported_config(const std::string& folder) {
  return nlohmann::json::parse(read_text(folder + "/config.json"));
}

TEST(CliExportCode, AKeysAdaptersFolderIsTheAdapter) {
  const std::string out = cli().fresh("adapter"), again = cli().fresh("again");
  cli().must_run({"export", trained_keys(), "--out", out});
  EXPECT_EQ(scores_of({cli().base(), "--adapter", out}),
            scores_of({cli().base(), "--adapter", trained_keys()}));
  cli().must_run({"export", out, "--out", again});
  EXPECT_EQ(snapshot(again), snapshot(out));
  const auto config = nlohmann::json::parse(read_text(out + "/focus_config.json"));
  EXPECT_EQ(config.at("grouping"), "keys");
  for (const char* key : {"num_key_value_heads", "head_dim", "num_hidden_layers"})
    EXPECT_GT(config.at(key), 0) << key;
}

TEST(CliExportCode, LogitsOfGroupsOfKeysAreWritten) {
  const std::string out = cli().fresh("logits.safetensors");
  cli().must_run({"logits", cli().base(), "--adapter", trained_keys(), "--ids", "5,1,7,60",
                  "--attention", "summary:1", "--out", out});
  EXPECT_TRUE(fs::exists(out));
}

TEST(CliExportCode, TheCodeStandsBesideTheModel) {
  const std::string source =
      read_text(fs::path(FOCUS_SOURCE_DIR) / "focus/models/modeling_focus.py");
  for (const auto& [adapter, word] :
       {std::pair{trained_keys(), "summary"}, {cli().adapter(), "soft"}}) {
    const std::string out = cli().fresh("both"), plain = cli().fresh("plain");
    const Words words = {"export", cli().base(), "--adapter", adapter, "--out"};
    EXPECT_EQ(cli().figures(words + Words{out, "--with-code"}).at("with_code"), true);
    EXPECT_EQ(read_text(out + "/modeling_focus.py"), source);
    const auto config = exported_config(out);
    EXPECT_EQ(config.at("focus_attention"), word);
    EXPECT_EQ(config.at("auto_map").at("AutoModelForCausalLM"),
              "modeling_focus.Focus" + config.at("architectures").at(0).get<std::string>());
    // For the program it is the model and its Focus; of what else there is nothing has changed.
    EXPECT_EQ(scores_of({out}), scores_of({cli().base(), "--adapter", adapter}));
    EXPECT_EQ(cli().figures(words + Words{plain}).at("with_code"), false);
    EXPECT_FALSE(exported_config(plain).contains("auto_map"));
    auto files = snapshot(out), others = snapshot(plain);
    for (auto* of : {&files, &others}) of->erase("config.json");
    EXPECT_EQ(files.erase("modeling_focus.py"), 1u);
    EXPECT_EQ(files, others);
    cli().must_run(words + Words{out, "--overwrite"});
    EXPECT_FALSE(fs::exists(out + "/modeling_focus.py"));
  }
}

TEST(CliExportCode, AModelsOwnFocusHasCodeToo) {
  const std::string both = cli().fresh("both"), out = cli().fresh("code");
  cli().must_run({"export", cli().base(), "--adapter", cli().adapter(), "--out", both});
  cli().must_run({"export", both, "--with-code", "--out", out});
  EXPECT_TRUE(exported_config(out).contains("auto_map"));
}

TEST(CliExportCode, EveryFamilyHasItsClass) {
  const std::string source =
      read_text(fs::path(FOCUS_SOURCE_DIR) / "focus/models/modeling_focus.py");
  std::set<std::string> classes;
  for (const std::string& name : golden_models())
    classes.insert(exported_config(golden_path(name)).at("architectures").at(0).get<std::string>());
  EXPECT_EQ(classes.size(), families().size());
  for (const std::string& name : classes)
    EXPECT_NE(source.find("class Focus" + name + "(FocusModel, transformers." + name + "):"),
              std::string::npos)
        << name;
}

TEST(CliExportCode, WhatHasNoFocusIsRefused) {
  const std::string out = cli().fresh("none");
  expect_refused({"export", cli().base(), "--with-code", "--out", out},
                 {cli().base(), "no Focus", "--adapter"});
  expect_refused({"export", trained_keys(), "--with-code", "--out", out},
                 {trained_keys(), "--with-code", "base"});
  expect_refused(
      {"export", cli().base(), "--with-code", "--adapter", cli().other_base(), "--out", out},
      {cli().other_base(), "no Focus"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliExportCode, BalanceThatSeesLaterTokensIsPointedOut) {
  const Words words = {"export", cli().base(), "--with-code", "--adapter"};
  const std::string said =
      cli().must_run(words + Words{cli().sequence_adapter(), "--out", cli().fresh("both")}).out;
  EXPECT_NE(said.find("focus_attention=\"soft:balance=carried\""), std::string::npos) << said;
  EXPECT_EQ(cli()
                .must_run(words + Words{cli().adapter(), "--out", cli().fresh("both")})
                .out.find("balance"),
            std::string::npos);
}

}  // namespace
}  // namespace focus
