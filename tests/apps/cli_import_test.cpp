#include <bit>
#include <cmath>

#include "data/tensors/safetensors.h"
#include "focus/models/model_files.h"
#include "tests/support/cli.h"
#include "tests/support/golden_model.h"

// `focus import` of Hugging Face folders as they lie on a disk, and `focus info` on what it writes.
namespace focus {
namespace {

class Import : public testing::TestWithParam<std::string> {};

TEST_P(Import, StoreHoldsWhatTheFolderHolds) {
  const std::string folder = golden_path(GetParam()), store = cli().fresh("model.h5");
  const auto figures = cli().figures({"import", folder, "--out", store});
  const ModelConfig config = *golden_config(GetParam());

  const ProcessResult text = cli().must_run({"info", store});
  EXPECT_TRUE(contains(text.out, "all verified")) << text.out;
  const auto info = cli().figures({"info", store}), of_folder = cli().figures({"info", folder});
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
}

TEST_P(Import, AFolderWithoutTokenizerIsImportedWithANotice) {
  const std::string store = cli().fresh("model.h5");
  const ProcessResult result = cli().must_run({"import", golden_path(GetParam()), "--out", store});
  EXPECT_TRUE(contains(result.out, "notice: no tokenizer in " + golden_path(GetParam())))
      << result.out;
  expect_refused({"eval", store, "--text", cli().valid_text()}, {store, "no tokenizer"});
}

TEST_P(Import, FolderAndStoreScoreTheSame) {
  const std::string folder = golden_path(GetParam()), store = cli().fresh("model.h5");
  const std::string tokenizer = cli().ascii_tokenizer();
  const Words text = {"--text", cli().valid_text(), "--context", "100", "--stride", "40"};
  cli().must_run({"import", folder, "--out", store, "--tokenizer", tokenizer});
  const auto of_folder = cli().figures(Words{"eval", folder, "--tokenizer", tokenizer} + text);
  const auto of_store = cli().figures(Words{"eval", store} + text);
  EXPECT_EQ(of_folder.at("rows"), of_store.at("rows"));
  EXPECT_EQ(of_folder.at("bytes"), of_store.at("bytes"));
  EXPECT_EQ(of_folder.at("tokenizer"), of_store.at("tokenizer"));
}

TEST_P(Import, AnExistingStoreIsNotReplacedUnasked) {
  const std::string store = cli().fresh("model.h5");
  cli().must_run({"import", golden_path(GetParam()), "--out", store});
  const std::string before = xxh3_file_hex(store);
  expect_refused({"import", golden_path(GetParam()), "--out", store}, {store, "--overwrite"});
  cli().must_run({"import", golden_path(GetParam()), "--out", store, "--overwrite"});
  EXPECT_EQ(xxh3_file_hex(store), before) << "the same import gave other bytes";
}

using Tensors = std::vector<std::pair<std::string, Tensor>>;

Tensors golden_tensors(const std::string& golden) {
  const auto source = open_safetensors_folder(golden_folder() / golden);
  Tensors tensors;
  for (const TensorInfo& info : source->tensors())
    tensors.emplace_back(info.name, source->read(info.name));
  return tensors;
}

/// A folder with the golden model's config; the weights are up to the test.
std::string new_folder(const std::string& golden) {
  const std::string folder = cli().fresh("folder");
  fs::create_directory(folder);
  fs::copy_file(golden_folder() / golden / "config.json", fs::path(folder) / "config.json");
  return folder;
}

std::string imported_fingerprint(const std::string& folder) {
  return cli().figures({"import", folder, "--out", cli().fresh("model.h5")}).at("fingerprint");
}

TEST_P(Import, ShardsAreOneModel) {
  const std::string folder = new_folder(GetParam());
  const Tensors tensors = golden_tensors(GetParam());
  Tensors shards[2];
  nlohmann::json map;
  const char* names[] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    shards[i % 2].push_back(tensors[i]);
    map[tensors[i].first] = names[i % 2];
  }
  for (int i : {0, 1}) write_safetensors(fs::path(folder) / names[i], shards[i]);
  write_text(fs::path(folder) / "model.safetensors.index.json",
             nlohmann::json({{"metadata", {{"total_size", 1}}}, {"weight_map", map}}).dump());
  EXPECT_EQ(imported_fingerprint(folder), imported_fingerprint(golden_path(GetParam())));

  fs::remove(fs::path(folder) / names[1]);
  const std::string out = cli().fresh("half.h5");
  expect_refused({"import", folder, "--out", out}, {names[1]});
  EXPECT_FALSE(fs::exists(out));
}

/// A 16-bit float and its value.
struct Half {
  std::uint16_t bits;
  float value;
};
Half nearest_f16(float x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  exponent = std::max(exponent, -13);  // below 2^-14 the steps stay those of 2^-14
  const double step = std::ldexp(1.0, exponent - 11);
  const double units = std::nearbyint(std::abs(static_cast<double>(x)) / step);  // up to 2048
  // A number of units of 1024 or more carries into the exponent by itself.
  const int magnitude = (exponent + 13) * 1024 + static_cast<int>(units);
  return {static_cast<std::uint16_t>(magnitude | (std::signbit(x) ? 0x8000 : 0)),
          static_cast<float>(std::copysign(units * step, x))};
}
Half truncated_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x) & 0xffff0000u;
  return {static_cast<std::uint16_t>(bits >> 16), std::bit_cast<float>(bits)};
}

/// The golden model in 16 bits, written byte by byte, and the same numbers in 32 bits: the two
/// must be one model.
void expect_16_bits_import(const std::string& golden, const char* dtype, Half (*half_of)(float)) {
  const std::string narrow = new_folder(golden), wide = new_folder(golden);
  nlohmann::ordered_json header;
  std::string data;
  Tensors rounded;
  for (const auto& [name, tensor] : golden_tensors(golden)) {
    const std::size_t begin = data.size();
    Tensor values = tensor.clone();
    for (Real& value : values.span()) {
      const Half half = half_of(static_cast<float>(value));
      value = static_cast<Real>(half.value);
      data += {static_cast<char>(half.bits & 0xff), static_cast<char>(half.bits >> 8)};
    }
    rounded.emplace_back(name, values);
    const auto dims = tensor.shape().dims();
    header[name] = {{"dtype", dtype},
                    {"shape", std::vector<Index>(dims.begin(), dims.end())},
                    {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  std::string length;
  for (int byte = 0; byte < 8; ++byte)
    length += static_cast<char>(text.size() >> (8 * byte) & 0xff);
  write_text(fs::path(narrow) / "model.safetensors", length + text + data);
  write_safetensors(fs::path(wide) / "model.safetensors", rounded);
  EXPECT_EQ(imported_fingerprint(narrow), imported_fingerprint(wide));
  EXPECT_NE(imported_fingerprint(narrow), imported_fingerprint(golden_path(golden)));
}

TEST_P(Import, F16) { expect_16_bits_import(GetParam(), "F16", nearest_f16); }
TEST_P(Import, Bf16) { expect_16_bits_import(GetParam(), "BF16", truncated_bf16); }

TEST_P(Import, NanWeightsNeedALeave) {
  const std::string folder = new_folder(GetParam()), out = cli().fresh("nan.h5");
  Tensors tensors = golden_tensors(GetParam());
  tensors[1].second = tensors[1].second.clone();
  tensors[1].second.data()[0] = static_cast<Real>(NAN);
  write_safetensors(fs::path(folder) / "model.safetensors", tensors);
  expect_refused({"import", folder, "--out", out}, {tensors[1].first, "--allow-nonfinite"});
  EXPECT_FALSE(fs::exists(out));
  cli().must_run({"import", folder, "--out", out, "--allow-nonfinite"});
  EXPECT_TRUE(fs::exists(out));
}

INSTANTIATE_TEST_SUITE_P(Golden, Import, testing::ValuesIn(golden_models()), test_name);

TEST(CliImport, GoldenModelsAreThere) {
  EXPECT_FALSE(golden_models().empty()) << "no model in " << golden_folder() / "arch";
}

}  // namespace
}  // namespace focus
