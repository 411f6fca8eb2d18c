// Files that users may hold, made once by an earlier program and never again: they must open, and
// give the numbers that they gave then. tests/golden/stores/make_stores.py says how they were made.
#include <set>

#include "tests/support/cli.h"

namespace focus {
namespace {

const fs::path kStores = fs::path(FOCUS_SOURCE_DIR) / "tests/golden/stores";
constexpr double kStoresTolerance = 1e-5;

nlohmann::json expected_in(const fs::path& folder) {
  return nlohmann::json::parse(read_text(folder / "expected.json"));
}

/// The perplexities of the attentions that a model is evaluated with by itself.
std::vector<double> perplexities(const fs::path& folder, const std::string& model,
                                 const std::string& adapter, const std::string& context) {
  Words command = {"eval", folder / model, "--text", folder / "text.txt", "--context", context};
  if (!adapter.empty()) command = command + Words{"--adapter", folder / adapter};
  if (adapter == "tokens_summary/focus.h5") command = command + Words{"--attention", "summary"};
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

TEST(Stores, OfEveryFormatVersionScoreTheSame) {
  std::set<std::int64_t> versions;
  for (const char* version : {"v1", "v2"}) {
    SCOPED_TRACE(version);
    const fs::path folder = kStores / version;
    versions.insert(StoreReader(folder / "model.h5").int_attribute("/", "format_version"));
    std::vector<double> expected;
    const auto written = expected_in(folder);
    for (const auto& row : written.at("rows"))
      expected.push_back(row.at("perplexity").get<double>());
    expect_close(perplexities(folder, "model.h5", "focus.h5", "64"), expected);
  }
  for (std::int64_t v = kOldestStoreVersion; v <= kStoreVersion; ++v)
    EXPECT_TRUE(versions.contains(v)) << "no store of version " << v << " in " << kStores;
}

TEST(Stores, OfEveryKindScoreTheSame) {
  const fs::path folder = kStores / "kinds";
  const auto written = expected_in(folder);
  EXPECT_GE(written.at("evaluated").size(), 20u);
  for (const auto& item : written.at("evaluated")) {
    const std::string model = item.at("model"), adapter = item.at("adapter");
    SCOPED_TRACE(model + " " + adapter);
    expect_close(perplexities(folder, model, adapter, "32"),
                 item.at("perplexities").get<std::vector<double>>());
  }
}

TEST(Stores, OfEveryKindAreDescribed) {
  for (const auto& entry : fs::recursive_directory_iterator(kStores)) {
    if (entry.path().extension() != ".h5") continue;
    const auto facts = cli().figures({"info", entry.path()});
    EXPECT_EQ(facts.at("checksums"), "all verified") << entry.path();
  }
}

/// A run that was stopped at step 3 of 6, and the keys of its config in the words of today.
struct StoppedRun {
  std::string folder;
  Words keys;
};

const Words kRetrofit = {"method=retrofit", "base=base/model.h5"};
const Words kTokens = {"focus.num_groups=4", "focus.tokens.routing_dim=4", "focus.local_window=5",
                       "focus.tokens.temperature=0.7"};
const Words kMechanism = {"method=scratch",
                          "tokenizer=bytes",
                          "model.hidden_size=8",
                          "model.intermediate_size=16",
                          "model.num_attention_heads=2",
                          "model.initializer_range=0.5",
                          "model.num_hidden_layers=1"};

std::vector<StoppedRun> stopped_runs() {
  return {
      {"tokens_half",
       kRetrofit + kTokens +
           Words{"focus.tokens.balance=none", "focus.ablations.balance_loss=0.4",
                 "focus.ablations.entropy_loss=0.3", "focus.ablations.entropy_of=token",
                 "focus.ablations.stop_gradient=true", "focus.ablations.centroid_update=average",
                 "focus.ablations.centroid_rate=0.05", "focus.ablations.recluster_every=2"}},
      {"keys_half",
       kRetrofit + Words{"focus.grouping=keys", "focus.training=summary", "focus.num_groups=6",
                         "focus.summary.num_selected_groups=2", "focus.local_window=3",
                         "focus.summary.block=4", "focus.summary.sinks=2",
                         "focus.objective=layer_distillation", "focus.keys.fit_step=null",
                         // As all runs had it before these were settings.
                         "focus.summary.width=0", "focus.summary.selection_per=key_head",
                         "focus.keys.head_budgets=equal"}},
      {"hard_half",
       kRetrofit + kTokens + Words{"focus.training=hard", "focus.tokens.train_top_k=3"}},
      {"lora_half",
       {"method=lora", "base=base/model.h5", "lora.target_modules=[q_proj, up_proj]", "lora.r=2",
        "lora.alpha=6", "lora.dropout=0.2"}},
      {"indexer_half",
       kRetrofit + Words{"attention=indexer", "indexer.tokens=6", "indexer.heads=2"}},
      {"two_phase_half",
       kTokens + Words{"method=two_phase", "base=base/model.h5", "two_phase.phase1_steps=2",
                       "two_phase.lr=0.001", "data.gradient_accumulation_steps=2",
                       "optim.weight_decay=0.1"}},
      {"routing_transformer_half",
       kMechanism + Words{"attention=routing_transformer", "routing_transformer.num_clusters=3",
                          "routing_transformer.local_window=4"}}};
}

TEST(Stores, OfStoppedRunsGoOnToTheSameLoss) {
  const fs::path folder = kStores / "kinds";
  const auto expected = expected_in(folder).at("resumed_valid_loss");
  const Words common = {"data.train=text.txt",
                        "data.valid=text.txt",
                        "data.context=32",
                        "data.batch=2",
                        "steps=6",
                        "seed=3",
                        "optim.lr=0.05",
                        "optim.warmup_steps=2",
                        "eval_windows=4",
                        "threads=1",
                        "checkpoint_every=0"};
  const auto runs = stopped_runs();
  EXPECT_EQ(runs.size(), expected.size());
  for (const StoppedRun& run : runs) {
    SCOPED_TRACE(run.folder);
    const std::string out = cli().fresh(run.folder), json = cli().fresh("figures.json");
    fs::copy(folder / run.folder, out, fs::copy_options::recursive);
    const Words command = Words{"train"} + common + run.keys + Words{"out=" + out, "--resume"};
    // The config names the base and the text by where they lie in the folder.
    const auto process = cli().start_by({"/usr/bin/env", "--chdir=" + folder.string()},
                                        command + Words{"--json", json}, {});
    const ProcessResult result = process->wait(kRunSeconds);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(contains(result.err, "resumed at step 3")) << result.err;
    const double loss = nlohmann::json::parse(read_text(json)).at("valid_loss");
    EXPECT_NEAR(loss / expected.at(run.folder).get<double>(), 1, kStoresTolerance);
  }
}

}  // namespace
}  // namespace focus
