// Whole models against transformers: dense and with Focus.
#include "focus/generation/generator.h"
#include "focus/generation/sampling.h"
#include "tests/support/golden_model.h"
#include "tests/support/grouping_layers.h"

namespace focus {
namespace {

constexpr double kArchTolerance = 1e-4;

/// transformers' parameter of that name in a file: gpt_neox's head is saved under another.
std::string parameter_name(const std::string& saved) {
  return saved == "embed_out.weight" ? "lm_head.weight" : saved;
}

class ArchGolden : public testing::TestWithParam<std::string> {
 protected:
  ArchGolden() : folder_(std::filesystem::path(GetParam()).parent_path().string()) {}
  void SetUp() override {
    config_ = golden_config(folder_);
    if (!config_) GTEST_SKIP() << folder_ << ": its model_type is not supported";
  }
  std::string folder_;
  std::optional<ModelConfig> config_;
};
class DenseGolden : public ArchGolden {};
class FocusModelGolden : public ArchGolden {};

TEST_P(DenseGolden, Agrees) {
  const GoldenFile file(GetParam());
  Decoder decoder = golden_decoder(folder_, *config_);
  const auto ids = file.ids("input_ids");
  const Index batch = file.dims("input_ids").at(0);
  expect_close("logits", golden_logits(decoder, file), file.numbers("logits"), kArchTolerance);
  set_requires_grad(decoder, true);
  const Variable loss = decoder.loss(ids, batch);
  expect_close("loss", loss.value(), file.numbers("loss"), kArchTolerance);
  backward(loss);
  std::vector<std::string> expected = file.names("grad");
  for_each_published(
      decoder, [](const Variable& p) { return p.grad(); },
      [&](const std::string& name, const Tensor& grad) {
        const std::string set = "grad/" + parameter_name(name);
        ASSERT_TRUE(file.has(set)) << set;
        expect_close("gradient of " + name, grad, file.numbers(set), kArchTolerance);
        std::erase(expected, set);
      });
  EXPECT_TRUE(expected.empty()) << "not ours: " << expected.front();
}

TEST_P(DenseGolden, GreedyTokensWithACacheAndWithout) {
  const GoldenFile file(GetParam());
  Decoder decoder = golden_decoder(folder_, *config_);
  if (!file.has("greedy")) GTEST_SKIP() << folder_ << ": none were made";
  const auto greedy = file.ids("greedy");  // as much prompt as new tokens
  const auto middle = greedy.begin() + static_cast<std::ptrdiff_t>(greedy.size() / 2);
  std::vector<std::int32_t> prompt(greedy.begin(), middle);
  const std::vector<std::int32_t> expected(middle, greedy.end());
  // To the generate() that made the file 0 was padding, which it hides: neither attended nor
  // counted in the positions, but counted in a sliding window.
  // A first token without any other to attend to left it NaN.
  if (prompt.front() == 0) GTEST_SKIP() << folder_ << ": the prompt begins with padding";
  if (std::erase(prompt, 0) > 0 && config_->widest_window() > 0)
    GTEST_SKIP() << folder_ << ": padding within a sliding window";
  for (const auto cache : {std::optional(CacheDtype::float32), std::optional<CacheDtype>()}) {
    Generator generator(decoder, nullptr, {.kind = AttentionKind::dense}, cache);
    std::vector<std::int32_t> ids;
    Rng rng;
    Tensor logits = generator.next_logits(prompt);
    while (ids.size() < expected.size()) {
      ids.push_back(sample(logits.span(), {}, rng));
      logits = generator.next_logits(std::span(ids).last(1));
    }
    EXPECT_EQ(ids, expected) << (cache ? "with a cache" : "without a cache");
  }
}

TEST_P(FocusModelGolden, Agrees) {
  const GoldenFile file(GetParam());
  Decoder decoder = golden_decoder(folder_, *config_);
  const FocusConfig focus_config = golden_focus_config(file);
  Rng rng(0);
  FocusModel focus(focus_config, config_->hidden_size, config_->num_hidden_layers, rng);
  for (std::size_t i = 0; i < token_layers(focus).size(); ++i) {
    const std::string prefix = fmt::format("layers/{}/", i);
    token_layers(focus)[i].projection = file.tensor(prefix + "w_g");
    token_layers(focus)[i].centroids = file.tensor(prefix + "centroids");
    token_layers(focus)[i].potentials = file.tensor(prefix + "carried");
  }
  focus.attach(decoder);
  focus.set_trainable(true);
  const auto ids = file.ids("input_ids");
  const Index batch = file.dims("input_ids").at(0);
  expect_close("logits", golden_logits(decoder, file), file.numbers("logits"), kArchTolerance);
  const Variable loss = decoder.loss(ids, batch);
  expect_close("loss", loss.value(), file.numbers("loss"), kArchTolerance);
  backward(loss);
  for (std::size_t i = 0; i < token_layers(focus).size(); ++i) {
    const std::string prefix = fmt::format("layers/{}/", i);
    expect_close(prefix + "grad_w_g", token_layers(focus)[i].projection.grad(),
                 file.numbers(prefix + "grad_w_g"), kArchTolerance);
    expect_close(prefix + "grad_centroids", token_layers(focus)[i].centroids.grad(),
                 file.numbers(prefix + "grad_centroids"), kArchTolerance);
  }
  const NoGrad guard;
  for (int top_k = 1; top_k <= focus_config.num_groups; ++top_k) {
    const std::string prefix = fmt::format("hard_{}/", top_k);
    if (!file.has(prefix + "logits")) continue;
    focus.mode.kind = AttentionKind::hard;
    focus.mode.top_k = top_k;
    focus.mode.gate = HardGate::drop;
    const Variable hidden = decoder.hidden_states(ids, batch);
    expect_close(prefix + "logits", decoder.logits(hidden).value(), file.numbers(prefix + "logits"),
                 kArchTolerance);
    expect_close(prefix + "loss",
                 decoder.cross_entropy(hidden, shifted_targets(ids, batch)).value(),
                 file.numbers(prefix + "loss"), kArchTolerance);
  }
}

std::vector<std::string> focus_files() {
  std::vector<std::string> files = golden_entries("arch", ".h5");
  std::erase_if(files, [](const std::string& name) { return name.ends_with("dense.h5"); });
  return files;
}

INSTANTIATE_TEST_SUITE_P(Files, DenseGolden, testing::ValuesIn(golden_entries("arch", "/dense.h5")),
                         test_name);
INSTANTIATE_TEST_SUITE_P(FocusFiles, FocusModelGolden, testing::ValuesIn(focus_files()), test_name);
}  // namespace
}  // namespace focus
