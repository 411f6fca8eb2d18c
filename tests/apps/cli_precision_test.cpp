// `focus import` of matrices in GGML's blocks: rounded into them, and as a GGUF file has them.
#include "autograd/gemm/block_formats.h"
#include "focus/models/model_export.h"
#include "tests/support/cli.h"
#include "tests/support/golden_folders.h"
#include "tests/support/golden_model.h"

namespace focus {
namespace {

/// What a model says to some tokens, as the bytes of a file.
/// Up to eight tokens are multiplied row by row, and their float32 sums depend on the kernels.
std::string logits_of(const std::string& model, const Words& more = {}) {
  const std::string out = cli().fresh("logits.safetensors");
  cli().must_run(Words{"logits", model, "--ids", "1,5,2,8,3,7,4,6,9,2", "--out", out} + more);
  return xxh3_file_hex(out);
}

std::string as_store(const std::string& model, const Words& more = {}) {
  const std::string store = cli().fresh("model.h5");
  cli().must_run(Words{"import", model, "--out", store} + more);
  return store;
}

std::string as_folder(const std::string& model, const Words& more = {}) {
  const std::string folder = cli().fresh("folder");
  cli().must_run(Words{"export", model, "--out", folder} + more);
  return folder;
}

std::string fingerprint_of(const std::string& model) {
  return cli().figures({"info", model}).at("model_fingerprint");
}

std::vector<TensorInfo> tensors_of(const std::string& model) {
  const ModelFiles files = open_model(model);
  const auto& tensors = files.weights->tensors();
  return {tensors.begin(), tensors.end()};
}

bool has_blocks(const std::string& store) {
  const auto source = StoreReader(store).source("/model");
  return std::ranges::any_of(source->tensors(),
                             [](const TensorInfo& info) { return in_blocks(info.dtype); });
}

class ImportBlocks : public testing::TestWithParam<std::string> {};

TEST_P(ImportBlocks, AStoreOfBlocksIsTheModelOfItsNumbers) {
  const std::string folder = golden_path(GetParam()), whole = as_store(folder);
  const ModelConfig config = *golden_config(GetParam());
  for (const Dtype dtype : kRoundedFormats) {
    const std::string name = name_of(dtype), store = cli().fresh(name + ".h5");
    const auto figures = cli().figures({"import", folder, "--out", store, "--dtype", name});
    EXPECT_EQ(has_blocks(store), config.hidden_size % 32 == 0 ||
                                     config.intermediate_size % 32 == 0 ||
                                     config.num_attention_heads * config.head_dim % 32 == 0);
    if (!has_blocks(store)) continue;
    EXPECT_NE(figures.at("fingerprint"), fingerprint_of(whole));
    // Widened, it is the same model: also where a family's folders hold the transposes.
    const std::string widened = as_folder(store);
    EXPECT_EQ(fingerprint_of(widened), figures.at("fingerprint"));
    EXPECT_EQ(logits_of(widened), logits_of(store));
    // As it lies, from one store into another.
    EXPECT_EQ(xxh3_file_hex(as_store(store)), xxh3_file_hex(store));
  }
}

TEST_P(ImportBlocks, OtherTypesAreThoseOfAnExportedFolder) {
  const std::string folder = golden_path(GetParam());
  for (const std::string dtype : {"float32", "bf16", "f16"}) {
    const std::string store = as_store(folder, {"--dtype", dtype}),
                      exported = as_folder(folder, {"--dtype", dtype});
    EXPECT_EQ(fingerprint_of(store), fingerprint_of(exported));
    EXPECT_EQ(logits_of(store), logits_of(exported)) << dtype;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, ImportBlocks, testing::ValuesIn(golden_models()), test_name);

TEST(CliBlocks, AGgufFileKeepsItsBlocksInAStore) {
  int blocks = 0;
  for (const fs::path& path : golden_gguf_files(".gguf")) {
    if (!fs::exists(fs::path(path).replace_extension(".h5"))) continue;
    const std::string file = path.string(), store = cli().fresh("model.h5");
    if (cli().run({"info", file}).status != 0) continue;  // of an unknown family
    const auto info = cli().figures({"info", file});
    if (info.at("kind") != "GGUF file") continue;  // an adapter
    const auto figures = cli().figures({"import", file, "--out", store});
    EXPECT_EQ(figures.at("fingerprint"), info.at("model_fingerprint")) << file;
    EXPECT_EQ(fingerprint_of(store), info.at("model_fingerprint")) << file;
    EXPECT_EQ(logits_of(store), logits_of(file)) << file;
    for (const char* precision : {"bf16", "q8"})
      EXPECT_EQ(logits_of(store, {"--precision", precision}),
                logits_of(file, {"--precision", precision}))
          << file;
    const auto formats = [](const std::string& model) {
      std::set<std::string> names;
      for (const TensorInfo& t : tensors_of(model))
        if (in_blocks(t.dtype)) names.insert(name_of(t.dtype));
      return names;
    };
    EXPECT_EQ(formats(file), formats(store)) << file;
    blocks += formats(file).empty() ? 0 : 1;

    const std::string wide = as_store(file, "--dtype float32");
    EXPECT_FALSE(has_blocks(wide));
    EXPECT_EQ(fingerprint_of(wide), info.at("model_fingerprint")) << file;
    EXPECT_EQ(fingerprint_of(as_folder(store)), info.at("model_fingerprint"));
  }
  EXPECT_GT(blocks, 0) << "no golden GGUF file holds blocks";
}

TEST(CliBlocks, WhatWasNotRoundedIsCounted) {
  for (const std::string& golden : golden_models()) {
    const std::string folder = golden_path(golden), store = cli().fresh("model.h5");
    Index others = 0;
    for (const TensorInfo& t : tensors_of(folder))
      others +=
          t.shape.size() == 2 && std::ranges::any_of(t.shape, [](Index n) { return n % 32 != 0; });
    const ProcessResult result =
        cli().must_run({"import", folder, "--out", store, "--dtype", "q8_0"});
    const int counted =
        cli()
            .figures(words("import {} --out {} --dtype q8_0 --overwrite", folder, store))
            .at("matrices_not_in_blocks");
    EXPECT_EQ(
        contains(result.out, "matrices are float32: their row length is not a multiple of q8_0's"),
        counted > 0)
        << result.out;
    EXPECT_LE(counted, others) << folder;
    int whole = 0;
    for (const TensorInfo& t : tensors_of(store))
      whole += t.shape.size() == 2 && t.dtype == Dtype::f32;
    EXPECT_EQ(counted, whole) << folder;
  }
}

TEST(CliBlocks, Q8MultipliesInIntegersWithTheSameBitsOnEveryMachine) {
  int found = 0;
  for (const std::string& golden : golden_models()) {
    const std::string store = as_store(golden_path(golden), "--dtype q4_1");
    const std::string exact = logits_of(store), q8 = logits_of(store, {"--precision", "q8"});
    if (!has_blocks(store)) continue;
    ++found;
    EXPECT_NE(exact, q8) << "nothing was rounded";
    // baseline has no fused multiply-add: all its other products have other bits.
    for (const char* selected : {"no-amx", "no-vnni", "no-vnni,no-bf16,avx2"}) {
      const WithEnvironment kernels("FOCUS_SIMD", selected);
      EXPECT_EQ(logits_of(store, {"--precision", "q8"}), q8);
    }
  }
  EXPECT_GT(found, 0);
}

TEST(CliBlocks, OtherTypesAreRefused) {
  const std::string out = cli().fresh("x.h5");
  for (const char* dtype : {"q4_k", "iq4_nl", "int8", "f64"}) {
    const ProcessResult result = cli().run(words("import {base} --out {} --dtype {}", out, dtype));
    EXPECT_NE(result.status, 0);
    expect_parts(result.err, {dtype});
    EXPECT_FALSE(fs::exists(out));
  }
}

// A base in bf16 stays what it is, as a folder and as a store.

std::string bf16_folder() { return as_folder(cli().base(), "--dtype bf16"); }

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
  const std::string folder = bf16_folder(), store = as_store(folder);
  const auto of_folder = cli().figures({"info", folder}), info = cli().figures({"info", store});
  EXPECT_EQ(of_folder.at("stored_as"), "bf16");
  EXPECT_EQ(info.at("stored_as"), "bf16");
  EXPECT_EQ(info.at("model_fingerprint"), of_folder.at("model_fingerprint"));
  const auto kept = StoreReader(store).source("/model");
  for (const TensorInfo& tensor : kept->tensors())
    EXPECT_EQ(tensor.dtype, Dtype::bf16) << tensor.name;
  EXPECT_EQ(cli().figures({"info", cli().base()}).at("stored_as"), "f32");
}

TEST(CliFrozenBase, ScoresAreThoseOfTheWidenedBase) {
  const std::string folder = bf16_folder(), store = as_store(folder);
  // The same numbers in float32: exported from the bf16 store, which rounds nothing again.
  const std::string wide = as_folder(store, "--dtype float32");
  const Words text = "--text {valid} --context 64 --tokenizer bytes";
  const auto wanted = cli().rows(Words{wide} + text);
  for (const std::string& base : {folder, store}) EXPECT_EQ(cli().rows(Words{base} + text), wanted);
}

TEST(CliFrozenBase, DamageIsFoundByInfo) {
  const std::string store = as_store(bf16_folder());
  flip_bit(store, some_bit_of_a_weight(store));
  // Nothing is read at the start that is not needed.
  cli().must_run(words("eval {} --text {valid} --tokenizer bytes", store));
  expect_refused({"info", store}, {store, "is damaged"});
}

TEST(CliFrozenBase, AChangedFolderIsRefused) {
  const std::string folder = bf16_folder(), out = cli().fresh("run");
  cli().must_run(cli().config({"tokenizer=bytes", "base=" + folder, "out=" + out}));
  const Words eval =
      words("eval {} --adapter {}/focus.h5 --text {valid} --tokenizer bytes", folder, out);
  cli().must_run(eval);
  const fs::path weights = fs::path(folder) / "model.safetensors";
  flip_bit(weights, (fs::file_size(weights) - 2) * 8);
  expect_refused(eval, {"fingerprint"});
  flip_bit(weights, (fs::file_size(weights) - 2) * 8);
  cli().must_run(eval);
}

// What a config's compute changes of training, and what not.

std::vector<double> losses_of(const std::string& run) {
  std::vector<double> losses;
  for (const auto& record : metrics_of(run))
    if (record.contains("loss")) losses.push_back(record.at("loss"));
  return losses;
}

/// Every step's loss is close to the other run's, and not all the same.
void expect_close_losses(const std::string& rounded, const std::string& exact) {
  const auto losses = losses_of(rounded), wanted = losses_of(exact);
  ASSERT_EQ(losses.size(), wanted.size());
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], 2e-2) << i;
  EXPECT_NE(losses, wanted) << "nothing was rounded";
}

TEST(CliCompute, RoundedTrainingIsCloseToFloat32AndFitsTheSameBase) {
  const std::string exact = cli().fresh("float32");
  cli().must_run(cli().retrofit({"out=" + exact}));
  for (const std::string rounded : {"bf16", "q8"}) {
    const std::string out = cli().fresh(rounded);
    cli().must_run(cli().retrofit({"out=" + out, "precision=" + rounded}));
    const StoreReader a(out + "/focus.h5"), b(exact + "/focus.h5");
    expect_parts(a.text("/config.yaml"), {"precision: " + rounded});
    EXPECT_EQ(a.string_attribute("/focus", "base_fingerprint"),
              b.string_attribute("/focus", "base_fingerprint"));
    expect_close_losses(out, exact);
    // An adapter goes with its base, whatever that is stored in.
    for (const std::string& precision : {std::string("float32"), rounded})
      cli().must_run(
          words("eval {base} --adapter {}/focus.h5 --text {valid} --precision {}", out, precision));
  }
}

TEST(CliCompute, AllIsTrainedInBf16CloseToFloat32) {
  const WithEnvironment rounds("FOCUS_SIMD", "no-amx,always-bf16");
  for (const char* method : {"scratch", "full"}) {
    const auto run = [&](const Words& more) {
      const std::string out = cli().fresh(method);
      const Words all = more + Words{"out=" + out, fmt::format("method={}", method)};
      cli().must_run(method == std::string("full") ? cli().retrofit(all + Words{"attention=dense"})
                                                   : cli().scratch(all));
      return out;
    };
    const std::string exact = run({}), rounded = run({"precision=bf16"});
    expect_same_run(run({"precision=bf16", "activation_checkpointing=true"}), rounded);
    expect_close_losses(rounded, exact);
  }
}

TEST(CliCompute, WithoutFastProductsOfBf16TheyAreOfFloat32AndThatIsSaid) {
  const WithEnvironment without("FOCUS_SIMD", "no-bf16");
  const auto run = [&](const char* precision) {
    const std::string out = cli().fresh("slow_bf16");
    const ProcessResult result =
        cli().must_run(cli().scratch({"out=" + out, fmt::format("precision={}", precision)}));
    EXPECT_EQ(contains(result.err, "bf16 is not faster"), precision == std::string("bf16"));
    return out;
  };
  const std::string exact = run("float32");
  EXPECT_EQ(losses_of(run("bf16")), losses_of(exact));
}

TEST(CliCompute, DryRunCountsRoundedWeights) {
  const Words dry = words("out={} --dry-run", cli().fresh("dry"));
  const auto exact = cli().figures(cli().retrofit(dry));
  // More than a half, and than a quarter and its scales: norms, biases and centroids stay.
  for (const auto& [precision, least, most] :
       {std::tuple("precision=bf16", 0.5, 0.6), {"precision=q8", 0.25, 0.4}}) {
    const auto figures = cli().figures(cli().retrofit(dry + precision));
    for (const char* key : {"trainable", "frozen"}) EXPECT_EQ(figures.at(key), exact.at(key));
    const double share =
        figures.at("weight_bytes").get<double>() / exact.at("weight_bytes").get<double>();
    EXPECT_GT(share, least) << precision;
    EXPECT_LT(share, most) << precision;
  }
}

}  // namespace
}  // namespace focus
