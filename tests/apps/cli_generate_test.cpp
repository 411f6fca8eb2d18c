#include <cstdlib>

#include "tests/support/cli.h"

// Text from a prompt: with and without the cache, drawn and greedy, and what is refused.
namespace focus {
namespace {

Words generate(const Words& more) {
  return Words{"generate", cli().base(), "--prompt", "Once upon a", "--max-new-tokens", "30"} +
         more;
}
Words focused(const Words& more) { return generate(Words{"--adapter", cli().adapter()} + more); }

TEST(CliGenerate, TextOnStdoutFiguresOnStderrAndInJson) {
  const std::string path = cli().fresh("generate.json");
  const ProcessResult result = cli().must_run(focused({"--json", path}));
  const auto json = nlohmann::json::parse(read_text(path));
  EXPECT_EQ(result.out, json.at("text").get<std::string>() + "\n");
  EXPECT_TRUE(contains(result.err, "prompt 11 tokens")) << result.err;
  EXPECT_TRUE(contains(result.err, "30 new tokens")) << result.err;
  EXPECT_TRUE(contains(result.err, "attention hard k=1 keep, carried")) << result.err;
  EXPECT_EQ(json.at("prompt_tokens"), 11);
  EXPECT_EQ(json.at("new_tokens"), 30);
  EXPECT_EQ(json.at("ids").size(), 30u);
  EXPECT_EQ(json.at("stop"), "max-new-tokens");
  EXPECT_GT(json.at("prefill_tokens_per_second"), 0.0);
  EXPECT_GT(json.at("decode_tokens_per_second"), 0.0);
  EXPECT_GT(json.at("keys_read"), 0.0);
  EXPECT_LT(json.at("keys_read"), 1.0);
  EXPECT_GT(json.at("cache_bytes"), 0);
}

TEST(CliGenerate, GreedyTokensAreThoseWithoutACache) {
  for (const Words& mode :
       {Words{"--attention", "dense"}, Words{"--attention", "hard:1"},
        Words{"--attention", "hard:2"}, Words{"--attention", "hard:2:gate=drop"},
        Words{"--attention", "local"}}) {
    const auto cached = cli().figures(focused(mode));
    const auto whole = cli().figures(focused(mode + Words{"--no-cache"}));
    EXPECT_EQ(cached.at("ids"), whole.at("ids")) << testing::PrintToString(mode);
    EXPECT_EQ(cached.at("attention"), whole.at("attention"));
    EXPECT_TRUE(whole.at("keys_read").is_null() && whole.at("cache_bytes").is_null());
  }
}

TEST(CliGenerate, InBf16ItDrawsFromRoundedWeights) {
  const Words bf16 = {"--precision", "bf16"};
  for (const Words& mode : {Words{"--attention", "dense"}, Words{"--attention", "hard:1"}}) {
    const auto cached = cli().figures(focused(mode + bf16));
    const auto whole = cli().figures(focused(mode + bf16 + Words{"--no-cache"}));
    EXPECT_EQ(cached.at("ids"), whole.at("ids"));
    EXPECT_EQ(cached.at("precision"), "bf16");
  }
  const ProcessResult result = cli().must_run(focused(bf16));
  EXPECT_TRUE(contains(result.err, ", carried, bf16")) << result.err;
  EXPECT_EQ(cli().figures(focused({})).at("precision"), "float32");
  // Hot draws go another way where a logit moves: the weights are really rounded.
  const Words hot = {"--temperature", "3", "--seed", "7"};
  EXPECT_NE(cli().figures(generate(hot + bf16)).at("ids"), cli().figures(generate(hot)).at("ids"));
}

TEST(CliGenerate, TheCacheIsOfFloat16WhereItIsAskedForOrMatricesAreRounded) {
  const auto dtype = [&](const Words& more) {
    return cli().figures(focused(more)).at("kv_cache_dtype");
  };
  EXPECT_EQ(dtype({}), "float32");
  EXPECT_EQ(dtype({"--precision", "q8"}), "float16");
  EXPECT_EQ(dtype({"--precision", "bf16"}), "float16");
  EXPECT_EQ(dtype({"--precision", "bf16", "--kv-cache-dtype", "float32"}), "float32");
  EXPECT_TRUE(dtype({"--no-cache"}).is_null());
  const Words half = {"--attention", "dense", "--kv-cache-dtype", "float16"};
  const auto bytes = [&](const Words& more) {
    return cli().figures(focused(more)).at("cache_bytes").get<double>();
  };
  EXPECT_EQ(2 * bytes(half), bytes({"--attention", "dense"}));
  EXPECT_TRUE(contains(cli().must_run(focused(half)).err, "float16 cache"));
  EXPECT_NE(cli().run(focused({"--kv-cache-dtype", "int8"})).status, 0);
}

TEST(CliGenerate, DrawsFollowTheSeed) {
  const Words hot = {"--temperature", "1.5", "--top-k", "40", "--top-p", "0.95"};
  const auto ids = [&](const Words& more) { return cli().figures(generate(more)).at("ids"); };
  EXPECT_EQ(ids(hot + Words{"--seed", "5"}), ids(hot + Words{"--seed", "5"}));
  EXPECT_NE(ids(hot + Words{"--seed", "5"}), ids(hot + Words{"--seed", "6"}));
  EXPECT_EQ(ids({"--temperature", "1.5", "--top-k", "1"}), ids({}));
}

TEST(CliGenerate, APromptFromAFileIsTheSame) {
  const std::string path = cli().fresh("prompt.txt");
  write_text(path, "Once upon a");
  EXPECT_EQ(
      cli()
          .must_run({"generate", cli().base(), "--prompt-file", path, "--max-new-tokens", "30"})
          .out,
      cli().must_run(generate({})).out);
}

TEST(CliGenerate, WithoutAFocusItIsDense) {
  EXPECT_EQ(cli().figures(generate({})).at("attention"), "dense");
  EXPECT_EQ(cli().figures(generate({})).at("keys_read"), 1.0);
}

TEST(CliGenerate, StopsAtTheLastPosition) {
  const std::string path = cli().fresh("generate.json");
  const ProcessResult result = cli().must_run({"generate", cli().base(), "--prompt", "Once upon a",
                                               "--max-new-tokens", "500", "--json", path});
  const auto json = nlohmann::json::parse(read_text(path));
  // 64 positions hold the prompt and all new tokens but the last, which nothing follows.
  EXPECT_EQ(json.at("new_tokens"), 64 - 11 + 1);
  EXPECT_EQ(json.at("stop"), "positions");
  EXPECT_TRUE(contains(result.err, "no more than 64 positions")) << result.err;
}

TEST(CliGenerate, StopsAtTheEndOfText) {
  // A model whose end token is whatever it says first.
  const std::string folder = cli().fresh("model");
  fs::copy(std::string(FOCUS_SOURCE_DIR) + "/tests/golden/arch/gpt2", folder);
  const Words command = {"generate", folder, "--tokenizer", cli().ascii_tokenizer(),
                         "--prompt", "Hello"};
  auto config = nlohmann::json::parse(read_text(folder + "/config.json"));
  config["eos_token_id"] = nullptr;
  write_text(folder + "/config.json", config.dump());
  const auto endless = cli().figures(command + Words{"--max-new-tokens", "2"});
  ASSERT_EQ(endless.at("new_tokens"), 2);
  config["eos_token_id"] = endless.at("ids").at(0);
  write_text(folder + "/config.json", config.dump());
  const auto ended = cli().figures(command);
  EXPECT_EQ(ended.at("stop"), "end of text");
  EXPECT_EQ(ended.at("new_tokens"), 0);
  EXPECT_EQ(ended.at("text"), "");
  EXPECT_EQ(ended.at("prompt_tokens"), 5);  // the config names a BOS, the tokenizer puts none
}

TEST(CliGenerate, ASequenceAdapterGeneratesOnlyWithCarriedPotentials) {
  const Words command = generate({"--adapter", cli().sequence_adapter()});
  expect_refused(command, {"sequence balance", "hard:1:balance=carried"});
  expect_refused(focused({"--attention", "hard:2:balance=sequence"}),
                 {"sequence", "hard:2:balance=carried"});
  EXPECT_EQ(cli().figures(command + Words{"--attention", "hard:1:balance=carried"}).at("routing"),
            "carried");
  cli().must_run(command + Words{"--attention", "dense"});  // nothing is routed
}

TEST(CliGenerate, RefusesPromptsThatCannotBeGoneOnFrom) {
  const auto with_prompt = [](const Words& prompt) {
    return Words{"generate", cli().base()} + prompt;
  };
  expect_refused(with_prompt({"--prompt", ""}), {"the prompt is empty"});
  const std::string empty = cli().fresh("empty.txt");
  write_text(empty, "");
  expect_refused(with_prompt({"--prompt-file", empty}), {empty, "empty"});
  const std::string missing = cli().fresh("missing.txt");
  expect_refused(with_prompt({"--prompt-file", missing}), {missing});
  expect_refused(with_prompt({"--prompt", std::string(65, 'a')}), {"65 tokens", "64 positions"});
  for (const Words& wrong :
       {Words{}, Words{"--prompt", "a", "--prompt-file", empty},
        Words{"--prompt", "a", "--max-new-tokens", "0"}, Words{"--prompt", "a", "--hard-k", "1"}})
    EXPECT_EQ(cli().run(with_prompt(wrong)).status, 2) << testing::PrintToString(wrong);
}

TEST(CliGenerate, RefusesSettingsThatDoNotFit) {
  const std::string missing = cli().fresh("missing.h5"), json = cli().fresh("generate.json");
  expect_refused(generate({"--adapter", missing, "--json", json}), {missing, "no such file"});
  expect_refused(generate({"--attention", "hard"}), {cli().base(), "--adapter"});
  expect_refused(focused({"--attention", "hard:4"}), {"hard:4", "3 groups"});
  expect_refused(focused({"--attention", "soft"}), {"soft", "every key"});
  expect_refused(focused({"--attention", "hard:-1"}), {"hard:-1"});
  expect_refused(generate({"--temperature", "-1"}), {"temperature", "-1"});
  expect_refused(generate({"--top-p", "0"}), {"top_p", "0"});
  expect_refused(generate({"--top-k", "-2"}), {"top_k", "-2"});
  EXPECT_FALSE(fs::exists(json));
}

TEST(CliGenerate, APublishedModelTellsAStory) {
  const char* named = std::getenv("FOCUS_SHARED_DIR");
  const fs::path model =
      fs::path(named != nullptr && *named != '\0' ? named : FOCUS_SOURCE_DIR "/../shared") /
      "data/models/stories260K";
  if (!fs::exists(model))
    GTEST_SKIP() << model << " is not there; FOCUS_SHARED_DIR names the folder of shared data";
  const Words command = {"generate",         model.string(),     "--prompt",
                         "Once upon a time", "--max-new-tokens", "60"};
  const auto cached = cli().figures(command);
  EXPECT_EQ(cached.at("ids"), cli().figures(command + Words{"--no-cache"}).at("ids"));
  EXPECT_TRUE(cached.at("text").get<std::string>().starts_with(", there was a "))
      << cached.at("text");
}

}  // namespace
}  // namespace focus
