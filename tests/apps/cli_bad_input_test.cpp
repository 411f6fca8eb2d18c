#include "tests/support/cli.h"
#include "tests/support/environment.h"

// What a user gets wrong: each is refused in one clear line, with a status other than 0, and
// nothing is written.
namespace focus {
namespace {

std::string text_file(const std::string& text) {
  const std::string path = cli().fresh("text.txt");
  write_text(path, text);
  return path;
}

/// A refused `focus train` must not make its folder.
void expect_train_refused(const Words& keys, const Words& parts) {
  const std::string out = cli().fresh("run");
  expect_refused(cli().retrofit(Words{"out=" + out} + keys), parts);
  EXPECT_FALSE(fs::exists(out));
}
void expect_eval_refused(const Words& more, const Words& parts) {
  const std::string json = cli().fresh("eval.json");
  expect_refused(Words{"eval", cli().base(), "--json", json} + more, parts);
  EXPECT_FALSE(fs::exists(json));
}

TEST(CliBadInput, MissingFiles) {
  const std::string missing = cli().fresh("missing"), out = cli().fresh("out.h5");
  const std::string text = cli().valid_text();
  expect_refused({"import", missing, "--out", out}, {missing, "no such file or folder"});
  EXPECT_FALSE(fs::exists(out));
  expect_refused({"info", missing}, {missing, "no such file or folder"});
  expect_refused({"eval", missing, "--text", text}, {missing, "no such file or folder"});
  expect_refused({"leak-test", missing}, {missing, "no such file or folder"});
  expect_eval_refused({"--text", missing}, {missing, "no such text file"});
  expect_eval_refused({"--text", text, "--adapter", missing}, {missing, "no such file"});
  expect_eval_refused({"--text", text, "--tokenizer", missing}, {missing});
  expect_train_refused({"data.train=" + missing}, {missing, "no such text file"});
  expect_train_refused({"data.valid=" + missing}, {missing, "no such text file"});
  expect_train_refused({"base=" + missing}, {missing, "no such file or folder"});
  expect_refused({"train", missing + ".yaml"}, {missing + ".yaml", "cannot read"});
}

TEST(CliBadInput, KernelsThatNoMachineHas) {
  const std::string out = cli().fresh("corpus.txt");
  {
    const WithEnvironment unknown("FOCUS_SIMD", "avx9");
    expect_refused({"corpus", "--out", out}, {"FOCUS_SIMD is \"avx9\"", "baseline"});
  }
  const WithEnvironment baseline("FOCUS_SIMD", "baseline");
  cli().must_run({"corpus", "--out", out, "--documents", "1"});
}

TEST(CliBadInput, OnePrecisionOfThree) {
  const Words eval = {"eval", cli().base(), "--text", cli().valid_text(), "--precision"};
  for (const char* precision : {"fp16", "int8", "bf16,q8"})
    expect_refused(eval + Words{precision}, {"--precision", "float32, bf16, q8", precision});
}

TEST(CliBadInput, AFolderThatIsNoModel) {
  const std::string folder = cli().fresh("empty"), out = cli().fresh("out.h5");
  fs::create_directory(folder);
  expect_refused({"import", folder, "--out", out}, {folder, "config.json"});
  fs::copy_file(golden_arch("gpt2") + "/config.json", folder + "/config.json");
  expect_refused({"import", folder, "--out", out}, {folder, "safetensors"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliBadInput, TextShorterThanOneContext) {
  expect_train_refused({"data.train=" + text_file("Too short.")}, {"10 tokens", "context of 64"});
  expect_train_refused({"data.valid=" + text_file("Too short.")}, {"10 tokens", "context of 64"});
  const std::string text = text_file("Too short.");
  cli().must_run({"eval", cli().base(), "--text", text});
  expect_eval_refused({"--text", text, "--context", "64"}, {text, "10 tokens", "window of 64"});
  expect_eval_refused({"--text", text, "--far", "16"}, {text, "10 tokens", "--far"});
  cli().must_run({"eval", cli().base(), "--text", text, "--context", "64", "--separator", "x"});
}

TEST(CliBadInput, EmptyText) {
  const std::string empty = text_file(""), blank = text_file(" \n\n ");
  expect_train_refused({"data.train=" + empty}, {empty, "empty"});
  expect_train_refused({"data.train=" + blank, "data.document_separator=x"}, {"no tokens"});
  expect_train_refused({"data.train=[]"}, {"data.train is empty"});
  expect_eval_refused({"--text", empty}, {empty, "empty"});
  expect_eval_refused({"--text", text_file("a")}, {"at least 2"});
}

TEST(CliBadInput, TokenIdsBeyondTheVocabulary) {
  // A tokenizer may have more ids than the model, as long as no text has them.
  const std::string folder = golden_arch("gpt2"), text = cli().valid_text();
  const ProcessResult said =
      cli().must_run({"import", folder, "--out", cli().fresh("out.h5"), "--tokenizer", "bytes"});
  for (const char* part : {"notice: ", "256 ids", "vocab_size is 96"})
    EXPECT_TRUE(contains(said.err, part)) << said.err;
  expect_refused({"eval", folder, "--tokenizer", "bytes", "--text", text},
                 {text, "token 0", "id 110", folder, "96 ids"});
  expect_train_refused({"base=" + folder, "tokenizer=bytes"}, {"114", "vocabulary of 96"});
}

TEST(CliBadInput, AdapterOfAnotherBase) {
  const std::string adapter = cli().adapter(), other = cli().other_base();
  const std::string json = cli().fresh("eval.json");
  expect_refused(
      {"eval", other, "--adapter", adapter, "--text", cli().valid_text(), "--json", json},
      {adapter, "fingerprint", other});
  EXPECT_FALSE(fs::exists(json));
  expect_refused({"leak-test", other, "--adapter", adapter}, {adapter, "fingerprint", other});
}

TEST(CliBadInput, AdapterInThePlaceOfTheBase) {
  const std::string adapter = cli().adapter();
  expect_refused({"eval", adapter, "--text", cli().valid_text()}, {adapter, "no model"});
  expect_refused({"leak-test", adapter}, {adapter, "no model"});
  expect_train_refused({"base=" + adapter}, {adapter, "no model"});
  expect_eval_refused({"--text", cli().valid_text(), "--adapter", cli().base()},
                      {cli().base(), "holds no adapter"});
}

TEST(CliBadInput, PlacesThatCannotBeWritten) {
  const std::string file = text_file("a regular file");
  const std::string below = file + "/out";
  expect_refused(cli().retrofit({"out=" + below}), {file + ": Not a directory"});
  expect_refused(cli().retrofit({"out=" + file}), {file});
  expect_refused({"import", golden_arch("gpt2"), "--out", below + ".h5"}, {below + ".h5"});
  expect_refused({"corpus", "--out", below}, {below});
  EXPECT_EQ(read_text(file), "a regular file");
  const std::string nowhere = cli().fresh("no-folder") + "/model.h5";
  expect_refused({"import", golden_arch("gpt2"), "--out", nowhere}, {nowhere});
}

TEST(CliBadInput, ConfigErrorsAreAllListedAtOnce) {
  const std::string out = cli().fresh("run"), config = cli().fresh("config.yaml");
  write_text(config, "out: " + out +
                         "\n"
                         "steps: many\n"
                         "optim:\n"
                         "  learning_rte: 0.1\n"
                         "  lr: 0.1\n"
                         "  lr: 0.2\n"
                         "focus:\n"
                         "  num_grups: 4\n");
  const ProcessResult result = cli().run({"train", config, "data.contxt=5", "data.batch=0"});
  EXPECT_EQ(result.status, 1);
  const auto lines = lines_of(result.err);
  ASSERT_EQ(lines.size(), 6u) << result.err;
  const auto one_line_has = [&](const Words& parts) {
    return std::ranges::any_of(lines, [&](const std::string& line) {
      return std::ranges::all_of(parts,
                                 [&](const std::string& part) { return contains(line, part); });
    });
  };
  EXPECT_TRUE(one_line_has({config + ":2:", "steps", "many"})) << result.err;
  EXPECT_TRUE(one_line_has({config + ":4:", "learning_rte", "unknown key"})) << result.err;
  EXPECT_TRUE(one_line_has({config + ":6:", "lr"})) << result.err;
  EXPECT_TRUE(one_line_has({config + ":8:", "num_grups", "did you mean focus.num_groups?"}))
      << result.err;
  EXPECT_TRUE(one_line_has({"data.contxt", "did you mean data.context?"})) << result.err;
  EXPECT_TRUE(one_line_has({"data.batch", "0"})) << result.err;
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliBadInput, SettingsThatDoNotFitTogether) {
  const std::string out = cli().fresh("run");
  expect_train_refused({"method=scratch"}, {"base"});
  expect_train_refused({"base="}, {"base is empty"});
  expect_train_refused({"optim.lr=0"}, {"optim.lr"});
  expect_train_refused({"focus.tokens.temperature=-1"}, {"focus.tokens.temperature"});
  expect_train_refused({"focus.num_groups=65"}, {"focus.num_groups"});
  expect_refused(cli().scratch({"out=" + out, "model.num_attention_heads=5"}),
                 {"num_attention_heads 5", "hidden_size 32"});
  expect_refused(cli().scratch({"out=" + out, "model.model_type=bert"}), {"bert", "gpt2, llama"});
  expect_refused(cli().scratch({"out=" + out, "model.sliding_window=8"}),
                 {"model.sliding_window", "llama"});
  expect_refused(cli().scratch({"out=" + out, "model.max_position_embeddings=63"}),
                 {"model.max_position_embeddings is 63", "data.context is 64"});
  expect_refused(
      cli().scratch({"out=" + out, "model.model_type=gpt2", "model.num_key_value_heads=2"}),
      {"model.num_key_value_heads", "gpt2"});
  expect_refused(cli().scratch({"out=" + out, "tokenizer="}), {"tokenizer is empty"});
  expect_refused(cli().scratch({"out=" + out, "precision=q8"}), {"precision q8", "scratch"});
  expect_train_refused({"method=full", "precision=q8"}, {"precision q8", "full"});
  expect_train_refused({"precision=fp16"}, {"precision", "float32, bf16, q8", "fp16"});
  expect_train_refused({"precision=int8"}, {"precision", "float32, bf16, q8", "int8"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliBadInput, UnknownCommandsAndOptionsAreUsageErrors) {
  for (const Words& command :
       {Words{}, Words{"trian"}, Words{"eval"}, Words{"eval", "x", "--txet", "y"},
        Words{"info", "x", "y"}, Words{"import", "x"},
        Words{"eval", "x", "--text", "y", "--routing", "z"}, Words{"leak-test", "x", "--cuts", "4"},
        Words{"corpus", "--documents", "1"}, cli().retrofit({"--frobnicate"})}) {
    const ProcessResult result = cli().run(command);
    EXPECT_EQ(result.status, 2) << testing::PrintToString(command) << result.err;
    // The program by itself shows its commands; anything else is one line.
    EXPECT_EQ(std::ranges::count(result.err, '\n'), command.empty() ? 0 : 1) << result.err;
    EXPECT_EQ(result.out.empty(), !command.empty());
  }
  expect_refused({"corpus", "--out", "x", "--documents", "many"}, {"--documents", "many"});
  const auto err = [](const Words& command) { return cli().run(command).err; };
  EXPECT_EQ(err({"trian"}), "focus: unknown command trian; did you mean train?\n");
  EXPECT_EQ(err({"dance"}), "focus: unknown command dance; focus --help lists the commands\n");
  EXPECT_EQ(err({"eval", "x", "--treads", "2"}),
            "focus eval: unknown option --treads; did you mean --threads?\n");
  EXPECT_EQ(err({"train", "--frobnicate"}),
            "focus train: unknown option --frobnicate; see focus train --help\n");
  EXPECT_EQ(err({"fit"}), "focus fit: base is required; see focus fit --help\n");
  for (const char* command :
       {"import", "train", "eval", "generate", "info", "leak-test", "report", "corpus"})
    EXPECT_EQ(cli().run({command, "--help"}).status, 0) << command;
}

TEST(CliBadInput, WindowsThatDoNotFit) {
  const Words text = {"--text", cli().valid_text()};
  expect_eval_refused(text + Words{"--context", "32", "--stride", "33"}, {"stride", "32", "33"});
  expect_eval_refused(text + Words{"--context", "65"}, {"context 65", "64 positions"});
  expect_eval_refused(text + Words{"--context", "1"}, {"context", "1"});
  expect_eval_refused(text + Words{"--stride", "-1"}, {"stride", "-1"});
  expect_refused({"leak-test", cli().base(), "--context", "65"}, {"65", "64 positions"});
  expect_train_refused({"data.context=65"}, {"data.context 65", "64 positions"});
}

TEST(CliLog, LevelSaysHowMuchIsTold) {
  const Words train = cli().retrofit({"out=" + cli().fresh("loud"), "steps=2"});
  EXPECT_TRUE(contains(cli().must_run(train).err, "training on "));
  const Words quiet = cli().retrofit({"out=" + cli().fresh("quiet"), "steps=2"});
  EXPECT_EQ(cli().must_run(quiet + Words{"--log-level", "warn"}).err, "");
  const ProcessResult debug = cli().must_run(
      Words{"--log-level", "debug"} + cli().retrofit({"out=" + cli().fresh("debug"), "steps=2"}));
  EXPECT_TRUE(contains(debug.err, "kernels: ")) << debug.err;
  const ProcessResult wrong = cli().run({"info", cli().base(), "--log-level", "loud"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_TRUE(contains(wrong.err, "--log-level loud: expected debug")) << wrong.err;
}

}  // namespace
}  // namespace focus
