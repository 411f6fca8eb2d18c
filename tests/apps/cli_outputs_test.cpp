// Outputs are tried before the work begins, and nothing that another program wrote, and no input,
// is written over.
#include "data/files/utf8.h"
#include "tests/support/cli.h"

namespace focus {
namespace {

struct Output {
  Words command;
  std::string option, ending;
};

/// Each command with each of its outputs; the other outputs are new.
std::vector<Output> all_outputs() {
  const std::string requests = cli().fresh("requests.jsonl");
  write_text(requests, R"({"type": "loglikelihood", "context": "Lily", "continuation": " saw"})"
                       "\n");
  const Words eval = "eval {base} --text {valid} --context 32 --attention dense";
  const std::string gpt2 = golden_arch("gpt2");
  const auto fresh = [](const std::string& name) { return cli().fresh(name); };
  return {
      {eval, "--json", ".json"},
      {eval, "--html", ".html"},
      {"fit {base} --text {train} --context 64 --tokens 64", "--out", ".h5"},
      {words("score {base} --requests {}", requests), "--out", ".jsonl"},
      {"logits {base} --text a", "--out", ".safetensors"},
      {words("logits {base} --text a --out {}", fresh("l")), "--json", ".json"},
      {"generate {base} --prompt a --max-new-tokens 2", "--json", ".json"},
      {"leak-test {base} --context 8", "--json", ".json"},
      {"info {base}", "--json", ".json"},
      {words("import {} --out {}", gpt2, fresh("i.h5")), "--json", ".json"},
      {words("import {}", gpt2), "--out", ".h5"},
      {words("export {base} --out {}", fresh("e")), "--json", ".json"},
      {"export {base}", "--gguf", ".gguf"},
      {"corpus --documents 1", "--out", ".txt"},
      {words("corpus --kind recall --documents 2 --out {}", fresh("c")), "--questions", ".l"},
      {"report --title a", "--out", ".html"},
      {"tokenizer train --text {valid} --vocab-size 260", "--out", ".json"},
      {"speed --lengths 32 --heads 1 --repeats 1", "--json", ".json"},
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
    expect_parts(result.err, {nowhere + ending + ": No such file or directory"});
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

TEST(CliOutputs, NamesNeedNotBeUtf8) {
  const fs::path folder = cli().fresh("names");
  fs::create_directory(folder);
  const auto named = [&](const std::string& name) {
    return (folder / ("caf\xE9" + name)).string();
  };
  const std::string model = named(".h5"), keys = named("_keys.h5"), text = named(".txt");
  const std::string lora = named("_lora.h5"), json = named(".json"), eval = named("_eval.json");
  for (const auto& [from, to] : {std::pair{cli().base(), model},
                                 {cli().keys(), keys},
                                 {cli().lora(), lora},
                                 {cli().valid_text(), text}})
    fs::copy_file(from, to);
  const Words evaluate = {"eval", model, "--adapter", keys, "--text", text, "--context", "64"};
  for (const Words& command :
       {Words{"info", model}, Words{"info", keys}, evaluate,
        Words{"import", model, "--out", named("_2.h5")},
        Words{"generate", model, "--adapter", keys, "--prompt", "a", "--max-new-tokens", "1"},
        Words{"leak-test", model, "--adapter", keys},
        Words{"export", model, "--adapter", keys, "--out", named("_folder")},
        Words{"export", model, "--adapter", lora, "--out", named("_peft")},
        Words{"merge", model, "--adapter", lora, "--out", named("_merged.h5")}}) {
    cli().must_run(command + Words{"--json", json});
    EXPECT_TRUE(read_json(json).is_object()) << command.at(0);
  }
  cli().must_run({"groups", model, "--adapter", keys, "--text", text, "--context", "64", "--out",
                  named("_groups")});
  EXPECT_TRUE(read_json(named("_groups/groups.json")).is_object());
  cli().must_run(evaluate + Words{"--json", eval});
  cli().must_run({"report", "--eval", eval, "--out", named(".html")});
  for (const std::string& page : {named(".html"), named("_groups/groups.html")})
    EXPECT_TRUE(is_valid_utf8(read_text(page))) << page;
}

TEST(CliOutputs, StandardOutputIsWrittenToTheEnd) {
  const ProcessResult full =
      cli()
          .start_by({"/bin/sh", "-c", R"(exec "$@" >/dev/full)", "sh"}, "info {base}", {})
          ->wait(kRunSeconds);
  EXPECT_EQ(full.status, 1);
  expect_parts(full.err, {"cannot write standard output"});
}

// What belongs to a published model beside config and weights goes with it wherever it goes.

using Files = std::map<std::string, std::string>;

const Files kFiles = {
    {"generation_config.json", R"({"eos_token_id": [3, 7], "temperature": 0.6, "own": {"a": 1}})"},
    {"tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast", "legacy": false})"},
    {"special_tokens_map.json", R"({"pad_token": "!"})"},
    {"added_tokens.json", "{}"},
    {"chat_template.jinja", "{% for m in messages %}{{ m['content'] }}{% endfor %}\n"}};

std::string folder_with(const Files& files) { return model_folder("llama_gqa", files); }

void expect_files(const std::string& folder, const Files& files) {
  for (const auto& [name, bytes] : files) {
    ASSERT_TRUE(fs::exists(folder + "/" + name)) << folder << ": " << name;
    EXPECT_EQ(read_text(folder + "/" + name), bytes) << folder << ": " << name;
  }
}

std::string exported(const std::string& model, const Words& more = {}) {
  const std::string out = cli().fresh("folder");
  cli().must_run(Words{"export", model, "--out", out} + more);
  return out;
}

TEST(CliSideFiles, ImportAndExportKeepThem) {
  const std::string folder = folder_with(kFiles), store = cli().fresh("model.h5");
  expect_files(exported(folder), kFiles);
  cli().must_run({"import", folder, "--out", store});
  const std::string out = exported(store);
  expect_files(out, kFiles);
  // They are known as an exported folder's own.
  cli().must_run({"export", store, "--out", out, "--overwrite"});
  expect_files(out, kFiles);
}

TEST(CliSideFiles, TrainingAndMergingKeepThem) {
  const std::string folder = folder_with(kFiles), lora = cli().fresh("lora"),
                    full = cli().fresh("full"), merged = cli().fresh("merged.h5");
  const Words text = {"data.context=16", "base=" + folder, "steps=1"};
  cli().must_run(cli().config(Words{"method=lora", "lora.r=2", "out=" + lora} + text));
  cli().must_run({"merge", folder, "--adapter", lora, "--out", merged});
  expect_files(exported(merged), kFiles);
  cli().must_run(cli().config(Words{"method=full", "out=" + full} + text));
  expect_files(exported(full + "/model.h5"), kFiles);
}

TEST(CliSideFiles, AnotherTokenizerComesWithItsOwn) {
  const std::string folder = folder_with(kFiles);
  const std::string out = exported(folder, {"--tokenizer", cli().ascii_tokenizer()});
  EXPECT_FALSE(fs::exists(out + "/chat_template.jinja"));
  EXPECT_FALSE(fs::exists(out + "/tokenizer_config.json"));
  expect_files(out, {*kFiles.find("generation_config.json")});
  const Files other = {{"chat_template.jinja", "{{ bos_token }}"}};
  const std::string both = exported(folder, {"--tokenizer", folder_with(other)});
  expect_files(both, other);
  EXPECT_FALSE(fs::exists(both + "/special_tokens_map.json"));
}

TEST(CliSideFiles, WithoutAnyTheConfigSaysWhatEndsAText) {
  const std::string out = exported(folder_with({}));
  const auto generation = read_json(out + "/generation_config.json");
  EXPECT_EQ(generation.at("_from_model_config"), true);
  EXPECT_EQ(generation.at("eos_token_id"), read_json(out + "/config.json").at("eos_token_id"));
}

TEST(CliSideFiles, OneThatCannotBeReadIsRefused) {
  const std::string folder = folder_with({});
  fs::create_directory(folder + "/chat_template.jinja");
  expect_refused({"export", folder, "--out", cli().fresh("out")}, {"chat_template.jinja"});
}

}  // namespace
}  // namespace focus
