#include "data/tensors/safetensors.h"
#include "tests/support/cli.h"

// Refusals that name the cause: a thread count, the order of the words, and files that are not what
// they look like.
namespace focus {
namespace {

Words eval_of(const std::string& base, const Words& more = {}) {
  return Words{"eval", base, "--text", cli().valid_text(), "--attention", "dense"} + more;
}

std::string model_folder() {
  const std::string folder = cli().fresh("model");
  fs::copy(golden_arch("llama_gqa"), folder);
  fs::copy_file(cli().ascii_tokenizer(), folder + "/tokenizer.json");
  return folder;
}

const std::string kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d4d\nsize 2626168\n";

TEST(CliMisled, ThreadsHaveARange) {
  for (const char* threads : {"100000", "4097", "-5", "two"}) {
    expect_refused(eval_of(cli().base(), {"--threads", threads}),
                   {"--threads", "0..4096", threads});
    expect_refused(cli().retrofit({std::string("threads=") + threads, "out=x"}),
                   {"threads", "0..4096"});
  }
  const ProcessResult result =
      Process({"/usr/bin/env", "OMP_NUM_THREADS=100000", std::string(FOCUS_BINARY_DIR) + "/focus",
               "info", cli().base()},
              {})
          .wait(kRunSeconds);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.err, "OMP_NUM_THREADS is 100000: expected at most 4096"));
}

TEST(CliMisled, AnOptionThatTookTheBaseIsNamed) {
  const std::string text = cli().valid_text(), base = cli().base();
  const Words parts = {"base", "--text took \"" + base + "\"", "--"};
  expect_refused({"eval", "--attention", "dense", "--text", text, base}, parts);
  expect_refused({"eval", "--text", text, text, base}, parts);
  expect_refused({"logits", "--out", "x", "--ids", "1", "2", base}, {"--ids took", base});
  cli().must_run({"eval", "--attention", "dense", "--text", text, "--", base});
  cli().must_run({"fit", "--out", cli().fresh("k.h5"), "--context", "64", "--tokens", "64",
                  "--num-groups", "2", "--text", text, base});
}

TEST(CliMisled, AnEmptyWordIsNoNumber) {
  const std::string out = cli().fresh("logits");
  expect_refused({"logits", cli().base(), "--ids", "", "--out", out}, {"--ids", "empty"});
  EXPECT_EQ(cli().run(eval_of(cli().base(), {"--far", ""})).status, 2);
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliMisled, APointerOfGitLfsIsCalledThat) {
  for (const char* name : {"model.safetensors", "tokenizer.json", "config.json"}) {
    const std::string folder = model_folder();
    write_text(folder + "/" + name, kPointer);
    expect_refused(eval_of(folder), {folder + "/" + name, "Git LFS"});
  }
  const std::string store = cli().fresh("model.h5"), text = cli().fresh("text.txt");
  write_text(store, kPointer);
  write_text(text, kPointer);
  expect_refused(eval_of(store), {store, "Git LFS"});
  expect_refused(eval_of(cli().base(), {"--adapter", store}), {store, "Git LFS"});
  expect_refused({"eval", cli().base(), "--text", text}, {text, "Git LFS"});
}

TEST(CliMisled, AFolderOfTheCacheNamesTheModelInIt) {
  const std::string cache = cli().fresh("models--org--name"), commit = cache + "/snapshots/abc";
  fs::create_directories(cache + "/snapshots");
  fs::copy(model_folder(), commit);
  expect_refused(eval_of(cache), {cache, commit});
  expect_refused(eval_of(cli().base(), {"--adapter", cache}), {cache, commit});
  fs::remove(commit + "/model.safetensors");
  fs::create_symlink("../../blobs/gone", commit + "/model.safetensors");
  expect_refused(eval_of(commit), {commit + "/model.safetensors", "a link to ../../blobs/gone"});
}

TEST(CliMisled, AFileOfAFolderNamesTheFolder) {
  const std::string folder = model_folder();
  for (const char* name : {"model.safetensors", "config.json"})
    expect_refused(eval_of(folder + "/" + name), {folder + "/" + name, "folder"});
  expect_refused({"info", folder + "/model.safetensors"}, {"folder"});
  expect_refused(eval_of(cli().base(), {"--adapter", folder + "/model.safetensors"}), {"folder"});
}

TEST(CliMisled, ConfigProblemsNameTheKeyAndItsPlace) {
  const std::string config = cli().fresh("config.yaml");
  const std::string head = "base: " + cli().base() + "\n";
  write_text(config, head + "lr: 1e-4\n");
  expect_refused({"train", config, "--dry-run"},
                 {config + ":2:", "did you mean two_phase.lr or optim.lr?"});
  write_text(config, head + "data:\n  train: [x]\noptim:\n  lr: -1e-4\n");
  expect_refused({"train", config, "--dry-run"}, {config + ":5: optim.lr"});
  expect_refused({"train", config, "--dry-run", "optim.lr=-2"}, {"override optim.lr=-2: optim.lr"});
}

TEST(CliMisled, TargetModulesNameTheirFile) {
  const std::string folder = cli().fresh("adapter");
  fs::create_directory(folder);
  write_text(folder + "/adapter_config.json",
             R"({"peft_type": "LORA", "r": 4, "target_modules": ["q_proj", "lm_head"]})");
  write_safetensors(folder + "/adapter_model.safetensors", {{"x", Tensor(Shape{1, 1})}});
  expect_refused(eval_of(cli().base(), {"--adapter", folder}),
                 {folder + "/adapter_config.json", "lm_head"});
}

TEST(CliMisled, ABaseIsItsWeightsAndWhatIsComputedOfThem) {
  const std::string folder = model_folder(), out = cli().fresh("run");
  cli().must_run(cli().config(
      {"base=" + folder, "out=" + out, "method=lora", "lora.r=2", "steps=1", "data.context=32"}));
  const Words eval = eval_of(folder, {"--adapter", out + "/lora.h5", "--context", "32"});
  auto config = nlohmann::ordered_json::parse(read_text(folder + "/config.json"));
  const auto edited = [&](const std::string& key, const nlohmann::ordered_json& value) {
    auto other = config;
    other[key] = value;
    write_text(folder + "/config.json", other.dump(2));
  };
  for (const auto& [key, value] :
       {std::pair<std::string, nlohmann::ordered_json>("eos_token_id", 5),
        {"eos_token_id", {2, 3}},
        {"bos_token_id", 4},
        {"initializer_range", 0.01},
        {"_name_or_path", "elsewhere"},
        {"architectures", {"Another"}},
        {"max_position_embeddings", 48}}) {
    edited(key, value);
    cli().must_run(eval);
  }
  edited("rms_norm_eps", 0.1);
  expect_refused(eval, {"fingerprint"});
}

}  // namespace
}  // namespace focus
