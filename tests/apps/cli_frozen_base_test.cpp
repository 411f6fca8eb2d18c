#include "data/tensors/safetensors.h"
#include "tests/support/cli.h"

// A base in bf16 stays what it is, as a folder and as a store.
namespace focus {
namespace {

std::string bf16_folder() {
  const std::string folder = cli().fresh("folder");
  cli().must_run({"export", cli().base(), "--out", folder, "--dtype", "bf16"});
  return folder;
}

std::string imported(const std::string& folder) {
  const std::string store = cli().fresh("base.h5");
  cli().must_run({"import", folder, "--out", store});
  return store;
}

/// Where a store's largest tensor lies.
std::size_t some_bit_of_a_weight(const std::string& path) {
  const auto source = StoreReader(path).source("/model");
  for (const TensorInfo& info : source->tensors())
    if (const auto mapped = source->map(info.name)) {
      const std::string all = read_text(path);
      const std::string bytes(reinterpret_cast<const char*>(mapped->bytes.data()),
                              mapped->bytes.size());
      return all.find(bytes) * 8 + 3;
    }
  throw std::runtime_error("no tensor that is mapped");
}

TEST(CliFrozenBase, ImportKeepsTheType) {
  const std::string folder = bf16_folder(), store = imported(folder);
  const auto of_folder = cli().figures({"info", folder}), info = cli().figures({"info", store});
  EXPECT_EQ(of_folder.at("stored_as"), "bf16");
  EXPECT_EQ(info.at("stored_as"), "bf16");
  EXPECT_EQ(info.at("model_fingerprint"), of_folder.at("model_fingerprint"));
  const auto kept = StoreReader(store).source("/model");
  for (const TensorInfo& tensor : kept->tensors())
    EXPECT_EQ(tensor.dtype, Dtype::bf16) << tensor.name;
  EXPECT_EQ(cli().figures({"info", cli().base()}).at("stored_as"), "f32");
}

TEST(CliFrozenBase, AdaptersAreThoseOfTheWidenedBase) {
  // The same numbers in float32: exported from the bf16 store, which rounds nothing again.
  const std::string folder = bf16_folder(), store = imported(folder);
  const std::string wide = cli().fresh("wide");
  cli().must_run({"export", store, "--out", wide, "--dtype", "float32"});
  const std::string wide_store = imported(wide);
  std::map<std::string, std::vector<std::string>> checksums;
  for (const std::string& base : {folder, store, wide, wide_store})
    for (const char* method : {"retrofit", "lora"}) {
      const std::string out = cli().fresh("run");
      cli().must_run(cli().config(
          {"tokenizer=bytes", "base=" + base, std::string("method=") + method, "out=" + out,
           "attention=" + std::string(*method == 'l' ? "dense" : "focus")}));
      const StoreReader trained(out + (*method == 'l' ? "/lora.h5" : "/focus.h5"));
      std::string all;
      for (const std::string& path : trained.all_datasets())
        if (path.find("config") == std::string::npos) {
          const Tensor tensor = trained.tensor(path);
          all += xxh3_hex(std::as_bytes(tensor.span()));
        }
      checksums[method].push_back(all);
    }
  for (const auto& [method, of_bases] : checksums)
    for (const std::string& one : of_bases) EXPECT_EQ(one, of_bases.front()) << method;
}

TEST(CliFrozenBase, ScoresAreThoseOfTheWidenedBase) {
  const std::string folder = bf16_folder(), store = imported(folder), wide = cli().fresh("wide");
  cli().must_run({"export", store, "--out", wide, "--dtype", "float32"});
  const Words text = {"--text", cli().valid_text(), "--context", "64", "--tokenizer", "bytes"};
  const auto wanted = cli().figures(Words{"eval", wide} + text);
  for (const std::string& base : {folder, store})
    EXPECT_EQ(cli().figures(Words{"eval", base} + text).at("rows"), wanted.at("rows"));
}

TEST(CliFrozenBase, DamageIsFoundByInfo) {
  const std::string store = imported(bf16_folder());
  const Words eval = {"eval",      store, "--text",      cli().valid_text(),
                      "--context", "64",  "--tokenizer", "bytes"};
  flip_bit(store, some_bit_of_a_weight(store));
  cli().must_run(eval);  // nothing is read at the start that is not needed
  expect_refused({"info", store}, {store, "is damaged"});
}

TEST(CliFrozenBase, AChangedFolderIsRefused) {
  const std::string folder = bf16_folder(), out = cli().fresh("run");
  cli().must_run(cli().config({"tokenizer=bytes", "base=" + folder, "out=" + out}));
  const Words eval = {"eval",        folder,
                      "--adapter",   out + "/focus.h5",
                      "--text",      cli().valid_text(),
                      "--context",   "64",
                      "--tokenizer", "bytes"};
  cli().must_run(eval);
  const fs::path weights = fs::path(folder) / "model.safetensors";
  flip_bit(weights, (fs::file_size(weights) - 2) * 8);
  expect_refused(eval, {"fingerprint"});
  flip_bit(weights, (fs::file_size(weights) - 2) * 8);
  cli().must_run(eval);
}

}  // namespace
}  // namespace focus
