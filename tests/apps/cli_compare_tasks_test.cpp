#include "tests/support/cli.h"
#include "tests/support/stand_in_tasks.h"

// Benchmarks as rows of `focus compare`.
namespace focus {
namespace {

using Json = nlohmann::json;

std::string task_folder() {
  const std::string folder = Cli::instance().fresh("tasks");
  write_stand_in_tasks(folder);
  return folder;
}

/// A retrofit, LoRA and full fine-tuning of the tests' base, all on piqa and lambada.
std::string task_config(const std::string& tasks, const std::string& more = "") {
  const Cli& cli = Cli::instance();
  const std::string path = cli.fresh("compare.yaml");
  write_text(path, fmt::format(R"(common:
  base: {1}
  steps: 4
  data: {{train: [{0}], valid: [{0}], context: 64, batch: 2}}
  focus: {{num_groups: 3, local_window: 8, tokens: {{routing_dim: 8}}}}
  eval_windows: 2
runs:
  - {{name: Focus, attentions: [dense, soft, "hard:1"]}}
  - {{name: LoRA, method: lora, lora.target_modules: [all-linear]}}
  - {{name: full, method: full, optim.lr: 0.01}}
eval: {{tasks: [piqa, lambada], task_data: {2}, limit: 20, attentions: [dense]{3}}}
)",
                               cli.train_text(), cli.base(), tasks, more));
  return path;
}

TEST(CliCompareTasks, RowsStandBesideTheDenseBase) {
  const Cli& cli = Cli::instance();
  const std::string tasks = task_folder(), path = task_config(tasks), out = cli.fresh("compare");
  const ProcessResult first = cli.must_run({"compare", path, "out=" + out});
  const auto rows = compare_rows(out);
  ASSERT_EQ(rows.size(), 2u * (3 + 1 + 1));
  for (const Json& row : rows) {
    const bool is_base = row["run"] == "Focus" && row["attention"] == "dense";
    EXPECT_EQ(row["items"], row["task"] == "piqa" ? 20 : 2);
    EXPECT_TRUE(row["acc"].is_number() && row["acc_error"].is_number());
    EXPECT_EQ(row["acc_norm"].is_number(), row["task"] == "piqa");
    EXPECT_EQ(row["last_word_perplexity"].is_number(), row["task"] == "lambada");
    // Of weights that have changed, dense attention too is not the base's.
    for (const char* key : {"same_choice", "log_prob_distance", "kl", "acc_against_dense"})
      EXPECT_EQ(row[key].is_number(), !is_base) << key << ": " << row;
    EXPECT_EQ(row["kl"].is_number() && row["kl"] > 0, !is_base) << row;
    const bool sparse = row["attention"] != "dense";
    EXPECT_EQ(row["pairs_touched"].get<double>() > 0, sparse) << row;
    EXPECT_EQ(row["local_window"].is_number(), sparse) << row;
  }
  EXPECT_EQ(lines_of(read_text(fs::path(out) / "compare_tasks.csv")).size(), rows.size() + 1);
  const std::string html = read_text(fs::path(out) / "compare.html");
  for (const char* part : {"Benchmarks", "piqa, 20 items", "lambada, 2 items", "piqa acc_norm",
                           "acc_norm - base", "Unchanged choices"})
    EXPECT_TRUE(contains(html, part)) << part;
  for (const char* part : {"piqa, 20 items", "lambada, 2 items", "piqa acc_norm", "acc - base"})
    EXPECT_TRUE(contains(first.out, part)) << part << "\n" << first.out;

  // Done once; another file of items is another evaluation, and nothing is trained anew.
  const auto before = snapshot(fs::path(out) / "runs");
  const ProcessResult again = cli.must_run({"compare", path, "out=" + out});
  EXPECT_EQ(again.out, first.out);
  EXPECT_FALSE(contains(again.err, "evaluating")) << again.err;
  EXPECT_EQ(snapshot(fs::path(out) / "runs"), before);
  write_text(tasks + "/lambada_test.jsonl", "{\"text\":\"Once there was a hen\"}\n");
  const ProcessResult other = cli.must_run({"compare", path, "out=" + out});
  EXPECT_TRUE(contains(other.err, "full, seed 1: evaluating on lambada")) << other.err;
  EXPECT_FALSE(contains(other.err, "on piqa") || contains(other.err, "training")) << other.err;
}

TEST(CliCompareTasks, TheFiguresAreThoseOfEval) {
  const Cli& cli = Cli::instance();
  const std::string tasks = task_folder(), out = cli.fresh("compare");
  cli.must_run({"compare", task_config(tasks), "out=" + out, "eval.tasks=[piqa]"});
  const auto rows = compare_rows(out);
  ASSERT_EQ(rows.size(), 5u);
  const std::string lora = out + "/runs/" + rows[3]["hash"].get<std::string>();
  const Json eval =
      cli.figures({"eval", cli.base(), "--adapter", lora, "--tasks", "piqa", "--task-data", tasks,
                   "--limit", "20", "--attention", "dense", "--reference", cli.base()});
  const Json& row = eval.at("tasks").at(0).at("rows").at(0);
  EXPECT_EQ(rows[3]["acc"], row.at("acc").at("value"));
  EXPECT_EQ(rows[3]["acc_norm_error"], row.at("acc_norm").at("error"));
  EXPECT_EQ(rows[3]["kl"], row.at("against_dense").at("kl").at("value"));
  EXPECT_EQ(rows[3]["log_prob_of_right_against_dense_error"],
            row.at("against_dense").at("log_prob_of_right").at("error"));
}

TEST(CliCompareTasks, BesideTexts) {
  const Cli& cli = Cli::instance();
  const std::string out = cli.fresh("compare");
  const std::string valid = fmt::format(", valid: [{}], context: 64", cli.valid_text());
  const ProcessResult result =
      cli.must_run({"compare", task_config(task_folder(), valid), "out=" + out, "seeds=[1, 2]"});
  const auto rows = compare_rows(out);
  ASSERT_EQ(rows.size(), 2u * (5 + 10));
  EXPECT_EQ(rows[0]["split"], "valid");
  EXPECT_FALSE(rows[0].contains("task"));
  EXPECT_EQ(lines_of(read_text(fs::path(out) / "compare.csv")).size(), 2u * 5 + 1);
  EXPECT_TRUE(contains(result.out, "std of acc")) << result.out;
}

TEST(CliCompareTasks, BadTasksAreRefusedBeforeAnythingIsTrained) {
  const Cli& cli = Cli::instance();
  const std::string tasks = task_folder(), path = task_config(tasks), out = cli.fresh("compare");
  const auto expect = [&](const Words& overrides, const Words& parts) {
    expect_refused(Words{"compare", path, "out=" + out} + overrides, parts);
    EXPECT_FALSE(fs::exists(out));
  };
  expect({"eval.tasks=[piqa, mmlu]"}, {"eval.tasks: unknown task mmlu", "hellaswag"});
  expect({"eval.tasks=[piqa, piqa]"}, {"eval.tasks: the same task appears twice"});
  expect({"eval.task_data=''"}, {"eval.tasks needs eval.task_data"});
  expect({"eval.tasks=[piqa]", "eval.task_data=" + tasks + "/none"},
         {"task piqa", tasks + "/none"});
  expect({"eval.tasks=[]"}, {"eval.valid is empty"});
  write_text(tasks + "/lambada_test.jsonl", "{\"text\":\"Once there\"}\n{\"txt\":\"a b\"}\n");
  expect({}, {"lambada_test.jsonl:2", "text"});
  write_text(tasks + "/lambada_test.jsonl", "\n");
  expect({}, {"lambada_test.jsonl", "no items"});
}

}  // namespace
}  // namespace focus
