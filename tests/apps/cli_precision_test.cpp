#include "data/tensors/store.h"
#include "tests/support/cli.h"
#include "tests/support/environment.h"

// What a config's compute changes of training, and what not.
namespace focus {
namespace {

/// Every step's loss is close to the other run's, and not all the same.
void expect_close_losses(const std::string& rounded, const std::string& exact) {
  const auto losses = metrics_of(rounded), wanted = metrics_of(exact);
  ASSERT_EQ(losses.size(), wanted.size());
  bool differ = false;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (!losses[i].contains("loss")) continue;
    const double loss = losses[i].at("loss"), other = wanted[i].at("loss");
    EXPECT_NEAR(loss, other, 2e-2) << losses[i];
    differ = differ || loss != other;
  }
  EXPECT_TRUE(differ) << "nothing was rounded";
}

TEST(CliCompute, RoundedTrainingIsCloseToFloat32AndFitsTheSameBase) {
  const std::string exact = cli().fresh("float32");
  cli().must_run(cli().retrofit({"out=" + exact}));
  for (const std::string rounded : {"bf16", "q8"}) {
    const std::string out = cli().fresh(rounded);
    cli().must_run(cli().retrofit({"out=" + out, "precision=" + rounded}));
    const StoreReader a(out + "/focus.h5"), b(exact + "/focus.h5");
    EXPECT_TRUE(contains(a.text("/config.yaml"), "precision: " + rounded));
    EXPECT_EQ(a.string_attribute("/focus", "base_fingerprint"),
              b.string_attribute("/focus", "base_fingerprint"));
    expect_close_losses(out, exact);
    // An adapter goes with its base, whatever that is stored in.
    for (const std::string& precision : {std::string("float32"), rounded})
      cli().must_run({"eval", cli().base(), "--adapter", out + "/focus.h5", "--text",
                      cli().valid_text(), "--precision", precision});
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
  const std::string exact = run("float32"), rounded = run("bf16");
  const auto losses = metrics_of(rounded), wanted = metrics_of(exact);
  ASSERT_EQ(losses.size(), wanted.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_EQ(losses[i].value("loss", 0.0), wanted[i].value("loss", 0.0));
}

TEST(CliCompute, DryRunCountsWeightsInBf16ByHalf) {
  const Words dry = {"out=" + cli().fresh("dry"), "--dry-run"};
  const auto exact = cli().figures(cli().retrofit(dry));
  const auto figures = cli().figures(cli().retrofit(dry + Words{"precision=bf16"}));
  EXPECT_EQ(figures.at("trainable"), exact.at("trainable"));
  EXPECT_EQ(figures.at("frozen"), exact.at("frozen"));
  const double share =
      figures.at("weight_bytes").get<double>() / exact.at("weight_bytes").get<double>();
  EXPECT_GT(share, 0.5);  // norms, biases and centroids stay
  EXPECT_LT(share, 0.6);
}

}  // namespace
}  // namespace focus
