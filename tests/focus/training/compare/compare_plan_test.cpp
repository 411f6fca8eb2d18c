#include "focus/training/compare/compare_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "data/files/durable_file.h"
#include "data/settings/config.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Words = std::vector<std::string>;

const std::filesystem::path kPaper = std::filesystem::path(FOCUS_SOURCE_DIR) / "configs/paper";

const std::string kText = R"(seeds: [3, 5]
common:
  method: scratch
  tokenizer: bytes
  steps: 7
  data: {train: [a.txt], context: 64}
runs:
  - name: full
    attention: dense
  - name: focus
    attention: focus
    data.context: 32
    optim: {lr: 0.5}
    sweep: {focus.num_groups: [4, 8], steps: [9, 10]}
eval: {valid: [b.txt], stride: 16}
)";

ComparePlan plan_of(const std::string& text, const Words& overrides = {}) {
  return read_compare_plan(text, "c.yaml", overrides);
}
std::string error_with(const Words& overrides, const std::string& text = kText) {
  return error_of([&] { plan_of(text, overrides); });
}

TEST(ComparePlan, RunsSweepsAndSeeds) {
  const ComparePlan plan = plan_of(kText);
  ASSERT_EQ(plan.runs.size(), 2u * (1 + 4));
  EXPECT_EQ(plan.runs[0].name, "full");
  EXPECT_EQ(plan.runs[0].config.seed, 3);
  EXPECT_EQ(plan.runs[1].name, "full");
  EXPECT_EQ(plan.runs[1].config.seed, 5);
  EXPECT_EQ(plan.runs[0].config.data.context, 64);
  EXPECT_EQ(plan.runs[0].config.steps, 7);
  EXPECT_EQ(plan.runs[4].name, "focus, num_groups=4, steps=10");
  EXPECT_EQ(plan.runs[4].config.steps, 10);
  EXPECT_EQ(plan.runs[6].config.focus.num_groups, 8);
  EXPECT_EQ(plan.runs[6].config.steps, 9);
  EXPECT_EQ(plan.runs[6].config.data.context, 32);
  EXPECT_EQ(plan.runs[6].config.data.train, std::vector<std::string>{"a.txt"});
  EXPECT_EQ(plan.runs[6].config.optim.lr, 0.5);
  EXPECT_EQ(plan.config.eval.settings.stride, 16);
}

TEST(ComparePlan, OverridesWinInEveryRun) {
  const ComparePlan plan =
      plan_of(kText, {"data.context=16", "seeds=1", "out=elsewhere", "eval.stride=8"});
  ASSERT_EQ(plan.runs.size(), 5u);
  for (const PlannedRun& run : plan.runs) EXPECT_EQ(run.config.data.context, 16);
  EXPECT_EQ(plan.config.out, "elsewhere");
  EXPECT_EQ(plan.config.eval.settings.stride, 8);
}

TEST(ComparePlan, AnOverrideOfWhatIsSweptIsRefused) {
  EXPECT_THAT(error_with({"focus.num_groups=2"}),
              StartsWith("c.yaml:10: run focus sweeps focus.num_groups"));
}

TEST(ComparePlan, AGlobalSweepCrossesEveryRunAndARunsOwnAxisReplacesIt) {
  const ComparePlan plan = plan_of(kText + "sweep: {steps: [1, 2, 3]}\n", {"seeds=1"});
  ASSERT_EQ(plan.runs.size(), 3u + 4u);
  EXPECT_EQ(plan.runs[2].name, "full, steps=3");
  EXPECT_EQ(plan.runs[2].config.steps, 3);
  EXPECT_EQ(plan.runs[3].config.steps, 9);
}

TEST(ComparePlan, AllProblemsAtOnceEachOnce) {
  const std::string error = error_with({"optim.lrr=1"}, R"(seeds: [1, 1]
titel: x
common: {stepz: 3}
runs:
  - name: a
    focus.num_group: 4
    sweep: {steps: [1, 2]}
  - name: a
    seed: 4
)");
  for (const char* part :
       {"c.yaml: seeds: the same seed appears twice",
        "c.yaml:2: titel: unknown key; did you mean title?",
        "c.yaml:3: stepz: unknown key; did you mean steps?",
        "c.yaml:6: focus.num_group: unknown key; did you mean focus.num_groups?",
        "c.yaml:9: seed: not allowed in a single run", "eval.valid is empty",
        "override optim.lrr=1: optim.lrr: unknown key; did you mean optim.lr?"}) {
    const auto first = error.find(part);
    EXPECT_NE(first, std::string::npos) << "no \"" << part << "\" in:\n" << error;
    if (first != std::string::npos) {
      EXPECT_EQ(error.find(part, first + 1), std::string::npos) << part;
    }
  }
}

TEST(ComparePlan, ImpossibleRunsAreNamed) {
  const std::string error =
      error_with({},
                 "common: {data: {train: [a]}}\nruns: [{name: r}, {name: r, steps: 2}]\n"
                 "eval: {valid: [b]}\n");
  EXPECT_THAT(error, HasSubstr("run r: base is empty")) << error;
  EXPECT_THAT(error, HasSubstr("the name r appears twice")) << error;
}

TEST(ComparePlan, ARunIsEvaluatedWithWhatItHas) {
  const Words words = {"dense",  "local", "soft",    "hard:1",
                       "hard:6", "focus", "trained", "sparq:32"};
  RunConfig config;
  config.method = Method::full;
  EXPECT_EQ(attentions_of(words, config), (Words{"dense", "sparq:32"}));
  config.attention = {.name = "window", .settings = parse_attention("window:8").settings};
  EXPECT_EQ(attentions_of(words, config), (Words{"dense", "trained", "sparq:32"}));
  config.attention = {.name = "focus"};
  config.focus.num_groups = 4;
  EXPECT_EQ(attentions_of(words, config),
            (Words{"dense", "local", "soft", "hard:1", "focus", "sparq:32"}));
}

TEST(ComparePlan, ARunMayHaveItsOwnSeedsAndAttentions) {
  const ComparePlan plan = plan_of(
      "seeds: [1, 2]\ncommon: {base: b, data: {train: [a]}}\nruns:\n"
      "  - {name: own, seeds: [7], attentions: [dense, 'sparq:8']}\n  - name: shared\n"
      "eval: {valid: [b], attentions: [dense]}\n");
  ASSERT_EQ(plan.runs.size(), 3u);
  EXPECT_EQ(plan.runs[0].config.seed, 7);
  EXPECT_EQ(plan.runs[0].attentions, (Words{"dense", "sparq:8"}));
  EXPECT_EQ(plan.runs[2].config.seed, 2);
  EXPECT_EQ(plan.runs[2].attentions, (Words{"dense"}));

  const auto error_of_run = [](const std::string& own) {
    return error_with({}, "common: {base: b, data: {train: [a]}}\nruns:\n  - {name: r, " + own +
                              "}\neval: {valid: [b]}\n");
  };
  EXPECT_THAT(error_of_run("seeds: [3, 3]"), HasSubstr("runs: seeds: the same seed appears twice"));
  EXPECT_THAT(error_of_run("attentions: [sparc]"), HasSubstr("unknown attention"));
  EXPECT_THAT(error_of_run("seeds: many"), HasSubstr("c.yaml:3: seeds"));
}

TEST(ComparePlan, AttentionsThatCannotBeAreNamed) {
  EXPECT_THAT(error_with({"eval.attentions=[dense, sparc:3]"}),
              HasSubstr("eval.attentions: unknown attention \"sparc\""));
  // The dense run has no groups.
  EXPECT_THAT(error_with({"eval.attentions=[soft, hard:2]"}),
              HasSubstr("run full: it supports none of eval.attentions"));
  EXPECT_EQ(
      plan_of(kText, {"eval.attentions=dense,sparq:32:rank=8"}).config.eval.settings.attentions,
      (Words{"dense", "sparq:32:rank=8"}));
}

/// A config of configs/paper, with what its first lines ask to be named.
ComparePlan paper_plan(const std::filesystem::path& file) {
  return read_compare_plan(read_config_file(file.string()), file.string(),
                           {"base=base.h5", "data.train=a.txt", "eval.valid=b.txt"});
}

TEST(PaperConfigs, TopKIsEvaluatedWithBothGates) {
  EXPECT_EQ(paper_plan(kPaper / "top_k.yaml").config.eval.settings.attentions,
            (Words{"dense", "local", "focus:gate=drop", "focus:gate=keep"}));
}

TEST(PaperConfigs, AllCanRun) {
  const std::map<std::string, std::int64_t> steps = {{"dominance", 1200}, {"alignment", 2000}};
  std::size_t comparisons = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kPaper)) {
    const std::string text = read_config_file(entry.path().string());
    if (text.find("\nruns:") == std::string::npos) {  // of focus train
      RunConfig config;
      read_config_text(text, entry.path().string(), {"base=base.h5", "data.train=a.txt"}, config);
      EXPECT_NO_THROW(config.validate()) << entry.path();
      continue;
    }
    ++comparisons;
    const ComparePlan plan = paper_plan(entry.path());
    EXPECT_EQ(plan.config.seeds.size(), 3u) << entry.path();
    EXPECT_TRUE(plan.config.out.starts_with("out/paper-")) << entry.path();
    for (const PlannedRun& run : plan.runs) {
      EXPECT_EQ(run.config.base, "base.h5") << run.name;
      const auto own = steps.find(entry.path().stem().string());
      EXPECT_EQ(run.config.steps, own == steps.end() ? 4000 : own->second) << run.name;
      // Perplexities of other contexts than the trained one say little.
      EXPECT_EQ(run.config.data.context, plan.config.eval.settings.context) << run.name;
    }
  }
  EXPECT_GE(comparisons, 6u);
}

TEST(PaperConfigs, DominanceGoesOnUntilThePapersCollapse) {
  std::size_t two_phases = 0, full = 0;
  for (const PlannedRun& run : paper_plan(kPaper / "dominance.yaml").runs) {
    // The paper's comes by step 600 of training all.
    const bool phases = run.config.method == Method::two_phase;
    EXPECT_GE(run.config.steps - (phases ? run.config.two_phase.phase1_steps : 0), 800) << run.name;
    ++(phases ? two_phases : full);
  }
  EXPECT_EQ(two_phases, 3u * 11);
  EXPECT_EQ(full, 3u * 4);
}

TEST(PaperConfigs, WhereThereIsLoraItIsThereAtFocussParameters) {
  const auto rows = [](const char* file) {
    std::map<std::string, RunConfig> runs;
    for (const PlannedRun& run : paper_plan(kPaper / file).runs) runs[run.name] = run.config;
    return runs;
  };
  // r (in + out) against d_g d: on c_attn 4 d in all, so r = 4 for d_g = 16.
  for (const char* file : {"methods.yaml", "forgetting.yaml"}) {
    bool has = false;
    for (const auto& [name, config] : rows(file))
      has = has || (config.method == Method::lora && config.lora.r == 4 &&
                    config.lora.target_modules == Words{"c_attn"} &&
                    config.focus.tokens().routing_dim == 16);
    EXPECT_TRUE(has) << file;
  }
  const auto alignment = rows("alignment.yaml");
  EXPECT_EQ(
      std::ranges::count_if(alignment, [](const auto& run) { return run.second.lora.r == 5; }), 3);
}

TEST(ComparePlan, TextsOfTargetAndSource) {
  const auto plan = [](const Words& overrides) { return plan_of(kText, overrides).config.eval; };
  using Splits = std::vector<std::pair<std::string, Words>>;
  EXPECT_EQ(plan({}).splits(true), (Splits{{"valid", {"b.txt"}}}));
  const CompareEval eval =
      plan({"eval.valid=[]", "eval.texts.target=t.txt", "eval.texts.source=s.txt",
            "eval.test=e.txt", "eval.test_texts.target=tt.txt", "eval.test_texts.source=ts.txt"});
  EXPECT_EQ(eval.splits(false), (Splits{{"target", {"t.txt"}}, {"source", {"s.txt"}}}));
  EXPECT_EQ(eval.splits(true), (Splits{{"target", {"t.txt"}},
                                       {"source", {"s.txt"}},
                                       {"test", {"e.txt"}},
                                       {"test target", {"tt.txt"}},
                                       {"test source", {"ts.txt"}}}));
  EXPECT_TRUE(eval.has_tests());
  EXPECT_FALSE(plan({}).has_tests());
  EXPECT_THAT(error_with({"eval.texts.target=t.txt"}), HasSubstr("eval.texts.source is empty"));
  EXPECT_THAT(error_with({"eval.test_texts.source=t.txt"}),
              HasSubstr("eval.test_texts.target is empty"));
  EXPECT_THAT(error_with({"eval.valid=[]"}), HasSubstr("eval.valid is empty"));
}

TEST(PaperConfigs, MethodsAreThoseOfTheTables) {
  Words names;
  for (const PlannedRun& run : paper_plan(kPaper / "methods.yaml").runs) {
    if (run.config.seed != 1) continue;
    names.push_back(run.name);
    EXPECT_EQ(run.config.mechanism().has_value(),
              run.config.attention.name != "dense" && !run.config.has_focus())
        << run.name;
  }
  EXPECT_EQ(names, (Words{"Focus", "Focus, two phases", "LoRA, r=4", "LoRA, r=16",
                          "full fine-tuning", "local window (Longformer)", "Performer",
                          "Routing Transformer, nearest", "Routing Transformer, balanced"}));
}

}  // namespace
}  // namespace focus
