#include "tests/support/cli.h"

// `focus speed` and `focus speed --step`: what they print and write, on lengths and models so small
// that their speed says nothing.
namespace focus {
namespace {

Words tiny_speed(const Words& more) {
  return Words("speed --lengths 96,32 --heads 2 --head-dim 8 --num-groups 3 --local-window 4") +
         "--repeats 1" + more;
}

Words tiny_step(const Words& more) {
  return Words("speed --step --vocab-size 50 --repeats 2 model.hidden_size=16") +
         "model.num_hidden_layers=2 data.context=32 focus.num_groups=3 focus.local_window=4" + more;
}

TEST(CliSpeed, TablesHaveTheirColumns) {
  const ProcessResult result = cli().must_run(tiny_speed("--attention hard:1 --backward"));
  expect_parts(result.out,
               {"tokens", "full", "Focus", "GFLOP/s", "density", "largest group", "speed-up",
                "ideal", "routing included", "memory", "groups by routing random vectors"});
  expect_parts(result.err, {"96 tokens: round 1, full attention"});
}

TEST(CliSpeed, JsonHoldsEveryLengthInOrder) {
  const auto json = cli().figures(tiny_speed({"--dense-up-to", "50"}));
  for (const char* key : {"processor", "threads", "kernels", "numbers", "cache_bytes", "clock_ghz"})
    EXPECT_TRUE(json.at("machine").contains(key)) << key;
  EXPECT_EQ(json.at("num_groups"), 3);
  const auto& rows = json.at("rows");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("length"), 32);
  EXPECT_EQ(rows[1].at("length"), 96);
  EXPECT_EQ(rows[1].at("pairs_all"), 96 * 97 / 2);
  EXPECT_LT(rows[1].at("pairs_attended"), rows[1].at("pairs_all"));
  for (const auto& row : rows) {
    EXPECT_GT(row.at("focus").at("gflops"), 0);
    EXPECT_GE(row.at("focus").at("seconds").size(), 1u);
    EXPECT_GT(row.at("routing").at("seconds_min"), 0);
    EXPECT_GT(row.at("peak_resident_bytes"), 0);
    EXPECT_NEAR(row.at("ideal_speedup").get<double>(),
                row.at("pairs_all").get<double>() / row.at("pairs_attended").get<double>(), 1e-12);
  }
  EXPECT_NEAR(rows[0].at("efficiency").get<double>(),
              rows[0].at("speedup").get<double>() / rows[0].at("ideal_speedup").get<double>(),
              1e-12);
  EXPECT_TRUE(rows[1].at("dense").is_null());
  EXPECT_TRUE(rows[1].at("speedup").is_null());
}

TEST(CliSpeed, SaysWhatProductsAreOf) {
  const ProcessResult plain = cli().must_run(tiny_speed({}));
  EXPECT_FALSE(contains(plain.out, "bf16")) << plain.out;
  const auto figures = cli().figures(tiny_speed({"--precision", "bf16"}));
  EXPECT_EQ(figures.at("precision"), "bf16");
  // A machine that is no faster by it says so.
  expect_parts(cli().must_run(tiny_speed("--precision bf16")).out, {"bf16"});
}

TEST(CliSpeed, RefusesWhatMakesNoSense) {
  const std::string json = cli().fresh("speed.json");
  const std::vector<std::pair<Words, std::vector<std::string>>> cases = {
      {"--lengths 0", {"--lengths", "positive", "0"}},
      {"--lengths=64,-8", {"--lengths", "-8"}},
      {"--attention hard:9", {"hard:9", "8 groups"}},
      {"--attention hard:0", {"--attention"}},
      {"--num-groups 65", {"--num-groups", "64", "65"}},
      {"--heads two", {"--heads", "two"}},
      {"--attention hard:1:gate=maybe", {"--attention", "drop, keep", "maybe"}},
      {"--attention soft", {"soft", "hard:K or summary:M"}},
      {"--local-window -1", {"--local-window", "-1"}},
      {"--heads 0", {"--heads"}},
      {"--head-dim -4", {"--head-dim"}},
      {"--precision q8", {"--precision q8", "float32 or bf16"}},
      {"--repeats 0", {"--repeats"}},
      {"--threads -1", {"--threads"}},
      {"--dense-up-to -1", {"--dense-up-to"}}};
  for (const auto& [more, parts] : cases)
    expect_refused(words("speed --json {}", json) + more, parts);
  EXPECT_FALSE(fs::exists(json));
}

TEST(CliSpeed, DecodingReadsWeightsAndTheKeysThatAttentionWants) {
  const Words command = "speed --decode {base} --adapter {adapter}";
  const auto json = cli().figures(command + Words{"--lengths", "5,32"});
  EXPECT_GT(json.at("read_bytes_per_second"), 1e8);
  const auto& rows = json.at("rows");
  ASSERT_EQ(rows.size(), 4u);  // dense and what the adapter generates with, at both lengths
  EXPECT_EQ(rows[0].at("attention"), "dense");
  EXPECT_EQ(rows[1].at("attention"), "hard k=1 keep, carried");
  EXPECT_EQ(rows[2].at("context"), 32);
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("decoded_tokens"), 32);
    EXPECT_GT(row.at("tokens_per_second"), 0.0);
    EXPECT_EQ(row.at("weight_bytes"), rows[0].at("weight_bytes"));
  }
  // The head and, in 2 layers, four matrices of 32 x 32 at least, and 3 of the MLP.
  EXPECT_GE(rows[0].at("weight_bytes"), 2 * 4 * 32 * 32 * 4);
  EXPECT_EQ(rows[2].at("keys_read"), 1.0);
  EXPECT_LT(rows[3].at("keys_read"), 1.0);
  // Keys and values of 64 tokens in 2 layers of width 32.
  EXPECT_GE(rows[2].at("cache_bytes"), 64 * 2 * 2 * 32 * 4);
}

TEST(CliSpeed, DecodingRefusesWhatDoesNotFit) {
  const Words command = "speed --decode {base} --adapter {adapter}";
  expect_refused(command + "--lengths 33", {"--lengths 33", "64 positions"});
  expect_refused(command + "--lengths 0", {"--lengths 0"});
  expect_refused(command + "--attention soft", {"soft", "every key"});
  expect_refused(command + "--attention window:4", {"window:4", "cache"});
  EXPECT_EQ(cli().run("speed --decode").status, 2);
}

TEST(CliStepSpeed, StepHasEveryPhaseAndFigure) {
  const auto json = cli().figures(tiny_step({"data.batch=2"}));
  EXPECT_EQ(json.at("method"), "retrofit");
  EXPECT_EQ(json.at("attention"), "soft");
  EXPECT_EQ(json.at("seconds").size(), 2u);
  EXPECT_EQ(json.at("trained"), 2 * (16 * 16 + 3 * 16));  // projection and centroids, two layers
  for (const char* key : {"seconds_min", "seconds_median", "tokens_per_second",
                          "tokens_per_second_median", "gflops", "peak_gflops", "share_of_peak",
                          "peak_resident_bytes", "peak_tensor_bytes", "multiply_adds"})
    EXPECT_GT(json.at(key).get<double>(), 0) << key;
  double sum = 0;
  Words phases;
  for (const auto& phase : json.at("phases")) {
    phases.push_back(phase.at("phase"));
    for (const char* part : {"forward_seconds", "backward_seconds", "update_seconds"})
      sum += phase.at(part).get<double>();
    if (phase.at("phase") == "optimiser") {
      EXPECT_GT(phase.at("update_seconds"), 0);
    } else {
      EXPECT_GT(phase.at("forward_seconds"), 0) << phase;
    }
  }
  EXPECT_EQ(phases, (Words{"embedding", "attention", "routing", "linear", "loss", "optimiser",
                           "element-wise, norms"}));
  double marks = 0;
  for (const auto& mark : json.at("marks")) marks += mark.at("seconds").get<double>();
  EXPECT_NEAR(sum, marks, 1e-9);
  EXPECT_LE(sum, json.at("seconds_min").get<double>() + 1e-6);
}

TEST(CliStepSpeed, MethodAndAttentionAreTheConfigs) {
  const auto hard = cli().figures(
      tiny_step("focus.training=hard focus.tokens.train_top_k=1 focus.tokens.sequence_steps=0"));
  EXPECT_EQ(hard.at("attention"), "hard k=1 keep");
  EXPECT_EQ(hard.at("balance"), "carried");
  const auto full = cli().figures(tiny_step({"method=full", "model.model_type=gpt2"}));
  EXPECT_EQ(full.at("attention"), "dense");
  EXPECT_EQ(full.at("model").at("model_type"), "gpt2");
  EXPECT_EQ(full.at("trained"), full.at("parameters"));
}

TEST(CliStepSpeed, KeysGoOverANamedShape) {
  const auto json = cli().figures(
      "speed --step --shape llama-15m --repeats 1 --vocab-size 60 "
      "model.num_hidden_layers=1 data.context=16");
  EXPECT_EQ(json.at("model").at("hidden_size"), 288);
  EXPECT_EQ(json.at("model").at("num_hidden_layers"), 1);
  EXPECT_EQ(json.at("model").at("vocab_size"), 60);
}

TEST(CliStepSpeed, ReadsAConfigAndLeavesTheDiskAlone) {
  const std::string folder = cli().fresh("folder"), out = folder + "/run";
  fs::create_directory(folder);
  write_text(folder + "/config.yaml",
             "out: " + out + "\nbase: not-there.h5\nfocus:\n  num_groups: 5\n");
  const auto before = snapshot(folder);
  const ProcessResult result = cli().must_run(
      words("speed --step {}/config.yaml --vocab-size 50 --repeats 1 model.hidden_size=16 "
            "model.num_hidden_layers=1 data.context=16",
            folder));
  expect_parts(result.out, {"tokens/s"});
  EXPECT_EQ(snapshot(folder), before);
}

TEST(CliStepSpeed, RefusesWhatMakesNoSense) {
  const Words step = "speed --step";
  expect_refused(step + "--shape gpt5", {"gpt5", "gpt2, llama-15m"});
  expect_refused(step + "--repeats 0", {"--repeats"});
  expect_refused(step + "--vocab-size -3", {"--vocab-size"});
  expect_refused(tiny_step("model.num_attention_heads=5"), {"num_attention_heads 5"});
  expect_refused(tiny_step("focus.tokens.temperature=0"), {"focus.tokens.temperature"});
  expect_refused(tiny_step("data.contxt=3"), {"data.contxt", "data.context"});
}

}  // namespace
}  // namespace focus
