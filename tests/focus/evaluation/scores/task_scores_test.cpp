#include "focus/evaluation/scores/task_scores.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/settings/struct_json.h"
#include "tests/support/byte_model.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using Metric = TaskKind::Metric;

/// Items of 40 bytes and a few: some lie inside a window of 60 positions, some do not.
Task task_of(const TaskKind& kind, std::size_t choices) {
  Task task{&kind, "memory", {}};
  for (std::size_t i = 0; i < 70; ++i) {  // more than are scored together
    TaskItem item{.context = std::string(40 + i % 30, static_cast<char>('a' + i % 20)),
                  .where = "memory:" + std::to_string(i)};
    for (std::size_t c = 0; c < choices; ++c) {
      item.choices.push_back(" " + std::string(1 + c, static_cast<char>('b' + (i + 3 * c) % 20)));
      item.lengths.push_back(static_cast<Index>(1 + c));
    }
    item.right = i % choices;
    task.items.push_back(std::move(item));
  }
  return task;
}

TaskKind kind_of(Metric metric) {
  return {.name = "made", .help = "", .metric = metric, .folder = "", .files = {}, .read = nullptr};
}

std::vector<AttentionSpec> specs(const LoadedModel& model, const std::vector<std::string>& words) {
  return resolve_words(words, model, DefaultBalance::trained, "test");
}

TEST(Chosen, IsTheFirstOfTheLargestByCharacterWhereAsked) {
  const ItemScore score{.log_probs = {-6, -2, -2, -9}};
  EXPECT_EQ(chosen(score), 1u);
  EXPECT_EQ(chosen(score, std::vector<Index>{9, 1, 1, 3}), 0u);
}

TEST(EvaluateTask, AccuracyIsThatOfTheScores) {
  LoadedModel model = byte_model();
  const TaskKind kind = kind_of(Metric::normalised_choice);
  const Task task = task_of(kind, 3);
  const TaskTable table = evaluate_task(model, specs(model, {"dense"}), task, TextStart::none);
  const RequestEncoder encoder(model, TextStart::none);
  double right = 0, right_norm = 0;
  for (const TaskItem& item : task.items) {
    std::vector<TokenPair> pairs;
    for (const std::string& choice : item.choices)
      pairs.push_back(encoder.pair(item.context, choice, "here"));
    ItemScore score;
    for (const ScoredPair& pair : score_pairs(*model.decoder, pairs, {.share = false}))
      score.log_probs.push_back(pair.sum());
    right += chosen(score) == item.right ? 1 : 0;
    right_norm += chosen(score, item.lengths) == item.right ? 1 : 0;
  }
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_NEAR(table.rows[0].accuracy.value, right / 70, 1e-12);
  EXPECT_NEAR(table.rows[0].accuracy_norm->value, right_norm / 70, 1e-12);
  EXPECT_NE(right, right_norm) << "the test cannot tell them apart";
  EXPECT_FALSE(table.rows[0].fidelity);
  EXPECT_LT(table.work.computed, table.work.tokens);
}

TEST(EvaluateTask, EveryAttentionIsHeldAgainstDense) {
  LoadedModel model = byte_model_with_focus();
  const TaskKind kind = kind_of(Metric::choice);
  const Task task = task_of(kind, 2);
  const TaskTable table = evaluate_task(
      model, specs(model, {"dense", "soft", "window:200", "window:8"}), task, TextStart::none);
  ASSERT_EQ(table.rows.size(), 4u);
  const TaskRow &dense = table.rows[0], &soft = table.rows[1], &all = table.rows[2],
                &few = table.rows[3];
  EXPECT_FALSE(dense.fidelity);
  EXPECT_EQ(dense.pairs_touched, 0);
  EXPECT_FALSE(dense.touches.window);
  // A window that nothing exceeds is dense attention.
  EXPECT_EQ(all.pairs_touched, 0);
  EXPECT_EQ(all.items_inside, 1);
  EXPECT_EQ(all.fidelity->same_choice.value, 1);
  EXPECT_NEAR(all.fidelity->kl.value, 0, 1e-9);
  EXPECT_NEAR(all.fidelity->log_prob_distance.value, 0, 1e-5);
  EXPECT_EQ(all.fidelity->accuracy.value, 0);
  for (const TaskRow* row : {&soft, &few}) {
    EXPECT_GT(row->pairs_touched, 0.3);
    EXPECT_EQ(row->items_inside, 0);
    EXPECT_GT(row->fidelity->kl.value, 1e-5);
    EXPECT_GT(row->fidelity->kl.error, 0);
    EXPECT_GT(row->fidelity->log_prob_distance.value, 1e-4);
    EXPECT_NEAR(row->fidelity->accuracy.value, row->accuracy.value - dense.accuracy.value, 1e-12);
  }
}

TEST(EvaluateTask, SomeItemsLieInsideTheWindow) {
  LoadedModel model = byte_model();
  const TaskKind kind = kind_of(Metric::choice);
  const TaskTable table =
      evaluate_task(model, specs(model, {"dense", "window:50"}), task_of(kind, 2), TextStart::none);
  EXPECT_GT(table.rows[1].items_inside, 0.2);
  EXPECT_LT(table.rows[1].items_inside, 0.6);
  const std::string text = format_task(table);
  EXPECT_NE(text.find("of the items fit inside the local window of 50"), std::string::npos) << text;
  const TaskTable outside =
      evaluate_task(model, specs(model, {"dense", "window:8"}), task_of(kind, 2), TextStart::none);
  EXPECT_EQ(format_task(outside).find("fit inside"), std::string::npos);
}

TEST(EvaluateTask, TheLastWordHasAnAccuracyAndAPerplexity) {
  LoadedModel model = byte_model();
  const TaskKind kind = kind_of(Metric::last_word);
  const Task task = task_of(kind, 1);
  const TaskRow row =
      evaluate_task(model, specs(model, {"dense"}), task, TextStart::none).rows.at(0);
  const RequestEncoder encoder(model, TextStart::none);
  double nats = 0;
  for (const TaskItem& item : task.items) {
    const std::vector<TokenPair> pair = {encoder.pair(item.context, item.choices[0], "here")};
    nats -= score_pairs(*model.decoder, pair, {})[0].sum();
  }
  EXPECT_NEAR(row.perplexity->value / std::exp(nats / 70), 1, 1e-5);
  EXPECT_GT(row.perplexity->error, 0);
  EXPECT_FALSE(row.accuracy_norm);
}

TEST(EvaluateTask, AnotherModelMayBeTheReference) {
  LoadedModel model = byte_model(), same = byte_model(), other = byte_model("llama", 2);
  const TaskKind kind = kind_of(Metric::choice);
  const Task task = task_of(kind, 2);
  const auto kl = [&](LoadedModel& reference) {
    return evaluate_task(model, specs(model, {"dense"}), task, TextStart::none, &reference)
        .rows.at(0)
        .fidelity->kl.value;
  };
  EXPECT_NEAR(kl(same), 0, 1e-9);
  EXPECT_GT(kl(other), 1e-3);
}

TEST(EvaluateTask, TooLongItemsAreCutAndToldAndChoicesThatDoNotFitRefused) {
  LoadedModel model = byte_model();
  const TaskKind kind = kind_of(Metric::choice);
  Task task = task_of(kind, 2);
  task.items[3].context = std::string(500, 'x');
  const TaskTable table = evaluate_task(model, specs(model, {"dense"}), task, TextStart::none);
  EXPECT_EQ(table.cut, 1);
  EXPECT_NE(format_task(table).find("1 of them were too long"), std::string::npos);
  task.items[3].choices[1] = std::string(129, 'x');
  try {
    evaluate_task(model, specs(model, {"dense"}), task, TextStart::none);
    ADD_FAILURE() << "scored";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("memory:3"), std::string::npos) << error.what();
  }
}

TEST(ReadTask, PutsThePrefixBeforeEveryContext) {
  const TempFolder folder;
  write_text(folder / "lambada_test.jsonl", "{\"text\":\"a fox\"}\n{\"text\":\"a hen\"}\n");
  write_text(folder / "prefix.txt", "Other text.\n");
  TaskSettings settings{.task_data = folder.path().string()};
  EXPECT_EQ(read_task("lambada", settings).items[1].context, "a");
  settings.prefix = (folder / "prefix.txt").string();
  settings.limit = 1;
  const Task task = read_task("lambada", settings);
  ASSERT_EQ(task.items.size(), 1u);
  EXPECT_EQ(task.items[0].context, "Other text.\n\na");
  settings.prefix += ".none";
  EXPECT_THROW(read_task("lambada", settings), std::runtime_error);
}

TEST(ApplyChatTemplate, MakesEachContextTheUsersMessage) {
  LoadedModel model = byte_model();
  const TaskKind choice = kind_of(Metric::choice), word = kind_of(Metric::last_word);
  Task task{&choice, "memory", {{.context = "Why?", .choices = {" yes", "no", "  so"}}}};
  EXPECT_THROW(apply_chat_template(task, model), std::runtime_error);
  auto files = std::make_shared<ModelFiles>();
  files->side_files["chat_template.jinja"] =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  model.files = files;
  apply_chat_template(task, model);
  EXPECT_EQ(task.items[0].context, "<user>Why?<assistant>");
  EXPECT_EQ(task.items[0].choices, (std::vector<std::string>{"yes", "no", " so"}));
  Task last{&word, "memory", {{.context = "A", .choices = {" fox"}}}};
  apply_chat_template(last, model);
  EXPECT_EQ(last.items[0].choices, std::vector<std::string>{" fox"});
}

TEST(EvaluateTask, FiguresAreTheTables) {
  LoadedModel model = byte_model_with_focus();
  const TaskKind kind = kind_of(Metric::normalised_choice);
  const TaskTable table =
      evaluate_task(model, specs(model, {"dense", "hard:1"}), task_of(kind, 2), TextStart::none);
  const auto json = struct_to_json(table);
  EXPECT_EQ(json.at("items"), 70);
  const auto& row = json.at("rows").at(1);
  EXPECT_EQ(row.at("acc").at("value"), table.rows[1].accuracy.value);
  EXPECT_EQ(row.at("acc_norm").at("error"), table.rows[1].accuracy_norm->error);
  EXPECT_EQ(row.at("local_window"), 4);
  EXPECT_EQ(row.at("pairs_touched"), table.rows[1].pairs_touched);
  EXPECT_EQ(row.at("against_dense").at("kl").at("value"), table.rows[1].fidelity->kl.value);
  EXPECT_TRUE(json.at("rows").at(0).at("local_window").is_null());
  EXPECT_FALSE(json.at("rows").at(0).contains("against_dense"));
}

}  // namespace
}  // namespace focus
