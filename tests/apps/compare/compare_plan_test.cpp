#include "apps/compare/compare_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/compare/compare_report.h"
#include "apps/compare/forgetting.h"
#include "data/files/durable_file.h"
#include "data/settings/recipe.h"
#include "tests/support/stand_in_tasks.h"
#include "tests/support/temp_folder.h"

namespace focus::app {
namespace {

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

TEST(ComparePlan, RunsSweepsAndSeeds) {
  const ComparePlan plan = read_compare_plan(kText, "c.yaml", {});
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
  const ComparePlan plan = read_compare_plan(
      kText, "c.yaml", {"data.context=16", "seeds=1", "out=elsewhere", "eval.stride=8"});
  ASSERT_EQ(plan.runs.size(), 5u);
  for (const PlannedRun& run : plan.runs) EXPECT_EQ(run.config.data.context, 16);
  EXPECT_EQ(plan.config.out, "elsewhere");
  EXPECT_EQ(plan.config.eval.settings.stride, 8);
}

TEST(ComparePlan, AnOverrideOfWhatIsSweptIsRefused) {
  try {
    read_compare_plan(kText, "c.yaml", {"focus.num_groups=2"});
    FAIL() << "runs named num_groups=4 had 2 groups";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()).find("c.yaml:10: run focus sweeps focus.num_groups"), 0u)
        << error.what();
  }
}

TEST(ComparePlan, AGlobalSweepCrossesEveryRunAndARunsOwnAxisReplacesIt) {
  const ComparePlan plan =
      read_compare_plan(kText + "sweep: {steps: [1, 2, 3]}\n", "c.yaml", {"seeds=1"});
  ASSERT_EQ(plan.runs.size(), 3u + 4u);
  EXPECT_EQ(plan.runs[2].name, "full, steps=3");
  EXPECT_EQ(plan.runs[2].config.steps, 3);
  EXPECT_EQ(plan.runs[3].config.steps, 9);
}

TEST(ComparePlan, AllProblemsAtOnceEachOnce) {
  const std::string error = error_of([] {
    read_compare_plan(R"(seeds: [1, 1]
titel: x
common: {stepz: 3}
runs:
  - name: a
    focus.num_group: 4
    sweep: {steps: [1, 2]}
  - name: a
    seed: 4
)",
                      "c.yaml", {"optim.lrr=1"});
  });
  for (const char* part :
       {"c.yaml: seeds: the same seed twice", "c.yaml:2: titel: unknown key; did you mean title?",
        "c.yaml:3: stepz: unknown key; did you mean steps?",
        "c.yaml:6: focus.num_group: unknown key; did you mean focus.num_groups?",
        "c.yaml:9: seed: not of a single run", "eval.valid is empty",
        "override optim.lrr=1: optim.lrr: unknown key; did you mean optim.lr?"}) {
    const auto first = error.find(part);
    EXPECT_NE(first, std::string::npos) << "no \"" << part << "\" in:\n" << error;
    if (first != std::string::npos) {
      EXPECT_EQ(error.find(part, first + 1), std::string::npos) << part;
    }
  }
}

TEST(ComparePlan, ImpossibleRunsAreNamed) {
  const std::string error = error_of([] {
    read_compare_plan(
        "common: {data: {train: [a]}}\nruns: [{name: r}, {name: r, steps: 2}]\n"
        "eval: {valid: [b]}\n",
        "c.yaml", {});
  });
  EXPECT_NE(error.find("run r: base is empty"), std::string::npos) << error;
  EXPECT_NE(error.find("the name r twice"), std::string::npos) << error;
}

TEST(ComparePlan, ARunIsEvaluatedWithWhatItHas) {
  const Words words = {"dense",  "local", "soft",    "hard:1",
                       "hard:6", "focus", "trained", "sparq:32"};
  RunConfig config;
  config.method = Method::full;
  EXPECT_EQ(attentions_of(words, config), (Words{"dense", "sparq:32"}));
  config.attention = {.name = "window"};
  EXPECT_EQ(attentions_of(words, config), (Words{"dense", "trained", "sparq:32"}));
  config.attention = {.name = "focus"};
  config.focus.num_groups = 4;
  EXPECT_EQ(attentions_of(words, config),
            (Words{"dense", "local", "soft", "hard:1", "focus", "sparq:32"}));
}

TEST(ComparePlan, ARunMayHaveItsOwnSeedsAndAttentions) {
  const ComparePlan plan = read_compare_plan(
      "seeds: [1, 2]\ncommon: {base: b, data: {train: [a]}}\nruns:\n"
      "  - {name: own, seeds: [7], attentions: [dense, 'sparq:8']}\n  - name: shared\n"
      "eval: {valid: [b], attentions: [dense]}\n",
      "c.yaml", {});
  ASSERT_EQ(plan.runs.size(), 3u);
  EXPECT_EQ(plan.runs[0].config.seed, 7);
  EXPECT_EQ(plan.runs[0].attentions, (Words{"dense", "sparq:8"}));
  EXPECT_EQ(plan.runs[2].config.seed, 2);
  EXPECT_EQ(plan.runs[2].attentions, (Words{"dense"}));

  const auto error_with = [](const std::string& own) {
    return error_of([&] {
      read_compare_plan("common: {base: b, data: {train: [a]}}\nruns:\n  - {name: r, " + own +
                            "}\neval: {valid: [b]}\n",
                        "c.yaml", {});
    });
  };
  EXPECT_NE(error_with("seeds: [3, 3]").find("runs: seeds: the same seed twice"),
            std::string::npos);
  EXPECT_NE(error_with("attentions: [sparc]").find("unknown attention"), std::string::npos);
  EXPECT_NE(error_with("seeds: many").find("c.yaml:3: seeds"), std::string::npos);
}

TEST(ComparePlan, AttentionsThatCannotBeAreNamed) {
  const auto error_with = [](const std::string& attentions) {
    return error_of([&] { read_compare_plan(kText, "c.yaml", {"eval.attentions=" + attentions}); });
  };
  EXPECT_NE(error_with("[dense, sparc:3]").find("eval.attentions: unknown attention \"sparc\""),
            std::string::npos);
  // Of the runs, the dense one has no groups.
  EXPECT_NE(error_with("[soft, hard:2]").find("run full: it has nothing of eval.attentions"),
            std::string::npos);
  EXPECT_EQ(read_compare_plan(kText, "c.yaml", {"eval.attentions=dense,sparq:32:rank=8"})
                .config.eval.settings.attentions,
            (Words{"dense", "sparq:32:rank=8"}));
}

/// A recipe of configs/paper, with what its first lines ask to be named.
ComparePlan paper_plan(const std::filesystem::path& file) {
  static const TempFolder tasks;
  write_stand_in_tasks(tasks.path());
  return read_compare_plan(read_recipe_file(file.string()), file.string(),
                           {"base=base.h5", "data.train=a.txt", "eval.valid=b.txt",
                            "eval.task_data=" + tasks.path().string()});
}

/// What a paper's recipe compares: a setting's values, in order, each once.
template <class Value>
std::vector<Value> compared(const std::string& file, Value FocusConfig::*setting) {
  std::vector<Value> values;
  for (const PlannedRun& run : paper_plan(kPaper / file).runs)
    if (std::ranges::find(values, run.config.focus.*setting) == values.end())
      values.push_back(run.config.focus.*setting);
  return values;
}

TEST(PaperRecipes, AreThePapersAblations) {
  EXPECT_EQ(compared("num_groups.yaml", &FocusConfig::num_groups),
            (std::vector<int>{4, 8, 16, 32}));
  EXPECT_EQ(compared("local_window.yaml", &FocusConfig::local_window),
            (std::vector<Index>{64, 128, 256, 512}));
  EXPECT_EQ(compared("temperature.yaml", &FocusConfig::temperature),
            (std::vector<double>{0.05, 0.1, 0.2, 0.5}));
  EXPECT_EQ(compared("sinkhorn_iters.yaml", &FocusConfig::sinkhorn_iters),
            (std::vector<int>{3, 5, 10, 20}));
  EXPECT_EQ(compared("routing_dim.yaml", &FocusConfig::routing_dim),
            (std::vector<int>{768, 128, 32, 16}));
  EXPECT_EQ(paper_plan(kPaper / "top_k.yaml").config.eval.settings.attentions,
            (Words{"dense", "local", "focus:gate=drop", "focus:gate=keep"}));
}

TEST(PaperRecipes, AlignmentIsMeasuredByScores) {
  EXPECT_EQ(paper_plan(kPaper / "alignment.yaml").config.eval.tasks.tasks,
            (Words{"truthfulqa_mc1", "hellaswag"}));
}

TEST(PaperRecipes, AllCanRun) {
  const std::map<std::string, std::int64_t> steps = {{"dominance", 1200}, {"alignment", 2000}};
  std::size_t comparisons = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kPaper)) {
    const std::string text = read_recipe_file(entry.path().string());
    if (text.find("\nruns:") == std::string::npos) {  // of focus train
      RunConfig config;
      read_recipe_text(text, entry.path().string(), {"base=base.h5", "data.train=a.txt"}, config);
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
  EXPECT_GE(comparisons, 11u);
}

TEST(PaperRecipes, DominanceGoesOnUntilThePapersCollapse) {
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

TEST(PaperRecipes, WhereThereIsLoraItIsThereAtFocussParameters) {
  const auto rows = [](const char* file) {
    std::map<std::string, RunConfig> runs;
    for (const PlannedRun& run : paper_plan(kPaper / file).runs) runs[run.name] = run.config;
    return runs;
  };
  // r (in + out) against d_g d: on c_attn 4 d in all, so r = 4 for d_g = 16.
  for (const char* file : {"methods.yaml", "forgetting.yaml"}) {
    bool has = false;
    for (const auto& [name, config] : rows(file))
      has =
          has || (config.method == Method::lora && config.lora.r == 4 &&
                  config.lora.target_modules == Words{"c_attn"} && config.focus.routing_dim == 16);
    EXPECT_TRUE(has) << file;
  }
  const auto alignment = rows("alignment.yaml");
  EXPECT_EQ(
      std::ranges::count_if(alignment, [](const auto& run) { return run.second.lora.r == 5; }), 3);
  EXPECT_EQ(compared("two_groups.yaml", &FocusConfig::local_window),
            (std::vector<Index>{16, 32, 64, 128, 256, 512}));
}

TEST(ComparePlan, TextsOfTargetAndSource) {
  const auto plan = [](const Words& overrides) {
    return read_compare_plan(kText, "c.yaml", overrides).config.eval;
  };
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
  const auto error_with = [](const std::string& override) {
    return error_of([&] { read_compare_plan(kText, "c.yaml", {override}); });
  };
  EXPECT_NE(error_with("eval.texts.target=t.txt").find("eval.texts.source is empty"),
            std::string::npos);
  EXPECT_NE(error_with("eval.test_texts.source=t.txt").find("eval.test_texts.target is empty"),
            std::string::npos);
  EXPECT_NE(error_with("eval.valid=[]").find("eval.valid is empty"), std::string::npos);
}

TEST(PaperRecipes, MethodsAreThoseOfTheTables) {
  Words names;
  for (const PlannedRun& run : paper_plan(kPaper / "methods.yaml").runs) {
    if (run.config.seed != 1) continue;
    names.push_back(run.name);
    EXPECT_EQ(run.config.mechanism().has_value(),
              run.config.attention.name != "dense" && !run.config.has_focus())
        << run.name;
  }
  EXPECT_EQ(names,
            (Words{"Focus", "Focus, two phases", "LoRA, r=4", "LoRA, r=16", "full fine-tuning",
                   "local window (Longformer)", "Performer", "Routing Transformer, choice=nearest",
                   "Routing Transformer, choice=balanced"}));
}

nlohmann::ordered_json row(const std::string& run, int seed, double perplexity) {
  return {{"run", run},
          {"seed", seed},
          {"error", nullptr},
          {"split", "valid"},
          {"attention", "soft"},
          {"kind", "soft"},
          {"routing", "carried"},
          {"causal", true},
          {"perplexity", perplexity},
          {"pairs_attended", 0.5},
          {"largest_group", 0.25},
          {"train_tokens_per_second", 10.0},
          {"eval_tokens_per_second", 20.0 * seed},
          {"trainable_parameters", 7},
          {"train_peak_bytes", 100 * seed}};
}

TEST(CompareReport, PointsOfThePlaneOfTargetAndSource) {
  const ComparePlan plan = read_compare_plan(
      "common: {data: {train: [a.txt]}, base: b.h5}\n"
      "runs: [{name: Focus}, {name: LoRA, method: lora}]\n"
      "eval: {valid: [b.txt]}\n",
      "c.yaml", {});
  const auto of = [](const std::string& run, const char* split, const char* kind, double value) {
    auto r = row(run, 1, value);
    r["split"] = split;
    r["kind"] = r["attention"] = kind;
    return r;
  };
  auto peeking = of("Focus", "target", "soft", 3);
  peeking["routing"] = "sequence";
  peeking["causal"] = false;
  const auto groups =
      group_rows({of("Focus", "target", "dense", 4), of("Focus", "source", "dense", 2),
                  of("LoRA", "target", "dense", 3), of("LoRA", "source", "dense", 5), peeking,
                  of("Focus", "target", "soft", 9)});
  const auto points = forgetting_points(plan, groups, "target", "source");
  ASSERT_EQ(points.size(), 2u);  // soft is not causal, or has no source
  EXPECT_TRUE(points[0].is_base);
  EXPECT_FALSE(points[1].is_base);
  EXPECT_EQ(points[1].run, "LoRA");
  EXPECT_DOUBLE_EQ(points[1].target, std::log(3.0));
  EXPECT_DOUBLE_EQ(points[1].source, std::log(5.0));
  HtmlReport page("p");
  add_forgetting(page, plan, groups, "target", "source");
  EXPECT_NE(page.html().find(fmt::format("{:+.4f}", std::log(4.0 / 3))), std::string::npos);
  EXPECT_NE(page.html().find(fmt::format("{:+.4f}", std::log(5.0 / 2))), std::string::npos);
  HtmlReport none("p");
  add_forgetting(none, plan, groups, "test target", "test source");
  EXPECT_EQ(none.html(), HtmlReport("p").html());
}

TEST(CompareReport, MeanAndSpreadOverSeeds) {
  const auto groups = group_rows({row("a", 1, 2), row("b", 1, 9), row("a", 2, 4), row("a", 3, 6)});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].run, "a");
  EXPECT_EQ(groups[0].seeds, 3u);
  EXPECT_DOUBLE_EQ(groups[0].mean, 4);
  EXPECT_DOUBLE_EQ(groups[0].deviation, 2);
  EXPECT_DOUBLE_EQ(groups[0].least, 2);
  EXPECT_DOUBLE_EQ(groups[0].most, 6);
  EXPECT_DOUBLE_EQ(groups[0].pairs, 0.5);
  EXPECT_DOUBLE_EQ(groups[0].eval_rate, 40);
  EXPECT_DOUBLE_EQ(groups[0].peak_bytes, 300);
  EXPECT_EQ(groups[1].seeds, 1u);
  EXPECT_DOUBLE_EQ(groups[1].deviation, 0);
}

/// A run that has been evaluated, with one row; `causal` false: by a rival that is not.
RunOutcome outcome(const std::string& name, const std::string& tokenizer, bool causal) {
  return {.name = name,
          .config = {},
          .evaluation = {{"valid",
                          {{"texts", {"book.txt"}},
                           {"documents", 1},
                           {"bytes", 900},
                           {"tokenizer", {{"kind", tokenizer}, {"fingerprint", "f00d"}}},
                           {"context", 64},
                           {"stride", 32},
                           {"rows",
                            {{{"attention", "attention of " + name},
                              {"kind", "rival"},
                              {"top_k", nullptr},
                              {"routing", nullptr},
                              {"causal", causal},
                              {"perplexity", 3.5},
                              {"bits_per_byte", 1.25},
                              {"tokens_scored", 299},
                              {"pairs_attended", 0.5},
                              {"tokens_per_second", 10.0}}}}}}}};
}

std::string page_of(const ComparePlan& plan, const std::vector<RunOutcome>& outcomes) {
  return compare_page(plan, compared_rows(outcomes), {}, outcomes);
}

TEST(CompareReport, ARowWithoutAKindSaysToEvaluateAgain) {
  auto old = row("a", 1, 2);
  old["kind"] = nullptr;
  try {
    group_rows({old});
    FAIL() << "took a row of an older version";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("run focus eval again"), std::string::npos);
  }
}

TEST(CompareReport, AHardRowIsNamedByItsKAndGate) {
  auto hard = row("a", 1, 2);
  hard["kind"] = "hard";
  hard["attention"] = "any words";
  hard["top_k"] = 2;
  hard["gate"] = "keep";
  const auto groups = group_rows({hard});
  EXPECT_EQ(groups[0].attention.top_k, 2);
  EXPECT_TRUE(groups[0].attention.keeps_affinity);
  EXPECT_EQ(groups[0].attention.routing_text(), "carried");
}

TEST(CompareReport, WhatAPerplexityIsOfStandsOnThePage) {
  const ComparePlan plan = read_compare_plan(kText, "c.yaml", {});
  const std::string of_bytes =
      "Perplexity of book.txt: 900 bytes, 299 tokens scored; tokenizer bytes f00d; context 64, "
      "stride 32.";
  const std::string warning = "Perplexities under different tokenizers or windows do not compare";
  const std::string one = page_of(plan, {outcome("a", "bytes", true), outcome("b", "bytes", true)});
  EXPECT_NE(one.find("<p>" + of_bytes), std::string::npos);
  EXPECT_EQ(one.find(warning), std::string::npos);
  const std::string two = page_of(plan, {outcome("a", "bytes", true), outcome("b", "bpe", true)});
  EXPECT_NE(two.find("<p>a: " + of_bytes), std::string::npos);
  EXPECT_NE(two.find("tokenizer bpe f00d"), std::string::npos);
  EXPECT_NE(two.find(warning), std::string::npos);
}

TEST(CompareReport, ARivalThatIsNotCausalIsMarkedAndNotDrawn) {
  const ComparePlan plan = read_compare_plan(kText, "c.yaml", {});
  const std::vector<RunOutcome> outcomes = {outcome("sound", "bytes", true),
                                            outcome("peeking", "bytes", false)};
  const auto groups = group_rows(compared_rows(outcomes).texts);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].attention.routing_text(), "-");
  EXPECT_EQ(groups[1].attention.routing_text(), "not causal");
  EXPECT_DOUBLE_EQ(groups[1].bits_per_byte, 1.25);
  const std::string page = page_of(plan, outcomes);
  EXPECT_NE(page.find("<td>attention of peeking</td><td>not causal</td>"), std::string::npos);
  const std::string charts = page.substr(page.find("<figure>"));
  EXPECT_NE(charts.find("attention of sound"), std::string::npos);
  EXPECT_EQ(charts.find("peeking"), std::string::npos);
}

TEST(CompareReport, RowsThatWereWrittenAreReadAsTheyWere) {
  const TempFolder folder;
  const ComparedRows rows = compared_rows({outcome("a", "bytes", true)});
  std::string text = compare_jsonl(rows.all()) + R"({"claim":"of another recipe"})" + "\n";
  write_file_durably(folder / "compare.jsonl", std::string_view(text));
  const ComparedRows again = read_compared_rows(folder / "compare.jsonl");
  EXPECT_EQ(again.texts, rows.texts);
  EXPECT_TRUE(again.tasks.empty() && again.recall.empty());
  // A column that an older version did not have is null.
  auto old = rows.texts[0];
  old.erase("nats_of_documents");
  write_file_durably(folder / "old.jsonl", std::string_view(old.dump() + "\n"));
  EXPECT_EQ(read_compared_rows(folder / "old.jsonl").texts, rows.texts);
  write_file_durably(folder / "asked.jsonl",
                     std::string_view(R"({"run":"a","seed":1,"questions":"recall"})"
                                      "\n"));
  EXPECT_NE(error_of([&] {
              read_compared_rows(folder / "asked.jsonl");
            }).find("asked.jsonl:1: a row without documents"),
            std::string::npos);
  write_file_durably(folder / "other.jsonl", std::string_view("{\"step\":1}\n"));
  EXPECT_NE(error_of([&] {
              read_compared_rows(folder / "other.jsonl");
            }).find("other.jsonl:1: no row of a comparison"),
            std::string::npos);
}

}  // namespace
}  // namespace focus::app
