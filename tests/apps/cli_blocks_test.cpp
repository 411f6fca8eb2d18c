#include "autograd/gemm/block_rounding.h"
#include "data/tensors/store.h"
#include "focus/models/model_import.h"
#include "tests/support/cli.h"
#include "tests/support/environment.h"
#include "tests/support/golden_gguf.h"
#include "tests/support/golden_model.h"

// `focus import` of matrices in GGML's blocks: rounded into them, and as a GGUF file has them.
namespace focus {
namespace {

/// What a model says to some tokens, as the bytes of a file.
std::string logits_of(const std::string& model, const Words& more = {}) {
  const std::string out = cli().fresh("logits.safetensors");
  cli().must_run(Words{"logits", model, "--ids", "1,5,2,8,3,7", "--out", out} + more);
  return xxh3_file_hex(out);
}

std::string fingerprint_of_store(const std::string& store) {
  return cli().figures({"info", store}).at("model_fingerprint");
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
  const std::string folder = golden_path(GetParam()), whole = cli().fresh("whole.h5");
  cli().must_run({"import", folder, "--out", whole});
  const ModelConfig config = *golden_config(GetParam());
  for (const Dtype dtype : kRoundedFormats) {
    const std::string name = name_of(dtype), store = cli().fresh(name + ".h5");
    const auto figures = cli().figures({"import", folder, "--out", store, "--dtype", name});
    EXPECT_EQ(has_blocks(store), config.hidden_size % 32 == 0 ||
                                     config.intermediate_size % 32 == 0 ||
                                     config.num_attention_heads * config.head_dim % 32 == 0);
    if (!has_blocks(store)) continue;
    EXPECT_NE(figures.at("fingerprint"), fingerprint_of_store(whole));
    // Widened, it is the same model: also where a family's folders hold the transposes.
    const std::string widened = cli().fresh("widened"), again = cli().fresh("again.h5");
    cli().must_run({"export", store, "--out", widened});
    EXPECT_EQ(cli().figures({"info", widened}).at("model_fingerprint"), figures.at("fingerprint"));
    EXPECT_EQ(logits_of(widened), logits_of(store));
    // As it lies, from one store into another.
    cli().must_run({"import", store, "--out", again});
    EXPECT_EQ(xxh3_file_hex(again), xxh3_file_hex(store));
  }
}

TEST_P(ImportBlocks, OtherTypesAreThoseOfAnExportedFolder) {
  const std::string folder = golden_path(GetParam());
  for (const std::string dtype : {"float32", "bf16", "f16"}) {
    const std::string store = cli().fresh("model.h5"), exported = cli().fresh("exported");
    cli().must_run({"import", folder, "--out", store, "--dtype", dtype});
    cli().must_run({"export", folder, "--out", exported, "--dtype", dtype});
    EXPECT_EQ(fingerprint_of_store(store),
              cli().figures({"info", exported}).at("model_fingerprint"));
    EXPECT_EQ(logits_of(store), logits_of(exported)) << dtype;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, ImportBlocks, testing::ValuesIn(golden_models()), test_name);

TEST(CliBlocks, AGgufFileKeepsItsBlocksInAStore) {
  int blocks = 0;
  for (const fs::path& path : golden_gguf_files(".gguf")) {
    if (!fs::exists(fs::path(path).replace_extension(".h5"))) continue;
    const std::string file = path.string(), store = cli().fresh("model.h5");
    if (cli().run({"info", file}).status != 0) continue;                    // of an unknown family
    if (cli().figures({"info", file}).at("kind") != "GGUF file") continue;  // an adapter
    const auto figures = cli().figures({"import", file, "--out", store});
    const auto info = cli().figures({"info", file});
    EXPECT_EQ(figures.at("fingerprint"), info.at("model_fingerprint")) << file;
    EXPECT_EQ(fingerprint_of_store(store), info.at("model_fingerprint")) << file;
    EXPECT_EQ(logits_of(store), logits_of(file)) << file;
    for (const char* precision : {"bf16", "q8"})
      EXPECT_EQ(logits_of(store, {"--precision", precision}),
                logits_of(file, {"--precision", precision}))
          << file;
    std::set<std::string> of_file, of_store;
    for (const TensorInfo& t : tensors_of(file))
      if (in_blocks(t.dtype)) of_file.insert(name_of(t.dtype));
    for (const TensorInfo& t : tensors_of(store))
      if (in_blocks(t.dtype)) of_store.insert(name_of(t.dtype));
    EXPECT_EQ(of_file, of_store) << file;
    blocks += of_file.empty() ? 0 : 1;

    const std::string wide = cli().fresh("wide.h5"), exported = cli().fresh("exported");
    cli().must_run({"import", file, "--out", wide, "--dtype", "float32"});
    EXPECT_FALSE(has_blocks(wide));
    EXPECT_EQ(fingerprint_of_store(wide), info.at("model_fingerprint")) << file;
    cli().must_run({"export", store, "--out", exported});
    EXPECT_EQ(cli().figures({"info", exported}).at("model_fingerprint"),
              info.at("model_fingerprint"));
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
    const std::string notice = "matrices are float32: their row length is not a multiple of q8_0's";
    const auto figures =
        cli().figures({"import", folder, "--out", store, "--dtype", "q8_0", "--overwrite"});
    const int counted = figures.at("matrices_not_in_blocks");
    EXPECT_EQ(contains(result.out, notice), counted > 0) << result.out;
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
    const std::string store = cli().fresh("model.h5");
    cli().must_run({"import", golden_path(golden), "--out", store, "--dtype", "q4_1"});
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
    const ProcessResult result =
        cli().run({"import", cli().base(), "--out", out, "--dtype", dtype});
    EXPECT_NE(result.status, 0);
    EXPECT_TRUE(contains(result.err, dtype)) << result.err;
    EXPECT_FALSE(fs::exists(out));
  }
}

}  // namespace
}  // namespace focus
