#include <set>

#include "data/tensors/safetensors.h"
#include "focus/models/model_files.h"
#include "tests/support/cli.h"
#include "tests/support/golden_model.h"

// `focus export`: Hugging Face folders and adapters' folders, and the way back.
namespace focus {
namespace {

std::string fingerprint_of_folder(const std::string& folder) {
  return cli().figures({"import", folder, "--out", cli().fresh("model.h5")}).at("fingerprint");
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

/// Scores of every attention, the same for the same model and Focus.
nlohmann::json eval_rows(const Words& model) {
  return cli()
      .figures(Words{"eval"} + model +
               Words{"--text", cli().valid_text(), "--context", "64", "--tokenizer", "bytes"})
      .at("rows");
}

class Export : public testing::TestWithParam<std::string> {};

TEST_P(Export, ComesBackAsTheSameModel) {
  const std::string store = cli().fresh("model.h5"), out = cli().fresh("folder");
  const auto imported = cli().figures(
      {"import", golden_path(GetParam()), "--out", store, "--tokenizer", cli().ascii_tokenizer()});
  const auto exported = cli().figures({"export", store, "--out", out});
  EXPECT_EQ(exported.at("fingerprint"), imported.at("fingerprint"));
  EXPECT_EQ(exported.at("parameters"), imported.at("parameters"));
  EXPECT_EQ(fingerprint_of_folder(out), imported.at("fingerprint"));
  EXPECT_EQ(read_text(out + "/tokenizer.json"), read_text(cli().ascii_tokenizer()));
  const auto config = nlohmann::json::parse(read_text(out + "/config.json"));
  EXPECT_EQ(config.at("dtype"), "float32");
  EXPECT_EQ(config.at("architectures").size(), 1u);
  // Tensor by tensor what transformers wrote.
  const auto theirs = open_safetensors_folder(golden_path(GetParam()));
  const SafetensorsFile ours(out + "/model.safetensors");
  EXPECT_TRUE(contains(read_text(ours.describe()), R"("__metadata__":{"format":"pt"})"));
  for (const TensorInfo& info : ours.tensors())
    EXPECT_TRUE(same_bits(ours.read(info.name), theirs->read(info.name))) << info.name;
}

TEST_P(Export, ShardsAreOneModel) {
  const std::string out = cli().fresh("folder");
  const auto exported =
      cli().figures({"export", golden_path(GetParam()), "--out", out, "--max-shard-size", "8KB"});
  EXPECT_FALSE(fs::exists(out + "/model.safetensors"));
  const auto index = nlohmann::json::parse(read_text(out + "/model.safetensors.index.json"));
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
        cli().figures({"export", golden_path(GetParam()), "--out", out, "--dtype", option});
    const auto theirs = open_safetensors_folder(golden_path(GetParam()));
    const SafetensorsFile ours(out + "/model.safetensors");
    for (const TensorInfo& info : ours.tensors()) {
      EXPECT_EQ(info.dtype, dtype) << info.name;
      Tensor rounded = theirs->read(info.name).clone();
      round_to(dtype, rounded.span());
      EXPECT_TRUE(same_bits(ours.read(info.name), rounded)) << info.name;
    }
    EXPECT_EQ(fingerprint_of_folder(out), exported.at("fingerprint"));
    EXPECT_NE(fingerprint_of_folder(golden_path(GetParam())), exported.at("fingerprint"));
    const auto config = nlohmann::json::parse(read_text(out + "/config.json"));
    EXPECT_EQ(config.at("dtype"), exported.at("dtype"));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Export, testing::ValuesIn(golden_models()), test_name);

TEST(CliExport, AnAdaptersFolderIsTheAdapter) {
  const std::string out = cli().fresh("adapter");
  cli().must_run({"export", cli().adapter(), "--out", out});
  EXPECT_EQ(names_in(out), (std::set<std::string>{"focus_config.json", "focus_model.safetensors"}));
  EXPECT_EQ(eval_rows({cli().base(), "--adapter", out}),
            eval_rows({cli().base(), "--adapter", cli().adapter()}));
  cli().must_run({"leak-test", cli().base(), "--adapter", out, "--context", "32"});
  const Words generate = {"generate",         cli().base(), "--prompt",  "Once",
                          "--tokenizer",      "bytes",      "--adapter", out,
                          "--max-new-tokens", "8"};
  cli().must_run(generate);
  const auto info = cli().figures({"info", out}),
             of_store = cli().figures({"info", cli().adapter()});
  EXPECT_EQ(info.at("kind"), "adapter folder");
  for (const char* key : {"focus_layers", "base_fingerprint", "focus_parameters"})
    EXPECT_EQ(info.at(key), of_store.at(key)) << key;
  // Back and forth once more: the very same files.
  const std::string again = cli().fresh("again");
  cli().must_run({"export", out, "--out", again});
  EXPECT_EQ(snapshot(again), snapshot(out));
}

TEST(CliExport, AnAdaptersFolderRefusesAnotherBase) {
  const std::string out = cli().fresh("adapter");
  cli().must_run({"export", cli().adapter(), "--out", out});
  const std::string wanted = cli().figures({"info", cli().base()}).at("model_fingerprint");
  expect_refused({"eval", cli().other_base(), "--adapter", out, "--text", cli().valid_text()},
                 {wanted, cli().other_base()});
  const std::string both = cli().fresh("both");
  expect_refused({"export", cli().other_base(), "--adapter", out, "--out", both}, {wanted});
  EXPECT_FALSE(fs::exists(both));
}

TEST(CliExport, ModelAndFocusInOneFolder) {
  const std::string out = cli().fresh("both"), store = cli().fresh("both.h5");
  cli().must_run({"export", cli().base(), "--adapter", cli().adapter(), "--out", out});
  const auto wanted = eval_rows({cli().base(), "--adapter", cli().adapter()});
  EXPECT_EQ(eval_rows({out}), wanted);
  cli().must_run({"import", out, "--out", store});
  EXPECT_EQ(eval_rows({store}), wanted);
  // Rounded weights are another base: the Focus beside them must say so.
  const std::string narrow = cli().fresh("narrow");
  const auto exported = cli().figures(
      {"export", cli().base(), "--adapter", cli().adapter(), "--out", narrow, "--dtype", "bf16"});
  EXPECT_EQ(cli().figures({"info", narrow}).at("base_fingerprint"), exported.at("fingerprint"));
  EXPECT_EQ(eval_rows({narrow}).size(), wanted.size());
}

TEST(CliExport, DamagedAdapterFoldersAreRefused) {
  const std::string out = cli().fresh("adapter");
  cli().must_run({"export", cli().adapter(), "--out", out});
  const std::string config_path = out + "/focus_config.json";
  const auto config = nlohmann::json::parse(read_text(config_path));
  const auto refused = [&](const std::string& key, const nlohmann::json& value,
                           const Words& parts) {
    auto changed = config;
    changed[key] = value;
    write_text(config_path, changed.dump());
    expect_refused({"eval", cli().base(), "--adapter", out, "--text", cli().valid_text(),
                    "--tokenizer", "bytes"},
                   parts);
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
  write_text(config_path, config.dump());
  fs::resize_file(out + "/focus_model.safetensors", 100);
  expect_refused({"info", out}, {"focus_model.safetensors"});
}

TEST(CliExport, AFolderWithFilesIsNotReplacedUnasked) {
  const std::string out = cli().fresh("folder");
  fs::create_directory(out);  // an empty one may be filled
  cli().must_run({"export", cli().base(), "--out", out});
  const auto before = snapshot(out);
  expect_refused({"export", cli().adapter(), "--out", out}, {out, "--overwrite"});
  EXPECT_EQ(snapshot(out), before);
  write_text(out + "/README.md", "mine");
  expect_refused({"export", cli().adapter(), "--out", out, "--overwrite"}, {out, "README.md"});
  fs::remove(out + "/README.md");
  EXPECT_EQ(snapshot(out), before);
  cli().must_run({"export", cli().adapter(), "--out", out + "/", "--overwrite"});
  EXPECT_EQ(names_in(out), (std::set<std::string>{"focus_config.json", "focus_model.safetensors"}));
  expect_refused({"export", cli().base(), "--out", out + "/focus_config.json"},
                 {"focus_config.json"});
  expect_refused({"export", cli().base(), "--out", out + "/none/folder"}, {out + "/none/folder"});
}

TEST(CliExport, NothingIsLeftOfWhatFailed) {
  const fs::path work = cli().fresh("work");
  fs::create_directory(work);
  fs::create_directory(work / "hf");
  fs::copy_file(golden_folder() / golden_models().at(0) / "config.json",
                work / "hf" / "config.json");
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto source = open_safetensors_folder(golden_path(golden_models().at(0)));
  for (const TensorInfo& info : source->tensors())
    tensors.emplace_back(info.name, source->read(info.name));
  tensors.back().second = tensors.back().second.clone();
  tensors.back().second.data()[0] = Real(1e6);  // beyond float16
  write_safetensors(work / "hf" / "model.safetensors", tensors);
  const std::string out = (work / "out").string();
  expect_refused({"export", (work / "hf").string(), "--out", out, "--dtype", "f16"},
                 {tensors.back().first, "float16", "bf16"});
  EXPECT_EQ(names_in(work), std::set<std::string>{"hf"});
  cli().must_run({"export", (work / "hf").string(), "--out", out, "--dtype", "bf16"});
}

TEST(CliExport, KilledAtAnyTimeLeavesAWholeFolderOrNone) {
  const fs::path work = cli().fresh("work");
  fs::create_directory(work);
  const std::string out = (work / "out").string();
  const Words command = {"export", cli().base(), "--out", out, "--max-shard-size", "4KB"};
  std::map<std::string, std::string> whole;
  cli().must_run(command);
  whole = snapshot(out);
  int killed = 0;
  for (int delay = 0; delay < 40; delay += 2) {
    fs::remove_all(out);
    auto process = cli().start(command);
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
    process->send(SIGKILL);
    killed += process->wait(kRunSeconds).status == -SIGKILL;
    if (fs::exists(out)) {
      EXPECT_EQ(snapshot(out), whole) << "after " << delay << " ms";
    }
  }
  EXPECT_GT(killed, 0);
  fs::remove_all(out);
  cli().must_run(command);
  EXPECT_EQ(names_in(work), std::set<std::string>{"out"}) << "a dead export's folder is left";
}

TEST(CliLogits, AreTheDecodersOwn) {
  const std::string out = cli().fresh("logits.safetensors");
  const Words ids = {"--ids", "5,1,7,60,2,2,9"};
  cli().must_run(Words{"logits", cli().base(), "--out", out} + ids);
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

  const std::string soft = cli().fresh("soft.safetensors");
  cli().must_run(Words{"logits", cli().base(), "--adapter", cli().adapter(), "--out", soft} + ids);
  const SafetensorsFile routed(soft);
  const Tensor groups = routed.read("layers.1.assignments");
  EXPECT_EQ(groups.shape(), (Shape{7, 3}));
  for (Index t = 0; t < 7; ++t)
    EXPECT_NEAR(groups[3 * t] + groups[3 * t + 1] + groups[3 * t + 2], 1, 1e-5);

  const std::string none = cli().fresh("none.safetensors");
  expect_refused({"logits", cli().base(), "--out", none, "--ids", "1,256"}, {"--ids 256", "255"});
  expect_refused({"logits", cli().base(), "--out", none, "--ids", "1", "--attention", "soft"},
                 {"--adapter"});
  EXPECT_FALSE(fs::exists(none));
}

}  // namespace
}  // namespace focus
