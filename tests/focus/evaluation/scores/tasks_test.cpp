#include "focus/evaluation/scores/tasks.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using Texts = std::vector<std::string>;

class Tasks : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_ / path).parent_path());
    write_text(folder_ / path, text);
  }
  Task read(const std::string& name, Index limit = 0) {
    return read_task(name, folder_.path(), limit);
  }
  void expect_refused(const std::string& name, const std::vector<std::string>& parts) {
    try {
      read(name);
      ADD_FAILURE() << name << " was read";
    } catch (const std::runtime_error& error) {
      const std::string said = error.what();
      EXPECT_EQ(said.find('\n'), std::string::npos) << said;
      for (const std::string& part : parts)
        EXPECT_NE(said.find(part), std::string::npos) << "no \"" << part << "\" in: " << said;
    }
  }

  TempFolder folder_;
};

TEST_F(Tasks, HellaSwagOfItsPublisher) {
  write("hellaswag/hellaswag_val.jsonl",
        R"({"ind":24,"activity_label":"Roof [title] work","ctx_a":"A man sits.  [step] He rests.",)"
        R"("ctx_b":"he LOOKS","endings":["up. [substeps] Then","d\u00f6wn"],"label":1})"
        "\n"
        R"({"activity_label":"Bake","ctx":"Heat it.","endings":["a","b"],"label":"0"})"
        "\n");
  const Task task = read("hellaswag");
  ASSERT_EQ(task.items.size(), 2u);
  // As the harness does it: of three spaces two are left.
  EXPECT_EQ(task.items[0].context, "Roof. work: A man sits.  He rests. He looks");
  EXPECT_EQ(task.items[0].choices, (Texts{" up. Then", " d\u00f6wn"}));
  EXPECT_EQ(task.items[0].lengths, (std::vector<Index>{8, 4}));  // characters, not bytes
  EXPECT_EQ(task.items[0].right, 1u);
  EXPECT_TRUE(task.items[1].where.ends_with("hellaswag_val.jsonl:2"));
  EXPECT_EQ(task.items[1].context, "Bake: Heat it.");
}

TEST_F(Tasks, HellaSwagInSixLinesAnItem) {
  write("hellaswag/hellaswag_val_full.txt",
        "Roof: he\n3\na.\nb.\nc.\nd e.\nBake: it\n0\na\nb\nc\nd\n");
  const Task task = read("hellaswag");
  ASSERT_EQ(task.items.size(), 2u);
  EXPECT_EQ(task.items[0].context, "Roof: he");
  EXPECT_EQ(task.items[0].choices, (Texts{" a.", " b.", " c.", " d e."}));
  EXPECT_EQ(task.items[0].right, 3u);
  EXPECT_EQ(read("hellaswag", 1).items.size(), 1u);
  write("hellaswag/hellaswag_val_full.txt", "Roof: he\n3\na.\nb.\nc.\n");
  expect_refused("hellaswag", {"hellaswag_val_full.txt:1", "fewer than 6 lines"});
  write("hellaswag/hellaswag_val_full.txt", "Roof: he\n4\na.\nb.\nc.\nd\n");
  expect_refused("hellaswag", {"hellaswag_val_full.txt:2", "\"4\""});
}

TEST_F(Tasks, ArcInThreeForms) {
  const std::string wanted = "Question: Why?\nAnswer:";
  for (
      const char* line :
      {R"({"id":"x","question":{"stem":"Why?","choices":[{"text":"so","label":"A"},)"
       R"({"text":"not so","label":"B"}]},"answerKey":"B"})",
       R"({"question":"Why?","choices":{"text":["so","not so"],"label":["1","2"]},"answerKey":"2"})",
       R"({"query":"Question: Why?","choices":["so","not so"],"gold":1})",
       R"({"query":"Why?","choices":["so","not so"],"gold":1})"}) {
    write("arc_easy.jsonl", line);
    const Task task = read("arc_easy");
    ASSERT_EQ(task.items.size(), 1u);
    EXPECT_EQ(task.items[0].context, wanted) << line;
    EXPECT_EQ(task.items[0].choices, (Texts{" so", " not so"})) << line;
    EXPECT_EQ(task.items[0].right, 1u) << line;
  }
  write("arc_easy.jsonl",
        R"({"question":"Why?","choices":{"text":["so"],"label":["A"]},"answerKey":"E"})");
  expect_refused("arc_easy", {"arc_easy.jsonl:1", "answerKey \"E\""});
}

TEST_F(Tasks, PiqaWithLabelsInTheItemsOrBeside) {
  const std::string a = R"({"goal":"Cut","sol1":"saw","sol2":"sew "})";
  write("piqa/valid.jsonl", a + "\n" + a + "\n");
  expect_refused("piqa", {"valid.jsonl:1", "\"label\" is missing"});
  write("piqa/valid-labels.lst", "1\n0\n");
  const Task task = read("piqa");
  EXPECT_EQ(task.items[0].context, "Question: Cut\nAnswer:");
  EXPECT_EQ(task.items[0].choices, (Texts{" saw", " sew "}));
  EXPECT_EQ(task.items[0].right, 1u);
  EXPECT_EQ(task.items[1].right, 0u);
  write("piqa/valid-labels.lst", "1\n");
  expect_refused("piqa", {"valid-labels.lst:2", "not a label"});
  write("piqa/valid-labels.lst", "1\n0\n1\n");
  expect_refused("piqa", {"valid-labels.lst", "3 labels for the 2 items"});
  std::filesystem::remove(folder_ / "piqa/valid-labels.lst");
  write("piqa/valid.jsonl", R"({"goal":"Cut","sol1":"saw","sol2":"sew","label":1})");
  EXPECT_EQ(read("piqa").items[0].right, 1u);
  write("piqa/valid.jsonl", R"({"goal":"Cut","sol1":"saw","sol2":"sew","label":-1})");
  expect_refused("piqa", {"valid.jsonl:1", "label"});
}

TEST_F(Tasks, LambadaAsksForTheLastWord) {
  write("lambada/lambada_test.jsonl", R"({"text":"In my\n\npalm is \"Shane"})");
  const Task task = read("lambada");
  EXPECT_EQ(task.items[0].context, "In my\n\npalm is");
  EXPECT_EQ(task.items[0].choices, (Texts{" \"Shane"}));
  EXPECT_EQ(task.kind->metric, TaskKind::Metric::last_word);
  write("lambada/lambada_test.jsonl", R"({"text":"word"})");
  expect_refused("lambada", {"lambada_test.jsonl:1", "no last word"});
}

TEST_F(Tasks, TruthfulQaComesAfterItsExamples) {
  for (const char* targets :
       {R"({"Nothing":1,"You die":0})", R"({"choices":["Nothing","You die"],"labels":[1,0]})"}) {
    write("truthfulqa/mc_task.json",
          std::string(R"([{"question":"What happens?","mc1_targets":)") + targets + "}]");
    const TaskItem item = read("truthfulqa_mc1").items.at(0);
    EXPECT_TRUE(item.context.starts_with("Q: What is human life expectancy")) << item.context;
    EXPECT_TRUE(item.context.ends_with("Spain.\n\nQ: What happens?\nA:")) << item.context;
    EXPECT_EQ(item.choices, (Texts{" Nothing", " You die"}));
    EXPECT_EQ(item.right, 0u);
  }
  write("truthfulqa/mc_task.json",
        R"([{"question":"What?","mc1_targets":{"Nothing":1,"You die":1}}])");
  expect_refused("truthfulqa_mc1", {"mc_task.json[0].mc1_targets", "2 correct choices"});
}

// One of TruthfulQA's answers has no text; the harness scores the space before it.
TEST_F(Tasks, AChoiceMayHaveNoText) {
  write("truthfulqa/mc_task.json",
        R"([{"question":"What happens?","mc1_targets":{"":0,"Nothing":1}}])");
  const TaskItem item = read("truthfulqa_mc1").items.at(0);
  EXPECT_EQ(item.choices, (Texts{" ", " Nothing"}));
  EXPECT_EQ(item.lengths, (std::vector<Index>{0, 7}));
}

TEST_F(Tasks, WhatIsNoBenchmark) {
  expect_refused("hellaswagg", {"hellaswagg", "arc_easy"});
  expect_refused("piqa", {"piqa", "valid.jsonl", folder_.path().string()});
  write("arc_easy.jsonl", "\n");
  expect_refused("arc_easy", {"arc_easy.jsonl", "no items"});
  write("arc_easy.jsonl", "{\"query\":");
  expect_refused("arc_easy", {"arc_easy.jsonl:1", "not valid JSON"});
  write("arc_easy.jsonl", R"({"query":"a","choices":["a","\udfff"],"gold":0})");
  expect_refused("arc_easy", {"arc_easy.jsonl:1", "surrogate"});
  write("arc_easy.jsonl", R"({"query":"a","choices":["a","b"],"gold":2})");
  expect_refused("arc_easy", {"arc_easy.jsonl:1", "not one of 2 choices"});
}

}  // namespace
}  // namespace focus
