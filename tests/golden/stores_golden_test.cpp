// Files as users hold them must open and give the numbers that they gave when they were made.
// tests/golden/stores/make_stores.py says how they were made.
#include "tests/support/cli.h"

namespace focus {
namespace {

const fs::path kStores = fs::path(FOCUS_SOURCE_DIR) / "tests/golden/stores";
constexpr double kStoresTolerance = 1e-5;

nlohmann::json expected_figures() {
  return nlohmann::json::parse(read_text(kStores / "expected.json"));
}

/// The perplexities of the attentions that a model is evaluated with by default.
std::vector<double> perplexities(const std::string& model, const std::string& adapter) {
  Words command = {"eval", kStores / model, "--text", kStores / "text.txt", "--context", "32"};
  if (!adapter.empty()) command = command + Words{"--adapter", kStores / adapter};
  if (!model.ends_with(".h5")) command = command + Words{"--tokenizer", "bytes"};
  std::vector<double> found;
  const auto figures = cli().figures(command);
  for (const auto& row : figures.at("rows")) found.push_back(row.at("perplexity").get<double>());
  return found;
}

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(actual[i] / expected[i], 1, kStoresTolerance) << "row " << i;
}

TEST(Stores, OfEveryKindScoreTheSame) {
  const auto written = expected_figures();
  EXPECT_GE(written.at("evaluated").size(), 13u);
  for (const auto& item : written.at("evaluated")) {
    const std::string model = item.at("model"), adapter = item.at("adapter");
    SCOPED_TRACE(model + " " + adapter);
    expect_close(perplexities(model, adapter), item.at("perplexities").get<std::vector<double>>());
  }
}

TEST(Stores, OfEveryKindAreDescribed) {
  for (const auto& entry : fs::recursive_directory_iterator(kStores)) {
    if (entry.path().extension() != ".h5") continue;
    const auto facts = cli().figures({"info", entry.path()});
    EXPECT_EQ(facts.at("checksums"), "all verified") << entry.path();
    EXPECT_EQ(facts.at("format_version"), kStoreVersion) << entry.path();
  }
}

/// Runs that were stopped at step 3 of 6.
TEST(Stores, OfStoppedRunsContinueToTheSameLoss) {
  const auto expected = expected_figures().at("resumed_valid_loss");
  EXPECT_GE(expected.size(), 4u);
  for (const auto& [name, loss] : expected.items()) {
    SCOPED_TRACE(name);
    const std::string out = cli().fresh(name), json = cli().fresh("figures.json");
    fs::copy(kStores / name, out, fs::copy_options::recursive);
    // The config names the base and the text by their places in the folder.
    const auto process = cli().start_by(
        {"/usr/bin/env", "--chdir=" + kStores.string()},
        {"train", out + "/config.yaml", "out=" + out, "--resume", "--json", json}, {});
    const ProcessResult result = process->wait(kRunSeconds);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(contains(result.err, "resumed at step 3")) << result.err;
    const double found = nlohmann::json::parse(read_text(json)).at("valid_loss");
    EXPECT_NEAR(found / loss.get<double>(), 1, kStoresTolerance);
  }
}

}  // namespace
}  // namespace focus
