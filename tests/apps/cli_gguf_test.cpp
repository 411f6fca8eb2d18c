// GGUF files wherever a model or an adapter is named, against the Hugging Face folder that export
// makes of them.
#include "tests/support/cli.h"
#include "tests/support/golden_gguf.h"

namespace focus {
namespace {

class CliGguf : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& path : golden_gguf_files(".gguf"))
      if (path.filename() == "llama.gguf") gguf_ = path.string();
    if (gguf_.empty()) GTEST_SKIP() << "no gguf/llama.gguf here";
    folder_ = cli().fresh("folder");
    cli().must_run({"export", gguf_, "--out", folder_});
  }
  /// Both give the same run; `words` name neither base nor folder.
  void expect_same(const Words& words) {
    const std::string a = cli().fresh("gguf"), b = cli().fresh("hf");
    cli().must_run(cli().config(Words{"base=" + gguf_, "out=" + a} + words));
    cli().must_run(cli().config(Words{"base=" + folder_, "out=" + b} + words));
    expect_same_run(a, b);
  }
  std::string gguf_, folder_;
};

TEST_F(CliGguf, TrainsAsTheFolderDoes) {
  expect_same({"method=retrofit", "steps=3"});
  expect_same({"method=lora", "lora.r=2", "steps=3"});
  expect_same({"method=full", "steps=2"});
}

TEST_F(CliGguf, FitsAsTheFolderDoes) {
  const std::string a = cli().fresh("a.h5"), b = cli().fresh("b.h5");
  const auto fit = [&](const std::string& base, const std::string& out) {
    cli().must_run({"fit", base, "--text", cli().train_text(), "--num-groups", "4", "--out", out});
  };
  fit(gguf_, a);
  fit(folder_, b);
  expect_same_store(a, b);
  // What was fitted on the one goes onto the other.
  const Words eval = {"--text", cli().valid_text(), "--context", "32"};
  EXPECT_EQ(cli().figures(Words{"eval", gguf_, "--adapter", b} + eval).at("rows"),
            cli().figures(Words{"eval", folder_, "--adapter", a} + eval).at("rows"));
}

TEST_F(CliGguf, OtherCommandsTakeItToo) {
  const auto logits = [&](const std::string& base) {
    const std::string out = cli().fresh("logits.safetensors");
    cli().must_run({"logits", base, "--text", "ab", "--out", out});
    return read_text(out);
  };
  EXPECT_EQ(logits(gguf_), logits(folder_));
  cli().must_run({"leak-test", gguf_});
  const Words step = {"data.context=32", "data.batch=1", "--repeats", "1"};
  cli().must_run(Words{"speed", "--step", "base=" + gguf_} + step);
  const std::string adapter = cli().fresh("keys.h5"), text = cli().valid_text();
  const Words fit = {"--num-groups", "4", "--context", "32", "--tokens", "256", "--out", adapter};
  cli().must_run(Words{"fit", gguf_, "--text", text} + fit);
  cli().must_run({"groups", gguf_, "--adapter", adapter, "--text", text, "--context", "32", "--out",
                  cli().fresh("groups")});
}

TEST_F(CliGguf, IsImportedWithItsTokenizerAndSideFiles) {
  const std::string store = cli().fresh("model.h5");
  cli().must_run({"import", gguf_, "--out", store});
  const auto of = [&](const std::string& path) { return cli().figures({"info", path}); };
  const auto file = of(gguf_), imported = of(store), folder = of(folder_);
  EXPECT_EQ(file.at("kind"), "GGUF file");
  for (const char* fact : {"model_fingerprint", "tokenizer_fingerprint", "parameters"}) {
    EXPECT_EQ(imported.at(fact), file.at(fact)) << fact;
    EXPECT_EQ(folder.at(fact), file.at(fact)) << fact;
  }
  EXPECT_TRUE(contains(file.at("tensors").get<std::string>(), "Q8_0 "));
  const std::string again = cli().fresh("again");
  cli().must_run({"export", store, "--out", again});
  EXPECT_EQ(snapshot(again), snapshot(folder_));
  const auto generation =
      nlohmann::json::parse(read_text(fs::path(again) / "generation_config.json"));
  EXPECT_TRUE(generation.contains("eos_token_id"));
}

TEST_F(CliGguf, GenerationIsThatOfTheFolder) {
  const Words words = {"--prompt", "It was", "--max-new-tokens", "12"};
  EXPECT_EQ(cli().must_run(Words{"generate", gguf_} + words).out,
            cli().must_run(Words{"generate", folder_} + words).out);
}

TEST_F(CliGguf, AnAdapterGoesOntoItsBase) {
  const fs::path adapter = fs::path(gguf_).replace_filename("llama_lora.gguf");
  if (!fs::exists(adapter)) GTEST_SKIP() << adapter;
  const auto info = cli().figures({"info", adapter.string()});
  EXPECT_EQ(info.at("kind"), "GGUF adapter");
  const auto perplexity = [&](const Words& model) {
    const auto rows = cli().figures(Words{"eval"} + model +
                                    Words{"--text", cli().valid_text(), "--attention", "dense"});
    return rows.at("rows").at(0).at("perplexity").get<double>();
  };
  const double with = perplexity({gguf_, "--adapter", adapter.string()});
  EXPECT_NE(with, perplexity({gguf_}));
  EXPECT_EQ(with, perplexity({folder_, "--adapter", adapter.string()}));
}

TEST_F(CliGguf, RefusesInALine) {
  const std::string wrong = cli().fresh("wrong.gguf");
  write_text(wrong, "GGML");
  expect_refused({"info", wrong}, {"wrong.gguf", "not a GGUF file"});
  const std::string whole = read_text(gguf_);
  write_text(wrong, whole.substr(0, whole.size() / 2));
  expect_refused({"eval", wrong, "--text", cli().valid_text()}, {"beyond the end of the file"});
  expect_refused({"import", wrong, "--out", cli().fresh("x.h5")}, {"beyond the end of the file"});
  expect_refused(cli().config({"base=" + wrong, "out=" + cli().fresh("run")}),
                 {"beyond the end of the file"});
  const fs::path adapter = fs::path(gguf_).replace_filename("llama_lora.gguf");
  if (!fs::exists(adapter)) return;
  expect_refused({"export", gguf_, "--adapter", adapter.string(), "--out", cli().fresh("x")},
                 {"holds no Focus adapter; focus merge"});
  expect_refused({"eval", adapter.string(), "--text", cli().valid_text()}, {"as --adapter"});
  expect_refused(
      {"eval", cli().other_base(), "--adapter", adapter.string(), "--text", cli().valid_text()},
      {"general.architecture is \"llama\", expected \"gpt2\""});
  expect_refused({"eval", gguf_, "--adapter", gguf_, "--text", cli().valid_text()},
                 {"general.type is \"model\", expected \"adapter\""});
}

}  // namespace
}  // namespace focus
