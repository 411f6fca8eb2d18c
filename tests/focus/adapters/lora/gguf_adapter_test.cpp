#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "focus/adapters/lora/lora.h"
#include "tests/support/compare.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace focus {
namespace {

using testing::HasSubstr;

/// What llama.cpp calls a module, by the end of its published name.
std::string gguf_module(const std::string& module) {
  static const std::map<std::string, std::string> names = {
      {"q_proj", "attn_q"},      {"k_proj", "attn_k"},        {"v_proj", "attn_v"},
      {"o_proj", "attn_output"}, {"gate_proj", "ffn_gate"},   {"up_proj", "ffn_up"},
      {"down_proj", "ffn_down"}, {"c_attn", "attn_qkv"},      {"attn.c_proj", "attn_output"},
      {"c_fc", "ffn_up"},        {"mlp.c_proj", "ffn_down"},  {"query_key_value", "attn_qkv"},
      {"dense", "attn_output"},  {"dense_h_to_4h", "ffn_up"}, {"dense_4h_to_h", "ffn_down"},
      {"qkv_proj", "attn_qkv"},  {"gate_up_proj", "ffn_up"}};
  const std::size_t layer = module.find_first_of("0123456789");
  for (const auto& [end, name] : names)
    if (module.ends_with("." + end)) return fmt::format("blk.{}.{}", module[layer], name);
  throw std::logic_error(module);
}

/// Row r of a published module's B in the file's order, as llama.cpp's converter moves it.
Index row_in_gguf(const ModelConfig& c, const std::string& module, Index r) {
  const Index head = c.head_dim, half = head / 2, in_head = r % head;
  const bool pairs = find_family(c.model_type, "test").gguf.rotary_pairs;
  if (pairs && (module.ends_with("q_proj") || module.ends_with("k_proj")))
    return r - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
  if (module.ends_with("query_key_value"))
    return r / head % 3 * (c.num_attention_heads * head) + r / head / 3 * head + in_head;
  return r;
}

std::vector<float> floats_of(const Tensor& tensor) {
  return {tensor.span().begin(), tensor.span().end()};
}

GgufFile adapter_head(const std::string& architecture, float alpha) {
  GgufFile file;
  file.text("general.architecture", architecture).text("general.type", "adapter");
  file.text("adapter.type", "lora").f32("adapter.lora.alpha", alpha);
  return file;
}

/// A LoRA on every linear, with numbers that float32 holds.
std::unique_ptr<LoraModel> random_lora(Decoder& decoder, double alpha) {
  Rng rng(3);
  auto lora = std::make_unique<LoraModel>(LoraConfig{.r = 3, .alpha = alpha}, decoder, rng);
  std::uint64_t seed = 5;
  for_each_parameter(*lora, [&](const std::string&, Variable& p) {
    const Tensor numbers = randn(p.shape(), seed++);
    std::ranges::transform(numbers.span(), p.mutable_value().data(),
                           [](Real x) { return std::round(64 * x) / 64; });
  });
  return lora;
}

GgufFile file_of(const LoraModel& lora, const ModelConfig& config) {
  const Family& family = find_family(config.model_type, "test");
  GgufFile file = adapter_head(family.gguf.architecture, static_cast<float>(lora.config().alpha));
  file.floats("blk.0.attn_norm.weight", {2}, {1, 2});  // passed over
  for (const auto& [name, tensor] : lora.tensors()) {
    const std::string peft = "base_model.model.", a = ".lora_A.weight";
    const std::string module = name.substr(peft.size(), name.size() - peft.size() - a.size());
    const bool is_a = name.ends_with(a);
    Tensor numbers = tensor;
    if (!is_a) {
      numbers = Tensor(tensor.shape());
      const Index rank = tensor.dim(1);
      for (Index r = 0; r < tensor.dim(0); ++r)
        std::copy_n(tensor.data() + r * rank, rank,
                    numbers.data() + row_in_gguf(config, module, r) * rank);
    }
    file.floats(
        gguf_module(module) + ".weight" + (is_a ? ".lora_a" : ".lora_b"),
        {static_cast<std::uint64_t>(tensor.dim(1)), static_cast<std::uint64_t>(tensor.dim(0))},
        floats_of(numbers));
  }
  return file;
}

TEST(GgufAdapter, IsTheLoraThatWasWritten) {
  for (const std::string& type : family_names()) {
    Decoder decoder = tiny_decoder(type);
    const auto lora = random_lora(decoder, 2);
    const TempFolder folder;
    write_text(folder / "x.gguf", file_of(*lora, decoder.config()).bytes());
    EXPECT_TRUE(is_gguf_adapter(folder / "x.gguf"));
    const auto read = read_gguf_adapter(folder / "x.gguf", decoder);
    EXPECT_EQ(read->config().alpha, 2);
    EXPECT_EQ(read->config().r, 3);
    const auto expected = lora->tensors(), found = read->tensors();
    ASSERT_EQ(found.size(), expected.size()) << type;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].first, expected[i].first);
      EXPECT_TRUE(same_bits(found[i].second, expected[i].second)) << found[i].first;
    }
  }
}

std::string error_with(const GgufFile& file) {
  Decoder decoder = tiny_decoder("llama");
  const TempFolder folder;
  write_text(folder / "x.gguf", file.bytes());
  const std::string error = error_of([&] { read_gguf_adapter(folder / "x.gguf", decoder); });
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  EXPECT_THAT(error, testing::AnyOf("", HasSubstr("x.gguf")));
  return error;
}

GgufFile& add_pair(GgufFile& file, const std::string& name, std::uint64_t out, std::uint64_t in,
                   std::uint64_t rank) {
  file.floats(name + ".lora_a", {in, rank}, std::vector<float>(rank * in, 1));
  return file.floats(name + ".lora_b", {rank, out}, std::vector<float>(rank * out, 1));
}

TEST(GgufAdapter, AlphaOfZeroIsAScaleOfOne) {
  Decoder decoder = tiny_decoder("llama");
  GgufFile file = adapter_head("llama", 0);
  add_pair(file, "blk.1.attn_v.weight", 12, 24, 2);
  const TempFolder folder;
  write_text(folder / "x.gguf", file.bytes());
  const auto lora = read_gguf_adapter(folder / "x.gguf", decoder);
  EXPECT_EQ(lora->config().scaling(), 1);
  // An adapter of only one layer has whole names.
  EXPECT_THAT(lora->config().target_modules,
              testing::ElementsAre("model.layers.1.self_attn.v_proj"));
}

TEST(GgufAdapter, RefusesWhatItCannotApply) {
  const auto with = [](const std::string& name, std::uint64_t out, std::uint64_t in,
                       std::uint64_t rank = 2) {
    GgufFile file = adapter_head("llama", 4);
    return error_with(add_pair(file, name, out, in, rank));
  };
  EXPECT_EQ(with("blk.0.attn_q.weight", 24, 24), "");
  EXPECT_THAT(with("blk.0.attn_q.weight", 12, 24), HasSubstr("has shape [12, 2]"));
  EXPECT_THAT(with("blk.0.attn_q.weight", 24, 12), HasSubstr("has 24"));
  EXPECT_THAT(with("blk.0.attn_q.weight", 24, 24, 0), HasSubstr("lora.r is 0"));
  EXPECT_THAT(with("blk.9.attn_q.weight", 24, 24), HasSubstr("not a linear"));
  EXPECT_THAT(with("token_embd.weight", 37, 24), HasSubstr("token_embd.weight is not a linear"));
  EXPECT_THAT(with("output.weight", 37, 24), HasSubstr("output.weight is not a linear"));
  EXPECT_THAT(error_with(adapter_head("llama", 4)), HasSubstr("the adapter has no matrices"));
  EXPECT_THAT(error_with(adapter_head("qwen2", 4)),
              HasSubstr("general.architecture is \"qwen2\", expected \"llama\""));
  EXPECT_THAT(error_with(GgufFile().text("general.type", "model")),
              HasSubstr("expected \"adapter\""));
  GgufFile half = adapter_head("llama", 4), other = half, ranks = half, kind;
  half.floats("blk.0.attn_q.weight.lora_b", {2, 24}, std::vector<float>(48));
  EXPECT_THAT(error_with(half), HasSubstr("has only .lora_b"));
  other.floats("blk.0.attn_q.weight", {2, 24}, std::vector<float>(48));
  EXPECT_THAT(error_with(other), HasSubstr("does not belong to an adapter"));
  add_pair(ranks, "blk.0.attn_q.weight", 24, 24, 2);
  add_pair(ranks, "blk.0.attn_v.weight", 12, 24, 3);
  EXPECT_THAT(error_with(ranks), HasSubstr("different ranks, 2 and 3"));
  kind.text("general.type", "adapter").text("adapter.type", "ia3");
  EXPECT_THAT(error_with(kind), HasSubstr("adapter.type is \"ia3\""));
  GgufFile nan = adapter_head("llama", NAN);
  EXPECT_THAT(error_with(add_pair(nan, "blk.0.attn_v.weight", 12, 24, 2)),
              HasSubstr("lora.alpha is nan"));
}

}  // namespace
}  // namespace focus
