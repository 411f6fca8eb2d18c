#include "data/tensors/safetensors.h"
#include "focus/models/model_files.h"
#include "tests/support/cli.h"

// `focus train` with method lora, what it writes for us and for PEFT, and `focus merge`.
namespace focus {
namespace {

/// A finished run's folder.
std::string trained_lora(const Words& more = {}) {
  const std::string out = cli().fresh("lora");
  cli().must_run(cli().retrofit(
      Words{"method=lora", "lora.r=2", "lora.dropout=0.1", "optim.lr=0.02", "out=" + out} + more));
  return out;
}

TEST(CliLora, StoreAndPeftFolderScoreTheSameAndBetterThanTheBase) {
  const std::string out = trained_lora();
  const StoreReader store(out + "/lora.h5");
  EXPECT_EQ(store.kind(), "adapter");
  EXPECT_FALSE(store.has("/model"));
  const auto score = [&](const Words& more) {
    return cli()
        .figures(Words{"eval", cli().base(), "--text", cli().train_text(), "--context", "64"} +
                 more)
        .at("rows")
        .at(0)
        .at("perplexity")
        .get<double>();
  };
  const double base = score({}), adapted = score({"--adapter", out + "/lora.h5"});
  EXPECT_LT(adapted, base);
  EXPECT_EQ(score({"--adapter", out}), adapted);
}

TEST(CliLora, MergedModelScoresAsTheAdapterDid) {
  const std::string out = trained_lora(), merged = cli().fresh("merged.h5");
  const auto figures = cli().figures({"merge", cli().base(), "--adapter", out, "--out", merged,
                                      "--text", cli().valid_text(), "--context", "64"});
  const double adapter = figures.at("perplexity_adapter");
  EXPECT_NEAR(figures.at("perplexity_merged").get<double>(), adapter, 1e-4 * adapter);
  EXPECT_LT(figures.at("logit_difference").get<double>(), 1e-3);
  const auto alone =
      cli().figures({"eval", merged, "--text", cli().valid_text(), "--context", "64"});
  EXPECT_EQ(alone.at("rows").at(0).at("perplexity"), figures.at("perplexity_merged"));
}

TEST(CliLora, RefusalsNameWhatIsWrongAndWriteNothing) {
  const std::string out = cli().fresh("refused");
  const auto refused = [&](const Words& words) {
    const ProcessResult result = cli().run(words);
    EXPECT_NE(result.status, 0);
    EXPECT_FALSE(fs::exists(out));
    return result.err;
  };
  EXPECT_TRUE(contains(
      refused(cli().retrofit({"method=lora", "lora.target_modules=[c_attn]", "out=" + out})),
      "named 'c_attn'; it has"));
  EXPECT_TRUE(contains(refused(cli().retrofit({"method=lora", "attention=focus", "out=" + out})),
                       "with lora needs focus.training summary"));
  EXPECT_TRUE(contains(refused({"merge", cli().base(), "--adapter", cli().adapter(), "--out", out}),
                       "is not a LoRA adapter"));
  const std::string folder = trained_lora();
  EXPECT_TRUE(contains(
      refused({"merge", cli().other_base(), "--adapter", folder + "/lora.h5", "--out", out}),
      "use the base it was trained on"));
  fs::remove(folder + "/adapter_model.safetensors");
  EXPECT_TRUE(contains(refused({"merge", cli().base(), "--adapter", folder, "--out", out}),
                       "not a PEFT adapter"));
}

}  // namespace
}  // namespace focus
