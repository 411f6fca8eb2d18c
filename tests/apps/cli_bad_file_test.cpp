// Damaged, forged and unsuitable files, and files that are not what they look like: each is refused
// in one line that names it.
#include <limits>

#include "tests/support/cli.h"

namespace focus {
namespace {

using namespace std::string_literals;

std::string file_of(const std::string& name, const std::string& bytes) {
  const std::string path = cli().fresh(name);
  write_text(path, bytes);
  return path;
}

Words eval_of(const std::string& base, const Words& more = {}) {
  return words("eval {} --text {valid} --attention dense", base) + more;
}

TEST(CliBadFile, WhatIsNoWholeStore) {
  const std::string whole = read_text(cli().base()), path = cli().fresh("bad.h5");
  std::vector<std::string> all = {"hello\n", std::string(5000, '\0'),
                                  "\x89HDF\r\n\x1a\n" + std::string(3000, 'x')};
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{100},
                                   std::size_t{2048}, whole.size() / 2, whole.size() - 1})
    all.push_back(whole.substr(0, length));
  for (const std::string& bytes : all) {
    SCOPED_TRACE(fmt::format("{} bytes", bytes.size()));
    write_text(path, bytes);
    expect_refused({"info", path}, {path});
    expect_refused(eval_of(path), {path});
    const std::string out = cli().fresh("run");
    expect_refused(cli().retrofit({"out=" + out, "base=" + path}), {path});
    EXPECT_FALSE(fs::exists(out));
  }
}

void expect_model_refused(const std::string& folder, const std::vector<std::string>& parts) {
  const std::string out = cli().fresh("out.h5");
  expect_refused({"import", folder, "--out", out}, parts);
  EXPECT_FALSE(fs::exists(out));
  expect_refused(eval_of(folder), parts);
}

/// What a header, a config and a tokenizer may not say has tests of its own in data and layers.
TEST(CliBadFile, FoldersOfModels) {
  const std::string folder = model_folder(), path = folder + "/model.safetensors";
  const std::string good = read_text(path);
  auto lie = good;
  lie.replace(lie.find("\"F32\""), 5, "\"F64\"");
  for (const std::string& bytes : {""s, good.substr(0, good.size() / 2), good + "x", lie}) {
    write_text(path, bytes);
    expect_model_refused(folder, {path});
  }
  const auto with = [](const std::string& golden, const std::string& file, const std::string& key,
                       const nlohmann::json& value, std::vector<std::string> parts) {
    const std::string changed = model_folder(golden);
    set_json(changed + "/" + file, key, value);
    parts.push_back(changed);
    expect_model_refused(changed, parts);
  };
  with("gpt2", "config.json", "n_head", 5, {"config.json", "n_head 5", "n_embd 32"});
  with("llama_gqa", "config.json", "model_type", "mamba", {"mamba", "gpt2", "llama"});
  with("llama_gqa", "tokenizer.json", "model", {{"type", "Oracle"}}, {"tokenizer.json"});
  // These do not fit the weights.
  with("gpt2", "config.json", "n_layer", 4, {});
  with("gpt2", "config.json", "n_embd", 64, {});
  with("gpt2", "config.json", "vocab_size", 97, {});
  with("llama_gqa", "config.json", "intermediate_size", 57, {});
  with("llama_gqa", "config.json", "num_key_value_heads", 4, {});
}

TEST(CliBadFile, APointerOfGitLfsIsCalledThat) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d4d\nsize 2626168\n";
  for (const std::string name : {"model.safetensors", "tokenizer.json", "config.json"}) {
    const std::string folder = model_folder("llama_gqa");
    write_text(folder + "/" + name, pointer);
    expect_refused(eval_of(folder), {folder + "/" + name, "Git LFS"});
  }
  const std::string store = file_of("model.h5", pointer), text = file_of("text.txt", pointer);
  expect_refused(eval_of(store), {store, "Git LFS"});
  expect_refused(eval_of(cli().base(), {"--adapter", store}), {store, "Git LFS"});
  expect_refused(words("eval {base} --text {}", text), {text, "Git LFS"});
}

TEST(CliBadFile, AFolderOfTheCacheNamesTheModelInIt) {
  const std::string cache = cli().fresh("models--org--name"), commit = cache + "/snapshots/abc";
  fs::create_directories(cache + "/snapshots");
  fs::copy(model_folder(), commit);
  expect_refused(eval_of(cache), {cache, commit});
  expect_refused(eval_of(cli().base(), {"--adapter", cache}), {cache, commit});
  fs::remove(commit + "/model.safetensors");
  fs::create_symlink("../../blobs/gone", commit + "/model.safetensors");
  expect_refused(eval_of(commit), {commit + "/model.safetensors", "a link to ../../blobs/gone"});
}

TEST(CliBadFile, AFileOfAFolderNamesTheFolder) {
  const std::string folder = model_folder(), weights = folder + "/model.safetensors";
  for (const std::string& file : {weights, folder + "/config.json"})
    expect_refused(eval_of(file), {file, "folder"});
  expect_refused({"info", weights}, {"folder"});
  expect_refused(eval_of(cli().base(), {"--adapter", weights}), {"folder"});
}

TEST(CliBadFile, TargetModulesNameTheirFile) {
  const std::string folder = cli().fresh("adapter");
  fs::create_directory(folder);
  write_text(folder + "/adapter_config.json",
             R"({"peft_type": "LORA", "r": 4, "target_modules": ["q_proj", "lm_head"]})");
  write_safetensors(folder + "/adapter_model.safetensors", {{"x", Tensor(Shape{1, 1})}});
  expect_refused(eval_of(cli().base(), {"--adapter", folder}),
                 {folder + "/adapter_config.json", "lm_head"});
}

TEST(CliBadFile, ABaseIsItsWeightsAndWhatIsComputedOfThem) {
  const std::string folder = model_folder(), out = cli().fresh("run");
  cli().must_run(cli().config(
      words("base={} out={} method=lora lora.r=2 steps=1 data.context=32", folder, out)));
  const Words eval = eval_of(folder, words("--adapter {}/lora.h5 --context 32", out));
  const std::string config = folder + "/config.json", before = read_text(config);
  for (const auto& [key, value] : {std::pair<std::string, nlohmann::json>("eos_token_id", 5),
                                   {"eos_token_id", {2, 3}},
                                   {"bos_token_id", 4},
                                   {"initializer_range", 0.01},
                                   {"_name_or_path", "elsewhere"},
                                   {"architectures", {"Another"}},
                                   {"max_position_embeddings", 48}}) {
    write_text(config, before);
    set_json(config, key, value);
    cli().must_run(eval);
  }
  write_text(config, before);
  set_json(config, "rms_norm_eps", 0.1);
  expect_refused(eval, {"fingerprint"});
}

/// A text in UTF-16 with a mark.
std::string utf16(const std::string& ascii) {
  std::string bytes = "\xFF\xFE";
  for (const char c : ascii) bytes += {c, '\0'};
  return bytes;
}

TEST(CliNotText, FilesOfOtherKindsAreRefused) {
  const std::string rest = std::string(40, '\x9C'), text = read_text(cli().valid_text());
  for (const auto& [bytes, what] : {std::pair(utf16(text), "UTF-16"),
                                    {utf16(text).substr(2), "UTF-16"},
                                    {"PK\x03\x04" + rest, "zip"},
                                    {"PAR1" + rest + "PAR1", "parquet"}}) {
    const std::string path = file_of("text.txt", bytes), out = cli().fresh("out");
    for (const Words& command :
         {words("eval {base} --text {}", path), words("generate {base} --prompt-file {}", path),
          words("tokenizer encode bytes --text {}", path),
          words("tokenizer train --text {} --out {}", path, out),
          words("score {base} --requests {} --out {}", path, out),
          words("fit {base} --text {} --out {}", path, out),
          cli().retrofit({"data.train=" + path, "out=" + out})})
      expect_refused(command, {path, "UTF-8", what});
  }
}

TEST(CliNotText, PackedFilesThatAreDamagedAreRefused) {
  const std::string rest = std::string(40, '\x9C');
  for (const std::string& bytes : {"\x1F\x8B\x08\0"s + rest, "\x28\xB5\x2F\xFD" + rest}) {
    const std::string path = file_of("text.txt", bytes);
    expect_refused(words("eval {base} --text {}", path),
                   {"cannot unpack " + path, "fetch the file again"});
  }
}

TEST(CliNotText, AnotherEncodingIsRefusedAndOtherBytesAreTold) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "El ni\xF1o comi\xF3. ";
  const std::string path = file_of("latin1.txt", text);
  expect_refused(words("eval {base} --text {}", path), {path, "UTF-8", "iconv"});
  std::string latin1 = read_text(cli().valid_text());
  latin1[10] = latin1[20] = '\xE9';
  const std::string other = file_of("latin1.txt", latin1);
  expect_parts(cli().must_run(words("eval {base} --text {} --attention dense", other)).err,
               {other + ": not UTF-8 in 2 places, the first at byte 10"});
}

TEST(CliNotText, APromptIsWithoutTheMarksOfItsFile) {
  const auto generated = [](const Words& prompt) {
    const auto figures =
        cli().figures("generate {base} --max-new-tokens 8 --temperature 0" + prompt);
    return std::pair(figures.at("prompt_tokens").get<int>(), figures.at("ids"));
  };
  const auto plain = generated({"--prompt", "Once upon"});
  for (const char* text : {"Once upon", "Once upon\n", "Once upon\r\n", "\xEF\xBB\xBFOnce upon",
                           "\xEF\xBB\xBFOnce upon\n"})
    EXPECT_EQ(generated({"--prompt-file", file_of("prompt.txt", text)}), plain) << text;
  // One line break is the file's, a second one the text's.
  EXPECT_EQ(generated({"--prompt-file", file_of("prompt.txt", "Once upon\n\n")}).first,
            plain.first + 1);
}

// No figure and no verdict is made of results that are no numbers.

/// A base with one NaN weight.
std::string nan_base() {
  const std::string folder = model_folder();
  change_weights(folder, [](const std::string& name, Tensor& tensor) {
    if (name == "model.layers.0.mlp.down_proj.weight")
      tensor.data()[3] = std::numeric_limits<Real>::quiet_NaN();
  });
  return folder;
}

/// LoRA of the cli's base whose q_proj has non-finite values.
std::string nan_adapter(Real value) {
  const std::string folder = cli().fresh("nan-adapter");
  fs::create_directory(folder);
  write_text(folder + "/adapter_config.json",
             R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]})");
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const std::string layer : {"0", "1"}) {
    const std::string head = "base_model.model.model.layers." + layer + ".self_attn.q_proj.lora_";
    tensors.emplace_back(head + "A.weight", Tensor::full({2, 32}, value));
    tensors.emplace_back(head + "B.weight", Tensor::zeros({32, 2}));
  }
  write_safetensors(folder + "/adapter_model.safetensors", std::move(tensors));
  return folder;
}

TEST(CliNotANumber, NoVerdictOnSuchABase) {
  const std::string base = nan_base(), out = cli().fresh("out");
  expect_refused(words("leak-test {} --attention dense --context 16", base),
                 {"logits", "NaN or infinite"});
  expect_refused(words("eval {} --text {valid} --context 32 --attention dense", base),
                 {cli().valid_text(), "NaN"});
  expect_refused(
      words("fit {} --text {valid} --context 32 --num-groups 2 --tokens 64 --out {}", base, out),
      {"NaN or infinite"});
  expect_refused(words("eval {} --recall recall:keys=2:distance=0:documents=2 "
                       "--attention dense --beyond-positions",
                       base),
                 {});
  // No keys are placed by it.
  const ProcessResult placed =
      cli().run(cli().config(words("base={} out={} data.context=32 steps=0 focus.grouping=keys "
                                   "focus.training=summary",
                                   base, out)));
  EXPECT_EQ(placed.status, 1);
  expect_parts(placed.err, {"NaN or infinite"});
  EXPECT_FALSE(fs::exists(out + "/focus.h5"));
  expect_parts(cli().must_run({"info", base}).out,
               {"1 are NaN or infinite, first in model.layers.0.mlp.down_proj"});
  expect_parts(cli().must_run(words("logits {} --ids 1,2 --out {}", base, cli().fresh("l"))).err,
               {"logits are NaN or infinite"});
}

TEST(CliNotANumber, NoMergeOfSuchAnAdapter) {
  for (const Real value :
       {std::numeric_limits<Real>::quiet_NaN(), std::numeric_limits<Real>::infinity()}) {
    const std::string adapter = nan_adapter(value), out = cli().fresh("merged.h5");
    expect_refused(words("merge {base} --adapter {} --out {}", adapter, out),
                   {"logits with the adapter", "NaN or infinite"});
    EXPECT_FALSE(fs::exists(out));
    expect_refused(words("eval {base} --adapter {} --text {valid} --attention dense", adapter),
                   {"NaN"});
  }
}

}  // namespace
}  // namespace focus
