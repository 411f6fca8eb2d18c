#include "tests/support/cli.h"
#include "tests/support/golden_model.h"

// What belongs to a published model beside config and weights goes with it wherever it goes.
namespace focus {
namespace {

using Files = std::map<std::string, std::string>;

const Files kFiles = {
    {"generation_config.json", R"({"eos_token_id": [3, 7], "temperature": 0.6, "own": {"a": 1}})"},
    {"tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast", "legacy": false})"},
    {"special_tokens_map.json", R"({"pad_token": "!"})"},
    {"added_tokens.json", "{}"},
    {"chat_template.jinja", "{% for m in messages %}{{ m['content'] }}{% endfor %}\n"}};

/// A golden model with a tokenizer of its vocabulary and these files.
std::string folder_with(const Files& files) {
  const std::string folder = cli().fresh("model");
  fs::copy(golden_path("arch/llama_gqa"), folder);
  fs::copy(cli().ascii_tokenizer(), folder + "/tokenizer.json");
  for (const auto& [name, bytes] : files) write_text(folder + "/" + name, bytes);
  return folder;
}

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
  const auto config = nlohmann::json::parse(read_text(out + "/config.json"));
  const auto generation = nlohmann::json::parse(read_text(out + "/generation_config.json"));
  EXPECT_EQ(generation.at("_from_model_config"), true);
  EXPECT_EQ(generation.at("eos_token_id"), config.at("eos_token_id"));
}

TEST(CliSideFiles, OneThatCannotBeReadIsRefused) {
  const std::string folder = folder_with({});
  fs::create_directory(folder + "/chat_template.jinja");
  expect_refused({"export", folder, "--out", cli().fresh("out")}, {"chat_template.jinja"});
}

}  // namespace
}  // namespace focus
