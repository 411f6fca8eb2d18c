#include "tests/support/cli.h"

// Outputs are tried before the work begins, and nothing that another program wrote, and no input,
// is written over.
namespace focus {
namespace {

struct Output {
  Words command;
  std::string option, ending;
};

/// Each command with each of its outputs; the other outputs are new.
std::vector<Output> all_outputs() {
  const std::string base = cli().base(), text = cli().valid_text();
  const Words eval = {"eval", base, "--text", text, "--context", "32", "--attention", "dense"};
  const Words fit = {"fit",       base, "--text",   cli().train_text(),
                     "--context", "64", "--tokens", "64"};
  const std::string requests = cli().fresh("requests.jsonl"), words = cli().fresh("words.txt");
  write_text(requests, R"({"type": "loglikelihood", "context": "Lily", "continuation": " saw"})"
                       "\n");
  write_text(words, text);
  const auto fresh = [](const std::string& name) { return cli().fresh(name); };
  return {
      {eval, "--json", ".json"},
      {eval, "--html", ".html"},
      {fit, "--out", ".h5"},
      {{"score", base, "--requests", requests}, "--out", ".jsonl"},
      {{"logits", base, "--text", "a"}, "--out", ".safetensors"},
      {{"logits", base, "--text", "a", "--out", fresh("l")}, "--json", ".json"},
      {{"generate", base, "--prompt", "a", "--max-new-tokens", "2"}, "--json", ".json"},
      {{"leak-test", base, "--context", "8"}, "--json", ".json"},
      {{"info", base}, "--json", ".json"},
      {{"import", golden_arch("gpt2"), "--out", fresh("i.h5")}, "--json", ".json"},
      {{"import", golden_arch("gpt2")}, "--out", ".h5"},
      {{"export", base, "--out", fresh("e")}, "--json", ".json"},
      {{"export", base}, "--gguf", ".gguf"},
      {{"corpus", "--documents", "1"}, "--out", ".txt"},
      {{"corpus", "--kind", "recall", "--documents", "2", "--out", fresh("c")},
       "--questions",
       ".l"},
      {{"report", "--title", "a"}, "--out", ".html"},
      {{"tokenizer", "train", "--text", text, "--vocab-size", "260"}, "--out", ".json"},
      {{"speed", "--lengths", "32", "--heads", "1", "--repeats", "1"}, "--json", ".json"},
      {cli().retrofit({"out=" + fresh("run"), "steps=1"}), "--json", ".json"},
  };
}

TEST(CliOutputs, AreTriedBeforeAnythingIsComputed) {
  const std::string nowhere = cli().fresh("no-folder") + "/out";
  for (const auto& [command, option, ending] : all_outputs()) {
    if (option == "--out" && command[0] == "tokenizer") continue;  // makes its folder
    const ProcessResult result = cli().run(command + Words{option, nowhere + ending});
    EXPECT_EQ(result.status, 1) << command[0] << " " << option;
    EXPECT_EQ(result.out, "") << command[0] << " " << option;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_TRUE(contains(result.err, nowhere + ending + ": No such file or directory"))
        << result.err;
  }
  expect_refused({"export", cli().base(), "--out", cli().valid_text() + "/folder"},
                 {"Not a directory"});
  expect_refused({"info", cli().base(), "--json", "/dev/full"},
                 {"/dev/full", "not a regular file"});
  const std::string folder = cli().fresh("folder");
  fs::create_directory(folder);
  expect_refused({"info", cli().base(), "--json", folder}, {folder, "Is a directory"});
}

TEST(CliOutputs, AreNoFilesThatOthersWrote) {
  for (const auto& [command, option, ending] : all_outputs()) {
    const std::string notes = cli().fresh("notes" + ending);
    write_text(notes, "my notes\n");
    expect_refused(command + Words{option, notes}, {notes, "exists already", "--overwrite"});
    EXPECT_EQ(read_text(notes), "my notes\n") << command[0] << " " << option;
    cli().must_run(command + Words{option, notes, "--overwrite"});
    EXPECT_NE(read_text(notes), "my notes\n") << command[0] << " " << option;
  }
}

TEST(CliOutputs, OfTheSameKindAreReplaced) {
  for (const auto& [command, option, ending] : all_outputs()) {
    // Those that make something besides do so once; a store is never replaced unasked.
    const bool once = std::ranges::count(command, "--out") > 0 || command[0] == "train" ||
                      ending == ".h5" || ending == ".gguf" || ending == ".txt" ||
                      command[0] == "score" || command[1] == "train";
    if (once) continue;
    const std::string out = cli().fresh("out" + ending);
    cli().must_run(command + Words{option, out});
    cli().must_run(command + Words{option, out});
  }
}

TEST(CliOutputs, AreNoInputs) {
  const std::string folder = cli().fresh("model"), text = cli().fresh("text.txt");
  fs::copy(golden_arch("gpt2"), folder);
  fs::copy_file(cli().valid_text(), text);
  const Words logits = {"logits", folder, "--ids", "1,2", "--out"};
  for (const Words& overwrite : {Words{}, Words{"--overwrite"}}) {
    const auto before = snapshot(folder);
    for (const char* name : {"model.safetensors", "config.json"})
      expect_refused(logits + Words{folder + "/" + name} + overwrite, {folder + "/" + name});
    EXPECT_EQ(snapshot(folder), before);
    expect_refused(Words{"eval", cli().base(), "--text", text, "--json", text} + overwrite, {text});
    expect_refused(cli().retrofit({"data.train=" + text, "out=" + cli().fresh("run")}) +
                       Words{"--json", text} + overwrite,
                   {text});
    EXPECT_EQ(read_text(text), read_text(cli().valid_text()));
  }
  const std::string same = cli().fresh("same");
  expect_refused({"eval", cli().base(), "--text", text, "--json", same, "--html", same},
                 {"--html", "--json", same});
}

TEST(CliOutputs, StandardOutputIsWrittenToTheEnd) {
  const auto full = Process({"/bin/sh", "-c",
                             "exec " + std::string(FOCUS_BINARY_DIR) + "/focus info " +
                                 cli().base() + " >/dev/full"},
                            {})
                        .wait(kRunSeconds);
  EXPECT_EQ(full.status, 1);
  EXPECT_TRUE(contains(full.err, "cannot write standard output")) << full.err;
}

}  // namespace
}  // namespace focus
