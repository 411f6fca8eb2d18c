// `focus import` and `focus export`: Hugging Face folders and adapters' folders, there and back,
// and what `focus info`, `eval` and `logits` say of them.
#include <set>

#include "focus/models/model_files.h"
#include "tests/support/cli.h"
#include "tests/support/golden_model.h"

namespace focus {
namespace {

std::string fingerprint_of_folder(const std::string& folder) {
  return cli().figures({"info", folder}).at("model_fingerprint");
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

/// Scores of every attention, the same for the same model and Focus.
nlohmann::json eval_rows(const Words& model) {
  return cli().rows(model + "--text {valid} --context 64 --tokenizer bytes");
}

class Export : public testing::TestWithParam<std::string> {
 protected:
  const std::string folder_ = golden_path(GetParam());
};

TEST_P(Export, ComesBackAsTheSameModel) {
  const std::string store = cli().fresh("model.h5"), out = cli().fresh("folder");
  const auto imported =
      cli().figures(words("import {} --out {} --tokenizer {ascii}", folder_, store));
  const auto exported = cli().figures({"export", store, "--out", out});
  EXPECT_EQ(exported.at("fingerprint"), imported.at("fingerprint"));
  EXPECT_EQ(exported.at("parameters"), imported.at("parameters"));
  EXPECT_EQ(fingerprint_of_folder(out), imported.at("fingerprint"));
  EXPECT_EQ(read_text(out + "/tokenizer.json"), read_text(cli().ascii_tokenizer()));
  const auto config = read_json(out + "/config.json");
  EXPECT_EQ(config.at("dtype"), "float32");
  EXPECT_EQ(config.at("architectures").size(), 1u);
  // Tensor by tensor what transformers wrote.
  const auto theirs = open_safetensors_folder(folder_);
  const SafetensorsFile ours(out + "/model.safetensors");
  EXPECT_TRUE(contains(read_text(ours.describe()), R"("__metadata__":{"format":"pt"})"));
  for (const TensorInfo& info : ours.tensors())
    EXPECT_TRUE(same_bits(ours.read(info.name), theirs->read(info.name))) << info.name;
}

TEST_P(Export, AStoreHoldsWhatTheFolderHolds) {
  const std::string store = cli().fresh("model.h5");
  const auto figures =
      cli().figures(words("import {} --out {} --tokenizer {ascii}", folder_, store));
  const ModelConfig config = *golden_config(GetParam());
  expect_parts(cli().must_run({"info", store}).out, {"all verified"});
  const auto info = cli().figures({"info", store}), of_folder = cli().figures({"info", folder_});
  EXPECT_EQ(info.at("kind"), "model");
  EXPECT_EQ(info.at("checksums"), "all verified");
  EXPECT_EQ(info.at("model_type"), config.model_type);
  EXPECT_EQ(info.at("hidden_size"), config.hidden_size);
  EXPECT_EQ(info.at("num_hidden_layers"), config.num_hidden_layers);
  EXPECT_EQ(info.at("num_attention_heads"), config.num_attention_heads);
  EXPECT_EQ(info.at("num_key_value_heads"), config.num_key_value_heads);
  EXPECT_EQ(info.at("vocab_size"), config.vocab_size);
  for (const char* key : {"parameters", "model_fingerprint", "head_dim", "positions"})
    EXPECT_EQ(info.at(key), of_folder.at(key)) << key;
  EXPECT_EQ(figures.at("fingerprint"), info.at("model_fingerprint"));
  EXPECT_EQ(figures.at("parameters"), info.at("parameters"));
  // And scores the same.
  const Words text = "--text {valid} --context 100 --stride 40";
  const auto one = cli().figures(words("eval {} --tokenizer {ascii}", folder_) + text);
  const auto other = cli().figures(words("eval {}", store) + text);
  for (const char* key : {"rows", "bytes", "tokenizer"}) EXPECT_EQ(one.at(key), other.at(key));
}

TEST_P(Export, ShardsAreOneModel) {
  const std::string out = cli().fresh("folder");
  const auto exported =
      cli().figures(words("export {} --out {} --max-shard-size 8KB", folder_, out));
  EXPECT_FALSE(fs::exists(out + "/model.safetensors"));
  const auto index = read_json(out + "/model.safetensors.index.json");
  std::set<std::string> shards;
  for (const auto& [name, shard] : index.at("weight_map").items()) shards.insert(shard);
  EXPECT_GT(shards.size(), 2u);
  const auto source = open_safetensors_folder(out);
  std::uint64_t bytes = 0;
  for (const TensorInfo& info : source->tensors())
    bytes += static_cast<std::uint64_t>(info.size()) * sizeof(float);
  EXPECT_EQ(index.at("metadata").at("total_size"), bytes);
  EXPECT_EQ(fingerprint_of_folder(out), exported.at("fingerprint"));
}

TEST_P(Export, NarrowWeightsAreRoundedOnce) {
  for (const auto& [option, dtype] : {std::pair{"bf16", Dtype::bf16}, {"f16", Dtype::f16}}) {
    const std::string out = cli().fresh("folder");
    const auto exported =
        cli().figures(words("export {} --out {} --dtype {}", folder_, out, option));
    const auto theirs = open_safetensors_folder(folder_);
    const SafetensorsFile ours(out + "/model.safetensors");
    for (const TensorInfo& info : ours.tensors()) {
      EXPECT_EQ(info.dtype, dtype) << info.name;
      Tensor rounded = theirs->read(info.name).clone();
      round_to(dtype, rounded.span());
      EXPECT_TRUE(same_bits(ours.read(info.name), rounded)) << info.name;
    }
    const auto imported = cli().figures(words("import {} --out {}", out, cli().fresh("model.h5")));
    EXPECT_EQ(imported.at("fingerprint"), exported.at("fingerprint"));
    EXPECT_NE(fingerprint_of_folder(folder_), exported.at("fingerprint"));
    EXPECT_EQ(read_json(out + "/config.json").at("dtype"), exported.at("dtype"));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Export, testing::ValuesIn(golden_models()), test_name);

TEST(CliImport, AFolderWithoutTokenizerIsImportedWithANotice) {
  const std::string store = cli().fresh("model.h5"), folder = golden_arch("gpt2");
  expect_parts(cli().must_run({"import", folder, "--out", store}).out,
               {"notice: no tokenizer in " + folder});
  expect_refused(words("eval {} --text {valid}", store), {store, "no tokenizer"});
}

TEST(CliImport, NanWeightsNeedALeave) {
  const std::string folder = model_folder(), out = cli().fresh("nan.h5");
  change_weights(folder, [](const std::string& name, Tensor& tensor) {
    if (name == "model.norm.weight") tensor.data()[0] = static_cast<Real>(NAN);
  });
  expect_refused({"import", folder, "--out", out}, {"model.norm.weight", "--allow-nonfinite"});
  EXPECT_FALSE(fs::exists(out));
  cli().must_run({"import", folder, "--out", out, "--allow-nonfinite"});
  EXPECT_TRUE(fs::exists(out));
}

/// Groups of tokens, and groups of keys.
TEST(CliExport, AnAdaptersFolderIsTheAdapter) {
  for (const std::string& adapter : {cli().adapter(), cli().keys()}) {
    const std::string out = cli().fresh("adapter"), again = cli().fresh("again");
    cli().must_run({"export", adapter, "--out", out});
    EXPECT_EQ(names_in(out),
              (std::set<std::string>{"focus_config.json", "focus_model.safetensors"}));
    const auto wanted = eval_rows(words("{base} --adapter {}", adapter));
    EXPECT_GE(wanted.size(), 2u) << "nothing but dense";
    EXPECT_EQ(eval_rows(words("{base} --adapter {}", out)), wanted);
    cli().must_run(words("leak-test {base} --adapter {} --context 32", out));
    cli().must_run(words("generate {base} --prompt Once --adapter {} --max-new-tokens 8", out));
    const auto info = cli().figures({"info", out}), of_store = cli().figures({"info", adapter});
    EXPECT_EQ(info.at("kind"), "adapter folder");
    for (const char* key : {"focus_layers", "base_fingerprint", "focus_parameters"})
      EXPECT_EQ(info.at(key), of_store.at(key)) << key;
    // Back and forth once more: the very same files.
    cli().must_run({"export", out, "--out", again});
    EXPECT_EQ(snapshot(again), snapshot(out));
  }
}

TEST(CliExport, AnAdaptersFolderRefusesAnotherBase) {
  const std::string out = cli().fresh("adapter"), both = cli().fresh("both");
  cli().must_run(words("export {adapter} --out {}", out));
  const std::string wanted = fingerprint_of_folder(cli().base());
  expect_refused(words("eval {other} --adapter {} --text {valid}", out),
                 {wanted, cli().other_base()});
  expect_refused(words("export {other} --adapter {} --out {}", out, both), {wanted});
  EXPECT_FALSE(fs::exists(both));
}

TEST(CliExport, ModelAndFocusInOneFolder) {
  for (const std::string& adapter : {cli().adapter(), cli().keys()}) {
    const std::string out = cli().fresh("both"), store = cli().fresh("both.h5");
    const Words both = words("export {base} --adapter {} --out", adapter);
    cli().must_run(both + Words{out});
    const auto wanted = eval_rows(words("{base} --adapter {}", adapter));
    EXPECT_EQ(eval_rows({out}), wanted);
    cli().must_run({"import", out, "--out", store});
    EXPECT_EQ(eval_rows({store}), wanted);
    const StoreReader there(adapter), back(store);
    const std::string layer = "/focus/layer_001", centroids = layer + "/centroids";
    EXPECT_TRUE(same_bits(back.tensor(centroids), there.tensor(centroids)));
    EXPECT_EQ(back.int_attribute(layer, "updates"), there.int_attribute(layer, "updates"));
    // Rounded weights are another base: the Focus beside them must say so.
    const std::string narrow = cli().fresh("narrow");
    const auto exported = cli().figures(both + Words{narrow, "--dtype", "bf16"});
    EXPECT_EQ(cli().figures({"info", narrow}).at("base_fingerprint"), exported.at("fingerprint"));
    EXPECT_EQ(eval_rows({narrow}).size(), wanted.size());
  }
}

TEST(CliExport, DamagedAdapterFoldersAreRefused) {
  const std::string out = cli().fresh("adapter");
  cli().must_run(words("export {adapter} --out {}", out));
  const std::string config_path = out + "/focus_config.json", good = read_text(config_path);
  const auto refused = [&](const std::string& key, const nlohmann::json& value,
                           const std::vector<std::string>& parts) {
    write_text(config_path, good);
    set_json(config_path, key, value);
    expect_refused(words("eval {base} --adapter {} --text {valid}", out), parts);
  };
  refused("format_version", 2, {config_path, "version 2"});
  refused("format_version", 0, {config_path, "version 0"});
  refused("num_grups", 3, {config_path, "num_grups"});
  refused("num_groups", "many", {config_path, "num_groups"});
  refused("num_groups", 7, {"focus_model.safetensors", "shape"});
  refused("hidden_size", 999, {"focus_model.safetensors", "shape"});
  refused("num_hidden_layers", 5000, {config_path, "num_hidden_layers"});
  refused("num_hidden_layers", 3, {config_path, "carried_updates"});
  write_text(config_path, "{");
  expect_refused({"info", out}, {config_path, "JSON"});
  write_text(config_path, good);
  fs::resize_file(out + "/focus_model.safetensors", 100);
  expect_refused({"info", out}, {"focus_model.safetensors"});
  fs::remove(out + "/focus_model.safetensors");
  expect_refused({"info", out}, {"focus_model.safetensors"});
}

TEST(CliExport, OntoItsOwnResultNothingIsLost) {
  const std::string model = cli().fresh("model.h5"), folder = cli().fresh("adapter");
  const std::string keys = cli().fresh("keys.h5"), peft = cli().fresh("peft");
  const Words import = words("import {base} --out {}", model);
  cli().must_run(import);
  cli().must_run(words("export {adapter} --out {}", folder));
  cli().must_run(words("export {base} --adapter {lora} --out {}", peft));
  cli().must_run(cli().fit({"--out", keys}));
  const auto before = std::pair(read_text(model), read_text(keys));
  const auto folders = std::pair(snapshot(folder), snapshot(peft));
  for (const Words& again : {import, cli().fit({"--out", keys})})
    expect_refused(again,
                   {"exists already and is a checkpoint file that focus wrote", "--overwrite"});
  expect_refused(words("import {} --out {} --overwrite", model, model),
                 {"which this command reads"});
  expect_refused(words("export {} --out {} --overwrite", folder, folder), {"adapter itself"});
  for (const std::string& adapter : {folder, peft})
    expect_refused(words("export {base} --adapter {} --out {}/ --overwrite", adapter, adapter),
                   {"adapter itself"});
  EXPECT_EQ(std::pair(read_text(model), read_text(keys)), before);
  EXPECT_EQ(std::pair(snapshot(folder), snapshot(peft)), folders);
  const std::string copy = cli().fresh("copy.h5");
  fs::copy_file(model, copy);
  cli().must_run(import + "--overwrite");
  expect_same_store(model, copy);
}

TEST(CliExport, AFolderWithFilesIsNotReplacedUnasked) {
  const std::string out = cli().fresh("folder");
  fs::create_directory(out);  // an empty one may be filled
  cli().must_run(words("export {base} --out {}", out));
  const auto before = snapshot(out);
  expect_refused(words("export {adapter} --out {}", out), {out, "--overwrite"});
  EXPECT_EQ(snapshot(out), before);
  write_text(out + "/README.md", "mine");
  expect_refused(words("export {adapter} --out {} --overwrite", out), {out, "README.md"});
  fs::remove(out + "/README.md");
  EXPECT_EQ(snapshot(out), before);
  cli().must_run(words("export {adapter} --out {}/ --overwrite", out));
  EXPECT_EQ(names_in(out), (std::set<std::string>{"focus_config.json", "focus_model.safetensors"}));
  for (const std::string& taken : {out + "/focus_config.json", out + "/none/folder"})
    expect_refused(words("export {base} --out {}", taken), {taken});
}

TEST(CliExport, NothingIsLeftOfWhatFailed) {
  const std::string folder = model_folder(), work = cli().fresh("work"), out = work + "/out";
  fs::create_directory(work);
  change_weights(folder, [](const std::string& name, Tensor& tensor) {
    if (name == "model.norm.weight") tensor.data()[0] = Real(1e6);  // beyond float16
  });
  expect_refused({"export", folder, "--out", out, "--dtype", "f16"},
                 {"model.norm.weight", "float16", "bf16"});
  EXPECT_TRUE(fs::is_empty(work));
  cli().must_run({"export", folder, "--out", out, "--dtype", "bf16"});
}

TEST(CliLogits, AreTheDecodersOwn) {
  const std::string out = cli().fresh("logits.safetensors");
  cli().must_run(words("logits {base} --out {} --ids 5,1,7,60,2,2,9", out));
  const SafetensorsFile file(out);
  EXPECT_EQ(file.tensors().size(), 1u);
  LoadedModel model = load_model(cli().base());
  const NoGrad guard;
  const std::vector<std::int32_t> list = {5, 1, 7, 60, 2, 2, 9};
  const Tensor logits = file.read("logits");
  EXPECT_EQ(logits.dim(0), 7);
  const Tensor own = model.decoder->logits(model.decoder->hidden_states(list, 1)).value();
  ASSERT_EQ(logits.size(), own.size());
  EXPECT_LT(relative_error(logits.span(), {own.span().begin(), own.span().end()}), 1e-6);

  const std::string none = cli().fresh("none.safetensors");
  expect_refused(words("logits {base} --out {} --ids 1,256", none), {"--ids 256", "255"});
  expect_refused(words("logits {base} --out {} --ids 1 --attention soft", none), {"--adapter"});
  EXPECT_FALSE(fs::exists(none));
}

TEST(CliLogits, HoldTheGroupsOfTokensAndTheClassesOfEachKeyHead) {
  const std::string soft = cli().fresh("soft.safetensors"), out = cli().fresh("l.safetensors");
  cli().must_run(words("logits {base} --adapter {adapter} --out {} --ids 5,1,7,60,2,2,9", soft));
  const Tensor groups = SafetensorsFile(soft).read("layers.1.assignments");
  EXPECT_EQ(groups.shape(), (Shape{7, 3}));
  for (Index t = 0; t < 7; ++t)
    EXPECT_NEAR(groups[3 * t] + groups[3 * t + 1] + groups[3 * t + 2], 1, 1e-5);
  cli().must_run(
      words("logits {base} --adapter {keys} --text {} --out {}", "Once upon a time", out));
  for (const char* name : {"layers.0.classes", "layers.1.classes"}) {
    const Tensor classes = SafetensorsFile(out).read(name);
    ASSERT_EQ(classes.shape(), Shape({16, 4}));
    for (const Real c : classes.span()) EXPECT_TRUE(c == 0 || c == 1 || c == 2 || c == 3) << c;
  }
  // Local attention has no groups.
  for (const char* attention : {"local", "summary:1"})
    cli().must_run(words("logits {base} --adapter {keys} --text Once --out {} --attention {}", out,
                         attention));
}

// `focus export --with-code`: the Python beside a model. That the Python computes what the program
// does is tests/interop's to say.

nlohmann::json scores_of(const Words& model) {
  return cli().rows(model + "--text {valid} --context 64 --tokenizer bytes");
}

nlohmann::json exported_config(const std::string& folder) {
  return read_json(folder + "/config.json");
}

TEST(CliExportCode, TheCodeStandsBesideTheModel) {
  const std::string source =
      read_text(fs::path(FOCUS_SOURCE_DIR) / "focus/models/modeling_focus.py");
  for (const auto& [adapter, word] :
       {std::pair{cli().keys(), "summary"}, {cli().adapter(), "soft"}}) {
    const std::string out = cli().fresh("both"), plain = cli().fresh("plain");
    const Words command = words("export {base} --adapter {} --out", adapter);
    EXPECT_EQ(cli().figures(command + Words{out, "--with-code"}).at("with_code"), true);
    EXPECT_EQ(read_text(out + "/modeling_focus.py"), source);
    const auto config = exported_config(out);
    EXPECT_EQ(config.at("focus_attention"), word);
    EXPECT_EQ(config.at("auto_map").at("AutoModelForCausalLM"),
              "modeling_focus.Focus" + config.at("architectures").at(0).get<std::string>());
    // For the program it is the model and its Focus; of what else there is nothing has changed.
    EXPECT_EQ(scores_of({out}), scores_of(words("{base} --adapter {}", adapter)));
    EXPECT_EQ(cli().figures(command + Words{plain}).at("with_code"), false);
    EXPECT_FALSE(exported_config(plain).contains("auto_map"));
    auto files = snapshot(out), others = snapshot(plain);
    for (auto* of : {&files, &others}) of->erase("config.json");
    EXPECT_EQ(files.erase("modeling_focus.py"), 1u);
    EXPECT_EQ(files, others);
    cli().must_run(command + Words{out, "--overwrite"});
    EXPECT_FALSE(fs::exists(out + "/modeling_focus.py"));
  }
}

TEST(CliExportCode, AModelsOwnFocusHasCodeToo) {
  const std::string both = cli().fresh("both"), out = cli().fresh("code");
  cli().must_run(words("export {base} --adapter {adapter} --out {}", both));
  cli().must_run({"export", both, "--with-code", "--out", out});
  EXPECT_TRUE(exported_config(out).contains("auto_map"));
}

TEST(CliExportCode, EveryFamilyHasItsClass) {
  const std::string source =
      read_text(fs::path(FOCUS_SOURCE_DIR) / "focus/models/modeling_focus.py");
  std::set<std::string> classes;
  for (const std::string& name : golden_models())
    classes.insert(exported_config(golden_path(name)).at("architectures").at(0).get<std::string>());
  EXPECT_EQ(classes.size(), families().size());
  for (const std::string& name : classes)
    EXPECT_NE(source.find("class Focus" + name + "(FocusModel, transformers." + name + "):"),
              std::string::npos)
        << name;
}

TEST(CliExportCode, WhatHasNoFocusIsRefused) {
  const std::string out = cli().fresh("none");
  expect_refused(words("export {base} --with-code --out {}", out),
                 {cli().base(), "no Focus", "--adapter"});
  expect_refused(words("export {keys} --with-code --out {}", out),
                 {cli().keys(), "--with-code", "base"});
  expect_refused(words("export {base} --with-code --adapter {other} --out {}", out),
                 {cli().other_base(), "no adapter"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliExportCode, BalanceThatSeesLaterTokensIsPointedOut) {
  const auto said = [](const char* adapter) {
    const std::string out = cli().fresh("both");
    return cli().must_run(words("export {base} --with-code --out {} --adapter", out) + adapter).out;
  };
  expect_parts(said("{sequence}"), {"focus_attention=\"soft:balance=carried\""});
  EXPECT_FALSE(contains(said("{adapter}"), "balance"));
}

}  // namespace
}  // namespace focus
