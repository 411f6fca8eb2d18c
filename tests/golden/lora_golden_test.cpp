// LoRA against PEFT on transformers' models: logits, loss, gradients, a training run, and its
// files, read and written.
#include "focus/adapters/lora/lora.h"
#include "tests/support/golden_curve.h"
#include "tests/support/grouping_layers.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

/// "lora/gpt2/io.h5" -> "lora/gpt2"
std::string folder_of(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

class Lora : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string base = "arch/" + std::filesystem::path(folder()).filename().string();
    const auto config = golden_config(base);
    if (!config) GTEST_SKIP() << base << ": its model_type is not supported";
    model = golden_loaded(base, *config);
    decoder = model.decoder.get();
    model.attach(read_peft_adapter(golden_folder() / folder(), *decoder));
    lora = model.lora();
  }
  static std::string folder() { return folder_of(GetParam()); }
  void expect_logits(const Decoder& of, const GoldenFile& file) const {
    expect_close("logits", golden_logits(of, file), file.numbers("logits"), 1e-4);
  }

  LoadedModel model;
  Decoder* decoder = nullptr;
  LoraModel* lora = nullptr;
};

TEST_P(Lora, LogitsAndGradientsAgree) {
  const GoldenFile file(GetParam());
  expect_logits(*decoder, file);
  set_requires_grad(*lora, true);
  const Variable loss = decoder->loss(file.ids("input_ids"), file.dims("input_ids")[0]);
  EXPECT_NEAR(static_cast<double>(loss.value()[0]), file.number("loss"), 1e-5);
  backward(loss);
  const auto gradients = lora->tensors([](const Variable& p) { return p.grad(); });
  EXPECT_EQ(gradients.size(), file.names("grad").size());
  for (const auto& [name, gradient] : gradients)
    EXPECT_LE(relative_error(gradient.span(), file.numbers("grad/" + name)), 1e-3) << name;
  for_each_parameter(*decoder, [](const std::string& name, Variable& p) {
    EXPECT_FALSE(p.requires_grad()) << name;
  });
}

TEST_P(Lora, MergedGivesTheSameLogits) {
  lora->merge();
  EXPECT_FALSE(decoder->layers()[0].self_attn.q_proj.addition);
  expect_logits(*decoder, GoldenFile(GetParam()));
}

TEST_P(Lora, TrainingCurveAgrees) {
  const GoldenFile file(GetParam());
  RunConfig run;
  run.method = Method::lora;
  const Session session = run_curve(file, run, std::move(model));
  const auto final = lora->tensors();
  EXPECT_EQ(final.size(), file.names("final").size());
  for (const auto& [name, value] : final)
    expect_near(name, value.span(), file.numbers("final/" + name));
}

TEST_P(Lora, DistilledTogetherWithFocusTheCurveAgrees) {
  const GoldenFile file(folder() + "/distilled.h5");
  RunConfig run;
  run.method = Method::lora;
  run.attention = {.name = "focus"};
  run.focus = golden_focus_config(file);
  run.focus.objective = Objective::logit_distillation;
  run.focus.lm_weight = file.attribute("lm_weight");
  Rng rng(0);
  model.attach(adapter_kind("focus").make(run.focus, decoder->config(), decoder, rng));
  std::vector<FocusLayer>& layers = token_layers(*model.focus());
  const auto tensors_of = [&](const std::string& when) {
    std::vector<std::pair<std::string, Variable*>> list;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      list.emplace_back(fmt::format("{}/layers/{}/w_g", when, i), &layers[i].projection);
      list.emplace_back(fmt::format("{}/layers/{}/centroids", when, i), &layers[i].centroids);
    }
    return list;
  };
  for (const auto& [name, value] : tensors_of("initial")) *value = file.tensor(name);
  const Session session = run_curve(file, run, std::move(model));
  for (const auto& [name, value] : tensors_of("final"))
    expect_near(name, value->value().span(), file.numbers(name));
  for (const auto& [name, value] : lora->tensors())
    expect_near(name, value.span(), file.numbers("final/" + name));
}

TEST_P(Lora, WhatIsWrittenIsReadBackToTheSameNumbers) {
  const TempFolder temp;
  lora->write_beside(temp.path(), "base");
  const auto again = read_peft_adapter(temp.path(), *decoder);
  EXPECT_EQ(again->config().target_modules, lora->config().target_modules);
  const auto before = lora->tensors(), after = again->tensors();
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].first, after[i].first);
    EXPECT_TRUE(std::ranges::equal(before[i].second.span(), after[i].second.span()))
        << before[i].first;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Lora, testing::ValuesIn(golden_entries("lora", "io.h5")),
                         test_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Lora);

TEST(LoraGoldenFiles, AreThere) {
  EXPECT_FALSE(golden_entries("lora", "io.h5").empty())
      << "no lora/*/io.h5 under " << golden_folder();
}

}  // namespace
}  // namespace focus
