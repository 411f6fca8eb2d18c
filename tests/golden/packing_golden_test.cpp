// Documents packed into rows, and LoRA trained on parts of them, against PEFT on transformers'
// models with position_ids that begin again, a mask that keeps documents apart, and labels of -100.
#include "focus/adapters/lora/lora.h"
#include "focus/training/fit.h"
#include "tests/support/golden_curve.h"

namespace focus {
namespace {

class Packing : public testing::TestWithParam<std::string> {
 protected:
  static std::string model_name() { return std::filesystem::path(GetParam()).stem().string(); }

  /// Every window a batch of its own.
  Batches batches(std::int32_t vocab_size) const {
    const std::vector<std::int32_t> starts = file.ids("offsets"), counted = file.ids("counts");
    const std::vector<Index> offsets(starts.begin(), starts.end());
    const std::vector<std::uint8_t> counts(counted.begin(), counted.end());
    return Batches(
        TokenView(TokenFile::from_tokens(file.ids("ids"), offsets, vocab_size, {}, counts)),
        {.batch = 1, .context = static_cast<Index>(file.attribute("context")), .shuffle = false});
  }
  LoadedModel model() const {
    const std::string base = "arch/" + model_name();
    LoadedModel loaded = golden_loaded(base, *golden_config(base));
    loaded.attach(read_peft_adapter(golden_folder() / "lora" / model_name(), *loaded.decoder));
    return loaded;
  }

  GoldenFile file{GetParam()};
};

TEST_P(Packing, DocumentsGoIntoTheSameWindows) {
  const std::vector<std::int32_t> offsets = file.ids("offsets"), window_of = file.ids("windows");
  const std::vector<std::int32_t> ids = file.ids("ids");
  const Batches all = batches(96);
  ASSERT_EQ(all.num_windows(), 1 + std::ranges::max(window_of));
  for (Index w = 0; w < all.num_windows(); ++w) {
    std::vector<std::int32_t> expected;
    for (std::size_t i = 0; i < window_of.size(); ++i)
      if (window_of[i] == w)
        expected.insert(expected.end(), ids.begin() + offsets[i], ids.begin() + offsets[i + 1]);
    EXPECT_EQ(all.windows(w, 1).ids, expected) << "window " << w;
  }
}

TEST_P(Packing, LossesOfWindowsAgree) {
  const NoGrad guard;
  const LoadedModel loaded = model();
  const Batches all = batches(static_cast<std::int32_t>(loaded.decoder->config().vocab_size));
  const std::vector<double> expected = file.numbers("window_losses");
  for (Index w = 0; w < all.num_windows(); ++w)
    EXPECT_NEAR(static_cast<double>(batch_loss(*loaded.decoder, all.windows(w, 1)).value()[0]),
                expected[w], 1e-4)
        << "window " << w;
}

TEST_P(Packing, StepsAgree) {
  const std::vector<double> losses = file.numbers("losses"), norms = file.numbers("grad_norms");
  RunConfig run;
  run.method = Method::lora;
  run.steps = static_cast<std::int64_t>(losses.size());
  run.optim = optim_config(file);
  run.data.context = static_cast<Index>(file.attribute("context"));
  run.data.gradient_accumulation_steps = static_cast<int>(file.attribute("parts"));
  LoadedModel loaded = model();
  Batches all = batches(static_cast<std::int32_t>(loaded.decoder->config().vocab_size));
  Session session(run, std::move(loaded), {.train = std::move(all)});
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const StepResult result = session.step().result;
    EXPECT_NEAR(result.loss, losses[step], 1e-5 * losses[step]) << "step " << step;
    EXPECT_NEAR(result.grad_norm, norms[step], 1e-3 * norms[step]) << "step " << step;
  }
  for (const auto& [name, value] : session.model().lora()->tensors())
    expect_near(name, value.span(), file.numbers("final/" + name));
}

INSTANTIATE_TEST_SUITE_P(Files, Packing, testing::ValuesIn(golden_entries("packing", ".h5")),
                         test_name);
}  // namespace
}  // namespace focus
