#include <cmath>
#include <limits>

#include "data/tensors/safetensors.h"
#include "tests/support/cli.h"

// No figure and no verdict is made of results that are no numbers.
namespace focus {
namespace {

/// A base with one NaN weight.
std::string nan_base(const std::string& tensor = "model.layers.0.mlp.down_proj.weight") {
  const std::string folder = cli().fresh("nan-base");
  fs::copy(golden_arch("llama_gqa"), folder);
  fs::copy_file(cli().ascii_tokenizer(), folder + "/tokenizer.json");
  std::vector<std::pair<std::string, Tensor>> tensors;
  {
    const SafetensorsFile file(folder + "/model.safetensors");
    for (const TensorInfo& info : file.tensors()) {
      tensors.emplace_back(info.name, file.read(info.name));
      if (info.name == tensor)
        tensors.back().second.span()[3] = std::numeric_limits<Real>::quiet_NaN();
    }
  }
  write_safetensors(folder + "/model.safetensors", std::move(tensors));
  return folder;
}

/// LoRA of the cli's base whose q_proj has non-finite values.
std::string nan_adapter(Real value) {
  const std::string folder = cli().fresh("nan-adapter");
  fs::create_directory(folder);
  write_text(folder + "/adapter_config.json",
             R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]})");
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const char* layer : {"0", "1"})
    for (const auto& [name, shape, number] :
         {std::tuple("A", Shape{2, 32}, value), {"B", Shape{32, 2}, Real(0)}}) {
      Tensor matrix(shape);
      std::ranges::fill(matrix.span(), number);
      tensors.emplace_back(
          fmt::format("base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight", layer,
                      name),
          matrix);
    }
  write_safetensors(folder + "/adapter_model.safetensors", std::move(tensors));
  return folder;
}

TEST(CliNotANumber, NoVerdictOnSuchABase) {
  const std::string base = nan_base(), text = cli().valid_text();
  const std::string out = cli().fresh("out.h5");
  const Words of_text = {base, "--text", text, "--context", "32"};
  expect_refused({"leak-test", base, "--attention", "dense", "--context", "16"},
                 {"logits", "NaN or infinite"});
  expect_refused(Words{"eval"} + of_text + Words{"--attention", "dense"}, {text, "NaN"});
  expect_refused(
      Words{"fit"} + of_text + Words{"--out", out, "--num-groups", "2", "--tokens", "64"},
      {"NaN or infinite"});
  EXPECT_FALSE(fs::exists(out));
  expect_refused({"eval", base, "--recall", "recall:keys=2:distance=0:documents=2:length=0",
                  "--attention", "dense", "--beyond-positions"},
                 {});
  const ProcessResult info = cli().must_run({"info", base});
  EXPECT_TRUE(contains(info.out, "1 are NaN or infinite, first in model.layers.0.mlp.down_proj"))
      << info.out;
  const ProcessResult logits =
      cli().must_run({"logits", base, "--ids", "1,2", "--out", cli().fresh("logits")});
  EXPECT_TRUE(contains(logits.err, "logits are NaN or infinite")) << logits.err;
}

TEST(CliNotANumber, NoKeysArePlacedBySuchABase) {
  const std::string out = cli().fresh("run");
  const ProcessResult result =
      cli().run(cli().config({"base=" + nan_base(), "out=" + out, "data.context=32", "steps=0",
                              "focus.grouping=keys", "focus.training=summary"}));
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.err, "NaN or infinite")) << result.err;
  EXPECT_FALSE(fs::exists(out + "/focus.h5"));
}

TEST(CliNotANumber, NoMergeOfSuchAnAdapter) {
  for (const Real value :
       {std::numeric_limits<Real>::quiet_NaN(), std::numeric_limits<Real>::infinity()}) {
    const std::string adapter = nan_adapter(value), out = cli().fresh("merged.h5");
    expect_refused({"merge", cli().base(), "--adapter", adapter, "--out", out},
                   {"logits with the adapter", "NaN or infinite"});
    EXPECT_FALSE(fs::exists(out));
    expect_refused({"eval", cli().base(), "--adapter", adapter, "--text", cli().valid_text(),
                    "--attention", "dense"},
                   {"NaN"});
  }
}

}  // namespace
}  // namespace focus
