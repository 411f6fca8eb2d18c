// GGUF files that gguf-py wrote, with the logits that transformers computes from the weights in
// them.
#include "data/gguf/gguf.h"
#include "data/tensors/safetensors.h"
#include "focus/models/model_files.h"
#include "layers/gguf_settings.h"
#include "tests/support/compare.h"
#include "tests/support/golden_model.h"

namespace focus {
namespace {

namespace fs = std::filesystem;

constexpr double kGgufTolerance = 1e-4;

fs::path beside(const fs::path& path, const std::string& name) { return path.parent_path() / name; }

/// Whether the program knows the file's architecture; those of adapters and of other things have
/// tests of their own.
bool is_known_model(const fs::path& path) {
  const GgufSource source(path);
  const GgufMetadata& metadata = source.metadata();
  const auto architecture = metadata.text("general.architecture");
  return metadata.text("general.type") == "model" &&
         std::ranges::any_of(families(), [&](const Family& family) {
           return family.gguf.architecture == architecture;
         });
}

class GgufGolden : public testing::TestWithParam<std::string> {};

/// Every NAME.gguf with a NAME.h5.
std::vector<std::string> models() {
  std::vector<std::string> found;
  for (const fs::path& path : golden_gguf_files(".gguf"))
    if (fs::exists(fs::path(path).replace_extension(".h5"))) found.push_back(path.string());
  return found;
}

TEST_P(GgufGolden, LogitsAgree) {
  if (!is_known_model(GetParam())) GTEST_SKIP() << GetParam() << ": no model of a known family";
  const GoldenFile file(fs::path(GetParam()).replace_extension(".h5").string());
  for (const WeightUse use : {WeightUse::frozen, WeightUse::trainable}) {
    const LoadedModel model = load_model(GetParam(), "", Precision::float32, use);
    expect_close("logits", golden_logits(*model.decoder, file), file.numbers("logits"),
                 kGgufTolerance);
  }
}

TEST_P(GgufGolden, ConfigIsThatOfAHuggingFaceFolder) {
  if (!is_known_model(GetParam())) GTEST_SKIP() << GetParam() << ": no model of a known family";
  const ModelConfig config = read_gguf_config(GgufSource(GetParam()));
  const std::string written = write_model_config(config);
  EXPECT_EQ(write_model_config(parse_model_config(written, "written")), written);
}

std::string name_of_file(const testing::TestParamInfo<std::string>& info) {
  std::string name = std::to_string(info.index) + "_" + fs::path(info.param).stem().string();
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Files, GgufGolden, testing::ValuesIn(models()), name_of_file);

/// NAME_lora.gguf goes onto NAME.gguf, and NAME_lora.h5 has the logits with it.
TEST(GgufGoldenFiles, AnAdapterGivesItsLogits) {
  const auto files = golden_gguf_files("_lora.gguf");
  if (files.empty()) GTEST_SKIP() << "no gguf/NAME_lora.gguf here";
  for (const fs::path& path : files) {
    const std::string stem = path.stem().string();
    LoadedModel model = load_model(beside(path, stem.substr(0, stem.rfind('_')) + ".gguf"));
    const GoldenFile file(beside(path, stem + ".h5").string());
    const auto error = [&] {
      return relative_error(golden_logits(*model.decoder, file).span(), file.numbers("logits"));
    };
    EXPECT_GT(error(), 1e-2);
    load_adapter(path, model);
    EXPECT_LE(error(), kGgufTolerance);
  }
}

TEST(GgufGoldenFiles, EveryTypeDecodesToItsNumbers) {
  const auto files = golden_gguf_files("types.gguf");
  if (files.empty()) GTEST_SKIP() << "no gguf/types.gguf here";
  for (const fs::path& path : files) {
    const GgufSource source(path);
    const SafetensorsFile decoded(beside(path, "types.safetensors"));
    ASSERT_EQ(source.tensors().size(), decoded.tensors().size());
    for (const TensorInfo& info : source.tensors()) {
      const Tensor numbers = source.read(info.name), wanted = decoded.read(info.name);
      ASSERT_EQ(numbers.shape(), wanted.shape()) << info.name;
      if constexpr (sizeof(Real) == sizeof(float)) {
        EXPECT_TRUE(same_bits(numbers, wanted)) << info.name;
      } else {
        for (Index i = 0; i < numbers.size(); ++i)
          ASSERT_NEAR(numbers[i], wanted[i], 1e-6 * (1 + std::abs(wanted[i]))) << info.name;
      }
    }
  }
}

TEST(GgufGoldenFiles, PartsAreTheWhole) {
  const auto files = golden_gguf_files("-00001-of-00003.gguf");
  if (files.empty()) GTEST_SKIP() << "no model in parts here";
  for (const fs::path& path : files) {
    const std::string name = path.filename().string();
    const fs::path whole_path = beside(path, name.substr(0, name.rfind("-00001")) + ".gguf");
    if (!fs::exists(whole_path)) continue;
    const GgufSource parts(path), whole(whole_path);
    EXPECT_EQ(parts.files().size(), 3u);
    EXPECT_EQ(read_gguf_config(parts), read_gguf_config(whole));
    ASSERT_EQ(parts.tensors().size(), whole.tensors().size());
    for (const TensorInfo& info : whole.tensors()) {
      std::vector<std::byte> in_part, in_whole;
      parts.read_raw(info.name, in_part);
      whole.read_raw(info.name, in_whole);
      EXPECT_EQ(in_part, in_whole) << info.name;
    }
    for (const std::string part : {"2", "3"}) {
      std::string other = path.string();
      other.replace(other.rfind("-00001") + 5, 1, part);
      EXPECT_THROW(GgufSource{other}, std::runtime_error);
    }
  }
}

}  // namespace
}  // namespace focus
