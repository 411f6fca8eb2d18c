#include "tests/support/cli.h"

// What a user gets wrong: each is refused in one clear line, with a status other than 0, and
// nothing is written.
namespace focus {
namespace {

using Parts = std::vector<std::string>;

std::string text_file(const std::string& text) {
  const std::string path = cli().fresh("text.txt");
  write_text(path, text);
  return path;
}

/// A refused `focus train` must not make its folder.
void expect_train_refused(const Words& keys, const Parts& parts) {
  const std::string out = cli().fresh("run");
  const bool scratch = std::ranges::count(keys, "method=scratch") > 0;
  expect_refused((scratch ? cli().scratch(keys) : cli().retrofit(keys)) + Words{"out=" + out},
                 parts);
  EXPECT_FALSE(fs::exists(out));
}
void expect_eval_refused(const Words& more, const Parts& parts) {
  const std::string json = cli().fresh("eval.json");
  expect_refused(words("eval {base} --json {}", json) + more, parts);
  EXPECT_FALSE(fs::exists(json));
}

TEST(CliBadInput, MissingFiles) {
  const std::string missing = cli().fresh("missing"), out = cli().fresh("out.h5");
  for (const Words& command :
       {words("import {} --out {}", missing, out), words("info {}", missing),
        words("eval {} --text {valid}", missing), words("leak-test {}", missing)})
    expect_refused(command, {missing, "no such file or folder"});
  EXPECT_FALSE(fs::exists(out));
  expect_eval_refused({"--text", missing}, {missing, "no such text file"});
  expect_eval_refused(words("--text {valid} --adapter {}", missing), {missing, "no such file"});
  expect_eval_refused(words("--text {valid} --tokenizer {}", missing), {missing});
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
  for (const char* precision : {"fp16", "int8", "bf16,q8"})
    expect_eval_refused(words("--text {valid} --precision {}", precision),
                        {"--precision", "float32, bf16, q8", precision});
}

TEST(CliBadInput, ThreadsHaveARange) {
  for (const std::string threads : {"100000", "4097", "-5", "two"}) {
    expect_eval_refused(words("--text {valid} --threads {}", threads),
                        {"--threads", "0..4096", threads});
    expect_train_refused({"threads=" + threads}, {"threads", "0..4096"});
  }
  const ProcessResult result =
      cli()
          .start_by({"/usr/bin/env", "OMP_NUM_THREADS=100000"}, "info {base}", {})
          ->wait(kRunSeconds);
  EXPECT_EQ(result.status, 1);
  expect_parts(result.err, {"OMP_NUM_THREADS is 100000: expected at most 4096"});
}

TEST(CliBadInput, AnOptionThatTookTheBaseIsNamed) {
  const Parts parts = {"base", "--text took \"" + cli().base() + "\"", "--"};
  expect_refused("eval --attention dense --text {valid} {base}", parts);
  expect_refused("eval --text {valid} {valid} {base}", parts);
  expect_refused("logits --out x --ids 1 2 {base}", {"--ids took", cli().base()});
  cli().must_run("eval --attention dense --text {valid} -- {base}");
  cli().must_run(words("fit --out {} --context 64 --tokens 64 --num-groups 2 --text {valid} {base}",
                       cli().fresh("k.h5")));
}

TEST(CliBadInput, AnEmptyWordIsNoNumber) {
  const std::string out = cli().fresh("logits");
  expect_refused(words("logits {base} --ids {} --out {}", "", out), {"--ids", "empty"});
  expect_refused(words("eval {base} --text {valid} --context {}", ""), {"--context"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliBadInput, AFolderThatIsNoModel) {
  const std::string folder = cli().fresh("empty"), out = cli().fresh("out.h5");
  fs::create_directory(folder);
  expect_refused({"import", folder, "--out", out}, {folder, "config.json"});
  fs::copy_file(golden_arch("gpt2") + "/config.json", folder + "/config.json");
  expect_refused({"import", folder, "--out", out}, {folder, "safetensors"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliBadInput, TextsThatAreTooShort) {
  const std::string text = text_file("Too short."), empty = text_file("");
  for (const std::string key : {"data.train=", "data.valid="})
    expect_train_refused({key + text}, {"10 tokens", "context of 64"});
  cli().must_run(words("eval {base} --text {}", text));
  cli().must_run(words("eval {base} --text {} --context 64 --separator x", text));
  expect_eval_refused({"--text", text, "--context", "64"}, {text, "10 tokens", "window of 64"});
  expect_train_refused({"data.train=" + empty}, {empty, "empty"});
  expect_train_refused({"data.train=" + text_file(" \n\n "), "data.document_separator=x"},
                       {"no tokens"});
  expect_train_refused("data.train=[]", {"data.train is empty"});
  expect_eval_refused({"--text", empty}, {empty, "empty"});
  expect_eval_refused({"--text", text_file("a")}, {"at least 2"});
}

TEST(CliBadInput, TokenIdsBeyondTheVocabulary) {
  // A tokenizer may have more ids than the model, as long as no text has them.
  const std::string folder = golden_arch("gpt2");
  expect_parts(
      cli()
          .must_run(words("import {} --out {} --tokenizer bytes", folder, cli().fresh("o.h5")))
          .err,
      {"notice: ", "256 ids", "vocab_size is 96"});
  expect_refused(words("eval {} --tokenizer bytes --text {valid}", folder),
                 {cli().valid_text(), "token 0", "id 110", folder, "96 ids"});
  expect_train_refused({"base=" + folder, "tokenizer=bytes"}, {"114", "vocabulary of 96"});
}

TEST(CliBadInput, AdapterOfAnotherBase) {
  const std::string adapter = cli().adapter(), other = cli().other_base();
  const std::string json = cli().fresh("eval.json");
  expect_refused(words("eval {other} --adapter {adapter} --text {valid} --json {}", json),
                 {adapter, "fingerprint", other});
  EXPECT_FALSE(fs::exists(json));
  expect_refused("leak-test {other} --adapter {adapter}", {adapter, "fingerprint", other});
  expect_refused("eval {other} --adapter {keys} --text {valid}", {"base"});
}

TEST(CliBadInput, AdapterInThePlaceOfTheBase) {
  const std::string adapter = cli().adapter();
  expect_refused("eval {adapter} --text {valid}", {adapter, "no model"});
  expect_refused("leak-test {adapter}", {adapter, "no model"});
  expect_train_refused({"base=" + adapter}, {adapter, "no model"});
  expect_eval_refused("--text {valid} --adapter {base}", {cli().base(), "holds no adapter"});
}

TEST(CliBadInput, PlacesThatCannotBeWritten) {
  const std::string file = text_file("a regular file"), below = file + "/out";
  expect_refused(cli().retrofit({"out=" + below}), {file + ": Not a directory"});
  expect_refused(cli().retrofit({"out=" + file}), {file});
  EXPECT_EQ(read_text(file), "a regular file");
}

TEST(CliBadInput, ConfigErrorsAreAllListedAtOnce) {
  const std::string out = cli().fresh("run"), config = cli().fresh("config.yaml");
  write_text(config, "out: " + out + R"(
steps: many
optim:
  learning_rte: 0.1
  lr: 0.1
  lr: 0.2
focus:
  num_grups: 4
)");
  const ProcessResult result = cli().run({"train", config, "data.contxt=5", "data.batch=0"});
  EXPECT_EQ(result.status, 1);
  const auto lines = lines_of(result.err);
  const std::vector<Parts> wanted = {
      {config + ":2:", "steps", "many"},
      {config + ":4:", "learning_rte", "unknown key"},
      {config + ":6:", "lr"},
      {config + ":8:", "num_grups", "did you mean focus.num_groups?"},
      {"data.contxt", "did you mean data.context?"},
      {"data.batch", "0"}};
  ASSERT_EQ(lines.size(), wanted.size()) << result.err;
  for (const Parts& parts : wanted)
    EXPECT_EQ(std::ranges::count_if(lines,
                                    [&](const std::string& line) {
                                      return std::ranges::all_of(parts, [&](const auto& part) {
                                        return contains(line, part);
                                      });
                                    }),
              1)
        << parts[0] << " in " << result.err;
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliBadInput, ConfigProblemsNameTheKeyAndItsPlace) {
  const std::string config = cli().fresh("config.yaml");
  const std::string head = "base: " + cli().base() + "\n";
  write_text(config, head + "lr: 1e-4\n");
  expect_refused({"train", config, "--dry-run"},
                 {config + ":2:", "did you mean two_phase.lr or optim.lr?"});
  write_text(config, head + "data:\n  train: [x]\noptim:\n  lr: -1e-4\n");
  expect_refused({"train", config, "--dry-run"}, {config + ":5: optim.lr"});
  expect_refused({"train", config, "--dry-run", "optim.lr=-2"}, {"override optim.lr=-2: optim.lr"});
}

TEST(CliBadInput, SettingsThatDoNotFitTogether) {
  const std::vector<std::pair<Words, Parts>> cases = {
      {"base=", {"base is empty"}},
      {"optim.lr=0", {"optim.lr"}},
      {"focus.tokens.temperature=-1", {"focus.tokens.temperature"}},
      {"focus.num_groups=65", {"focus.num_groups"}},
      {"method=full precision=q8", {"precision q8", "full"}},
      {"precision=fp16", {"precision", "float32, bf16, q8", "fp16"}},
      {"precision=int8", {"precision", "float32, bf16, q8", "int8"}},
      {"data.context=65", {"data.context 65", "64 positions"}},
      {"steps=0", {"steps is 0"}},
      {"model.dropout=0.1", {"model.dropout", "retrofit"}},
      {"model.dropout=0.1 method=lora", {"model.dropout", "lora.dropout"}},
      {"method=scratch steps=0", {"steps is 0"}},
      {"method=scratch base={base}", {"base"}},
      {"method=scratch model.dropout=1", {"model.dropout is 1"}},
      {"method=scratch model.num_attention_heads=5", {"num_attention_heads 5", "hidden_size 32"}},
      {"method=scratch model.model_type=bert", {"bert", "gpt2, llama"}},
      {"method=scratch model.sliding_window=8", {"model.sliding_window", "llama"}},
      {"method=scratch model.max_position_embeddings=63",
       {"model.max_position_embeddings is 63", "data.context is 64"}},
      {"method=scratch model.model_type=gpt2 model.num_key_value_heads=2",
       {"model.num_key_value_heads", "gpt2"}},
      {"method=scratch tokenizer=", {"tokenizer is empty"}},
      {"method=scratch precision=q8", {"precision q8", "scratch"}}};
  for (const auto& [keys, parts] : cases) expect_train_refused(keys, parts);
}

TEST(CliBadInput, UnknownCommandsAndOptionsAreUsageErrors) {
  const std::string train = fmt::format("{} --frobnicate", fmt::join(cli().retrofit({}), " "));
  for (const Words command : {"", "trian", "eval", "eval x --txet y", "info x y", "import x",
                              "eval x --text y --routing z", "leak-test x --cuts 4",
                              "corpus --documents 1", train.c_str()}) {
    const ProcessResult result = cli().run(command);
    EXPECT_EQ(result.status, 2) << testing::PrintToString(command) << result.err;
    // The program by itself shows its commands; anything else is one line.
    EXPECT_EQ(std::ranges::count(result.err, '\n'), command.empty() ? 0 : 1) << result.err;
    EXPECT_EQ(result.out.empty(), !command.empty());
  }
  expect_refused("corpus --out x --documents many", {"--documents", "many"});
  for (const auto& [command, line] : std::map<std::string, std::string>{
           {"trian", "focus: unknown command trian; did you mean train?\n"},
           {"dance", "focus: unknown command dance; focus --help lists the commands\n"},
           {"eval x --treads 2", "focus eval: unknown option --treads; did you mean --threads?\n"},
           {"generate x --max-tokens 4",
            "focus generate: unknown option --max-tokens; did you mean --max-new-tokens?\n"},
           {"generate x --prompt y --max-new-tokens 0",
            "focus generate: --max-new-tokens: expected a whole number from 1 on, got 0; see focus "
            "generate --help\n"},
           {"train lora.rank=4",
            "focus train: override lora.rank=4: lora.rank: unknown key; did you mean lora.r?\n"},
           {"train --num-groups 4",
            "focus train: unknown option --num-groups; keys of the config are given as "
            "focus.num_groups=VALUE\n"},
           {"train --lr=1",
            "focus train: unknown option --lr; keys of the config are given as optim.lr=VALUE\n"},
           {"train steps = 4",
            "focus train: steps =: expected key=value; write steps=VALUE without blanks\n"},
           {"train some.gguf",
            "focus train: some.gguf: expected a config (YAML), got a model; name it as "
            "base=some.gguf\n"},
           {"train some.txt",
            "focus train: some.txt: expected a config (YAML), got a text; name it as "
            "data.train=some.txt\n"},
           {"speed --lengths 128,1k",
            "focus speed: --lengths: expected a whole number, got 128,1k\n"},
           {"generate x --prompt y --temperature hot",
            "focus generate: --temperature: expected a number, got hot\n"},
           {"leak-test {base} --attention hrd:2",
            "focus leak-test: --attention: unknown attention \"hrd\"; did you mean hard?\n"},
           {"train --frobnicate",
            "focus train: unknown option --frobnicate; see focus train --help\n"},
           {"fit", "focus fit: base is required; see focus fit --help\n"},
           {"generate x hi",
            "focus generate: hi belongs to no option; did you mean --prompt hi?\n"},
           {"generate x --prompt hi there",
            "focus generate: there belongs to no option; see focus generate --help\n"},
           {"tokenizer decode x ids",
            "focus tokenizer: ids belongs to no option; see focus tokenizer --help\n"},
           {"import x y.h5", "focus import: y.h5 belongs to no option; did you mean --out y.h5?\n"},
           {"export x OUT", "focus export: OUT belongs to no option; did you mean --out OUT?\n"},
           {"info x y", "focus info: y belongs to no option; see focus info --help\n"}})
    EXPECT_EQ(cli().run(words(command)).err, line) << command;
  for (const char* command : {"fit x {valid}", "fit x --out y.h5 {valid}", "eval x {valid}",
                              "groups x {valid} --adapter y", "tokenizer encode x {valid}"})
    expect_parts(cli().run(words(command)).err,
                 {cli().valid_text() + " belongs to no option; did you mean --text " +
                  cli().valid_text() + "?\n"});
  for (const char* command : {"generate x {keys}", "generate x --prompt y -- {keys}",
                              "merge x {keys}", "leak-test x {keys}"})
    expect_parts(cli().run(words(command)).err, {"did you mean --adapter " + cli().keys() + "?\n"});
  for (const char* command :
       {"import", "train", "eval", "generate", "info", "leak-test", "report", "corpus"})
    EXPECT_EQ(cli().run({command, "--help"}).status, 0) << command;
  EXPECT_EQ(cli().run({"help", "eval"}).out, cli().run({"eval", "--help"}).out);
  EXPECT_EQ(cli().run({"help"}).out, cli().run({"--help"}).out);
}

TEST(CliBadInput, WindowsThatDoNotFit) {
  const Words text = "--text {valid}";
  expect_eval_refused(text + "--context 32 --stride 33", {"stride", "32", "33"});
  expect_eval_refused(text + "--context 65", {"context 65", "64 positions"});
  expect_eval_refused(text + "--context 1", {"context", "1"});
  expect_eval_refused(text + "--stride -1", {"stride", "-1"});
  expect_refused("leak-test {base} --context 65", {"65", "64 positions"});
}

TEST(CliLog, LevelSaysHowMuchIsTold) {
  const auto train = [] { return cli().retrofit({"out=" + cli().fresh("run"), "steps=2"}); };
  expect_parts(cli().must_run(train()).err, {"training on "});
  EXPECT_EQ(cli().must_run(train() + "--log-level warn").err, "");
  expect_parts(cli().must_run(Words("--log-level debug") + train()).err, {"kernels: "});
  const ProcessResult wrong = cli().run("info {base} --log-level loud");
  EXPECT_EQ(wrong.status, 1);
  expect_parts(wrong.err, {"--log-level loud: expected debug"});
}

}  // namespace
}  // namespace focus
