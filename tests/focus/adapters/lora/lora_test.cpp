#include "focus/adapters/lora/lora.h"

#include <gtest/gtest.h>

#include "tests/support/map_source.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

// What PEFT has to say about it is in tests/golden/lora_golden_test.cpp; here, what holds for every
// family.
namespace focus {
namespace {

std::vector<std::int32_t> some_ids(Index n) {
  std::vector<std::int32_t> ids(n);
  for (std::size_t t = 0; t < ids.size(); ++t) ids[t] = static_cast<std::int32_t>(11 * t % 37);
  return ids;
}

Tensor logits_of(const Decoder& decoder, const ForwardContext& context = {}) {
  const NoGrad guard;
  return decoder.logits(decoder.hidden_states(some_ids(20), 2, 0, context)).value();
}

/// B is no longer 0.
void fill(LoraModel& lora) {
  std::uint64_t seed = 5;
  for_each_parameter(lora, [&](const std::string&, Variable& p) {
    std::ranges::copy(randn(p.shape(), seed++).span(), p.mutable_value().data());
  });
}

class LoraOf : public testing::TestWithParam<std::string> {};

TEST_P(LoraOf, StartsAsTheBaseAndIsMergedToWhatItComputes) {
  Decoder decoder = tiny_decoder(GetParam());
  const Tensor base = logits_of(decoder);
  Rng rng(3);
  LoraModel lora({.r = 3, .alpha = 2}, decoder, rng);
  lora.attach(decoder);
  EXPECT_TRUE(same_bits(logits_of(decoder), base)) << "B = 0 must add nothing";
  fill(lora);
  const Tensor adapted = logits_of(decoder);
  EXPECT_GT(relative_difference(adapted, base), 1e-2);
  lora.merge();
  EXPECT_LT(relative_difference(logits_of(decoder), adapted), tolerance(1e-3, 1e-10));
}

TEST_P(LoraOf, PublishedMatricesGrowByTheirPublishedBA) {
  Decoder decoder = tiny_decoder(GetParam());
  Rng rng(3);
  LoraModel lora({.r = 3, .alpha = 2, .rslora = true}, decoder, rng);
  fill(lora);
  std::map<std::string, Tensor> before = published(decoder);
  for (auto& [name, tensor] : before) tensor = tensor.clone();
  const auto adapters = lora.tensors();
  lora.merge();
  const auto after = published(decoder);
  std::size_t changed = 0;
  for (const auto& [name, tensor] : before) changed += !same_bits(tensor, after.at(name));
  EXPECT_EQ(changed, adapters.size() / 2);
  const std::string head = "base_model.model.", tail = ".lora_A.weight";
  for (std::size_t i = 0; i < adapters.size(); i += 2) {
    const auto& [name, a] = adapters[i];
    const Tensor& b = adapters[i + 1].second;
    const std::string weight =
        name.substr(head.size(), name.size() - head.size() - tail.size()) + ".weight";
    const Tensor &old = before.at(weight), &grown = after.at(weight);
    double worst = 0;
    for (Index out = 0; out < b.dim(0); ++out)
      for (Index in = 0; in < a.dim(1); ++in) {
        double sum = 0;
        for (Index k = 0; k < 3; ++k)
          sum += static_cast<double>(b[out * 3 + k]) * static_cast<double>(a[k * a.dim(1) + in]);
        const Index at = lora.fan_in_fan_out() ? in * b.dim(0) + out : out * a.dim(1) + in;
        const double expected = static_cast<double>(old[at]) + 2 / std::sqrt(3.0) * sum;
        worst = std::max(worst, std::abs(static_cast<double>(grown[at]) - expected));
      }
    EXPECT_LT(worst, tolerance(1e-5, 1e-12)) << weight;
  }
}

TEST_P(LoraOf, FilesGiveTheSameAdapter) {
  Decoder decoder = tiny_decoder(GetParam());
  Rng rng(3);
  LoraModel lora({.r = 3, .alpha = 2}, decoder, rng);
  fill(lora);
  // A file holds float32.
  for_each_parameter(lora, [](const std::string&, Variable& p) {
    for (Real& x : p.mutable_value().span()) x = static_cast<Real>(static_cast<float>(x));
  });
  const TempFolder folder;
  lora.write_beside(folder.path(), "base");
  const auto again = read_peft_adapter(folder.path(), decoder);
  again->attach(decoder);
  const Tensor read = logits_of(decoder);
  lora.attach(decoder);
  EXPECT_TRUE(same_bits(read, logits_of(decoder)));
}

INSTANTIATE_TEST_SUITE_P(Families, LoraOf, testing::ValuesIn(family_names()),
                         [](const auto& family) { return family.param; });

TEST(Lora, DropoutFollowsItsKeyAlone) {
  Decoder decoder = tiny_decoder("gpt2");
  Rng rng(3);
  LoraModel lora({.dropout = 0.5}, decoder, rng);
  fill(lora);
  lora.attach(decoder);
  const Tensor without = logits_of(decoder);
  const auto dropped = [&](std::uint64_t key) { return logits_of(decoder, {.dropout_key = key}); };
  const Tensor seven = dropped(7);
  EXPECT_TRUE(same_bits(dropped(7), seven));
  EXPECT_FALSE(same_bits(seven, without));
  EXPECT_FALSE(same_bits(dropped(8), seven));
  EXPECT_TRUE(same_bits(logits_of(decoder), without));
}

TEST(Lora, TargetsAreEndingsOfPublishedNames) {
  Decoder decoder = tiny_decoder("gpt2");
  Rng rng(3);
  EXPECT_EQ(LoraModel({.target_modules = {"c_attn"}}, decoder, rng).tensors().size(), 6u);
  EXPECT_EQ(LoraModel({.target_modules = {"c_proj"}}, decoder, rng).tensors().size(), 12u);
  EXPECT_EQ(LoraModel({.target_modules = {"mlp.c_proj"}}, decoder, rng).tensors().size(), 6u);
  EXPECT_EQ(error_of([&] { LoraModel({.target_modules = {"q_proj"}}, decoder, rng); }),
            "lora.target_modules: a gpt2 layer has no linear named 'q_proj'; it has c_attn, c_fc, "
            "c_proj");
}

TEST(Lora, AConfigThatIsNotSupportedIsRefusedByName) {
  const auto refusal = [](const std::string& more) {
    return error_of([&] {
      parse_peft_config(
          R"({"peft_type": "LORA", "target_modules": ["q_proj"], "r": 4)" + more + "}", "file");
    });
  };
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal(R"(, "rank_pattern": {}, "use_dora": false, "revision": "main")"), "");
  EXPECT_EQ(refusal(R"(, "bias": "all")"), "file: bias all is not supported, only none");
  EXPECT_EQ(refusal(R"(, "use_dora": true)"), "file: use_dora true is not supported");
  EXPECT_EQ(refusal(R"(, "rank_pattern": {"q_proj": 8})"),
            "file: rank_pattern {\"q_proj\":8} is not supported");
  EXPECT_EQ(refusal(R"(, "init_lora_weights": "pissa")"),
            "file: init_lora_weights \"pissa\" is not supported");
  EXPECT_EQ(refusal(R"(, "lora_alpha": null)"), "file: lora_alpha is null, expected a number");
  EXPECT_EQ(refusal(R"(, "lora_dropout": 1)"),
            "file: lora.dropout is 1, expected at least 0 and below 1");
}

TEST(Lora, AFrozenBaseInBf16LetsGradientsThrough) {
  if constexpr (sizeof(Real) == 8) GTEST_SKIP() << "bf16 is for the float build";
  Decoder decoder = tiny_decoder("llama");
  freeze_matrices(decoder, Precision::bf16);
  Rng rng(3);
  LoraModel lora({}, decoder, rng);
  fill(lora);
  lora.attach(decoder);
  set_requires_grad(lora, true);
  backward(decoder.loss(some_ids(20), 2));
  for_each_parameter(
      lora, [](const std::string& name, Variable& p) { EXPECT_TRUE(p.grad().defined()) << name; });
  EXPECT_THROW(lora.merge(), std::invalid_argument);
}

}  // namespace
}  // namespace focus
