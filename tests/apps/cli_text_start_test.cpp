#include "data/tensors/safetensors.h"
#include "tests/support/cli.h"
#include "tests/support/golden_model.h"

// What precedes a text, what ends one, and statements that differ.
namespace focus {
namespace {

using Json = nlohmann::json;

/// A golden llama, whose config.json says that 0 is BOS, with a tokenizer of its 96 ids.
struct Folder {
  std::string path = cli().fresh("model");
  explicit Folder(const Json& tokenizer_config = Json::object()) {
    fs::copy(golden_path("arch/llama_gqa"), path);
    fs::copy(cli().ascii_tokenizer(), path + "/tokenizer.json");
    write("tokenizer_config.json", tokenizer_config);
  }
  Json read(const std::string& name) const { return Json::parse(read_text(path + "/" + name)); }
  void write(const std::string& name, const Json& json) const {
    write_text(path + "/" + name, json.dump());
  }
  void set(const std::string& name, const std::string& key, const Json& value) const {
    Json json = read(name);
    json[key] = value;
    write(name, json);
  }
};

Json prompt_tokens(const Folder& folder, const std::string& text, const Words& more = {}) {
  return cli()
      .figures(Words{"generate", folder.path, "--prompt", text, "--max-new-tokens", "1"} + more)
      .at("prompt_tokens");
}

Json ids(const Folder& folder, const std::string& text, const Words& more = {}) {
  return cli()
      .figures(Words{"logits", folder.path, "--text", text, "--out", cli().fresh("l.safetensors")} +
               more)
      .at("ids");
}

const Json kAdds = {{"bos_token", "~"}, {"eos_token", "|"}, {"add_bos_token", true}};  // 95, 93

TEST(CliTextStart, TheTokenizersFilesDecide) {
  const Folder none;
  EXPECT_EQ(prompt_tokens(none, "Hello"), 5);
  EXPECT_EQ(prompt_tokens(none, "Hello", {"--bos", "always"}), 6);
  EXPECT_EQ(ids(none, "ab", {"--bos", "always"}), Json({0, 66, 67}));
  const Folder adds(kAdds);
  EXPECT_EQ(ids(adds, "ab"), Json({95, 66, 67}));
  EXPECT_EQ(ids(adds, "~ab"), Json({95, 66, 67}));  // no second one
  EXPECT_EQ(ids(adds, "ab", {"--bos", "never"}), Json({66, 67}));
  EXPECT_EQ(ids(adds, "ab", {"--bos", "always"}), Json({0, 66, 67}));
  EXPECT_EQ(prompt_tokens(adds, "~Hello"), 6);
}

TEST(CliTextStart, AddBosTokenGoesBeforeTheTemplate) {
  Folder folder({{"bos_token", "~"}, {"add_bos_token", false}});
  Json tokenizer = folder.read("tokenizer.json");
  tokenizer["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "~"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"special_tokens", {{"~", {{"id", "~"}, {"ids", {95}}, {"tokens", {"~"}}}}}}};
  folder.write("tokenizer.json", tokenizer);
  EXPECT_EQ(ids(folder, "ab"), Json({66, 67}));
  folder.write("tokenizer_config.json", {{"bos_token", "~"}});
  EXPECT_EQ(ids(folder, "ab"), Json({95, 66, 67}));
  folder.write("tokenizer_config.json", {{"bos_token", "~"}, {"add_bos_token", false}});
  const ProcessResult said = cli().must_run({"generate", folder.path, "--prompt", "a"});
  EXPECT_TRUE(contains(said.err, "notice: ")) << said.err;
  EXPECT_TRUE(contains(said.err, "add_bos_token")) << said.err;
}

TEST(CliTextStart, EvaluationPutsItOnceOrBeforeEachWindow) {
  const Folder folder(kAdds);
  const auto scored = [&](const Words& more) {
    return cli()
        .figures(Words{"eval", folder.path, "--text", cli().valid_text(), "--context", "16",
                       "--stride", "8", "--max-tokens", "100"} +
                 more)
        .at("rows")
        .at(0);
  };
  for (const char* bos : {"auto", "always", "never", "window"})
    EXPECT_EQ(scored({"--bos", bos}).at("tokens_scored"), 99) << bos;
  EXPECT_NE(scored({}).at("perplexity"), scored({"--bos", "window"}).at("perplexity"));
  EXPECT_NE(scored({}).at("perplexity"), scored({"--bos", "always"}).at("perplexity"));
  expect_refused({"eval", folder.path, "--text", cli().valid_text(), "--context", "16", "--stride",
                  "16", "--bos", "window"},
                 {"stride of 16"});
}

TEST(CliTextStart, TrainingTakesDataBos) {
  const Folder folder(kAdds);
  const auto trained = [&](const char* bos) {
    const std::string out = cli().fresh("run");
    cli().must_run(cli().config({"method=lora", "lora.r=2", "base=" + folder.path, "steps=1",
                                 "data.context=16", std::string("data.bos=") + bos, "out=" + out}));
    return metrics_of(out);
  };
  EXPECT_NE(trained("auto"), trained("never"));
  EXPECT_NE(trained("auto"), trained("window"));
}

TEST(CliTextEnd, EveryIdOfTheListEndsAndExportKeepsThem) {
  const Folder folder;
  fs::remove(folder.path + "/generation_config.json");
  folder.set("config.json", "eos_token_id", nullptr);
  const Words command = {"generate", folder.path, "--prompt", "Hello", "--max-new-tokens", "6"};
  const Json endless = cli().figures(command).at("ids");
  ASSERT_EQ(endless.size(), 6u);
  const auto ends_at = [&](std::size_t index) {
    const Json figures = cli().figures(command);
    const auto first = std::find(endless.begin(), endless.end(), endless[index]);
    EXPECT_EQ(figures.at("ids").size(), static_cast<std::size_t>(first - endless.begin()));
    EXPECT_EQ(figures.at("stop"), "end of text");
  };
  const Json unused = endless[0] == 3 ? 4 : 3;
  folder.set("config.json", "eos_token_id", {unused, endless[5]});
  ends_at(5);
  const std::string store = cli().fresh("m.h5"), out = cli().fresh("out");
  cli().must_run({"import", folder.path, "--out", store});
  cli().must_run({"export", store, "--out", out});
  for (const char* name : {"config.json", "generation_config.json"})
    EXPECT_EQ(Json::parse(read_text(out + "/" + name)).at("eos_token_id"),
              Json({unused, endless[5]}));
  folder.write("generation_config.json", {{"eos_token_id", {endless[0], endless[5]}}});
  ends_at(0);
}

TEST(CliTextEnd, GenerationConfigGivesDefaultsAndIsTold) {
  const Folder folder;
  const Words command = {"generate", folder.path, "--prompt", "Hello", "--max-new-tokens", "24"};
  const Json greedy = cli().figures(command).at("ids");
  folder.write("generation_config.json", {{"do_sample", true}, {"temperature", 2.5}});
  const ProcessResult told = cli().must_run(command);
  EXPECT_TRUE(contains(told.err, "generation_config.json: temperature 2.5, top_k 50")) << told.err;
  EXPECT_NE(cli().figures(command).at("ids"), greedy);
  EXPECT_EQ(cli().figures(command + Words{"--temperature", "0"}).at("ids"), greedy);
  folder.write("generation_config.json", {{"repetition_penalty", 5.0}});
  const Json penalised = cli().figures(command).at("ids");
  EXPECT_NE(penalised, greedy);
  EXPECT_EQ(cli().figures(command + Words{"--repetition-penalty", "1"}).at("ids"), greedy);
}

TEST(CliStatements, AnotherHeadIsNotTied) {
  const Folder folder;
  const auto logits = [&] {
    const std::string out = cli().fresh("l.safetensors");
    const ProcessResult run =
        cli().must_run({"logits", folder.path, "--ids", "5,9,77", "--out", out});
    return std::pair(SafetensorsFile(out).read("logits").clone(), run.err);
  };
  const auto [own, silent] = logits();
  EXPECT_EQ(silent, "");
  folder.set("config.json", "tie_word_embeddings", true);
  const auto [still_own, told] = logits();
  EXPECT_TRUE(same_bits(still_own, own));
  EXPECT_TRUE(contains(told, "lm_head.weight")) << told;
  EXPECT_EQ(std::ranges::count(told, '\n'), 1) << told;
  const std::string out = cli().fresh("out");
  cli().must_run({"export", folder.path, "--out", out});
  EXPECT_EQ(Json::parse(read_text(out + "/config.json")).at("tie_word_embeddings"), false);
}

TEST(CliStatements, AnIdBeyondTheRowsIsAnErrorWhereItIsUsed) {
  const Folder folder;
  Json tokenizer = folder.read("tokenizer.json");
  tokenizer["added_tokens"].push_back({{"id", 97},
                                       {"content", "[PAD]"},
                                       {"single_word", false},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"normalized", false},
                                       {"special", true}});
  folder.write("tokenizer.json", tokenizer);
  EXPECT_EQ(prompt_tokens(folder, "Hello"), 5);
  const std::string text = cli().fresh("t.txt");
  write_text(text, "some words and [PAD] among them, and more of them");
  // The notice that sizes differ is left out: one line.
  const Words quiet = {"--log-level", "error"};
  expect_refused(Words{"generate", folder.path, "--prompt", "a[PAD]"} + quiet,
                 {"97", "[PAD]", "96 ids"});
  expect_refused(Words{"eval", folder.path, "--text", text} + quiet, {text, "97", "[PAD]"});
  expect_refused(
      Words{"logits", folder.path, "--text", "a[PAD]", "--out", cli().fresh("l")} + quiet, {"97"});
  EXPECT_TRUE(contains(cli().run({"generate", folder.path, "--prompt", "a"}).err,
                       "notice: " + folder.path + ": the tokenizer has 98 ids"));
  cli().must_run({"import", folder.path, "--out", cli().fresh("m.h5")});
}

}  // namespace
}  // namespace focus
