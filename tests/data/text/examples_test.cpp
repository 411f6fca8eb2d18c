#include "data/text/examples.h"

#include <gmock/gmock.h>

#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<Example> examples(std::string_view text, const std::string& field = "text") {
  std::vector<Example> all;
  for_each_example(text, "a.jsonl", field, [&](Example&& one) { all.push_back(std::move(one)); });
  return all;
}

std::string refusal(std::string_view text) {
  return error_of([&] { examples(text); });
}

TEST(Examples, RecordsAreKnownByNameOrByWhatAFileHolds) {
  for (const char* name : {"a.jsonl", "b/a.jsonl", "a.jsonl.gz", "a.jsonl.xz", "a.jsonl.zst",
                           "a.jsonl.bz2", "x.y.jsonl", "a.json", "a.JSONL.GZ", "a.ndjson"})
    EXPECT_TRUE(holds_records(name, "a")) << name;
  for (const char* name : {"a.txt", "jsonl", "a.jsonl.txt", "a.jsonl.gz.gz", ".jsonl"})
    EXPECT_FALSE(holds_records(name, "a")) << name;
  for (const char* text : {"{\"a\": 1}", " \n{\"a\": 1}\r\n\n{}\nnot read", "[ {\"a\": 1},\n{} ]",
                           "\uFEFF[{\"a\": 1}]", "\uFEFF{\"a\": 1}\n"})
    EXPECT_TRUE(holds_records("a.txt", text)) << text;
  for (const char* text :
       {"", " ", "{", "{\"a\": 1}\nb", "[1, 2]", "[{\"a\": 1}", "{\n\"a\": 1}", "7"})
    EXPECT_FALSE(holds_records("a.txt", text)) << text;
}

TEST(Examples, AListOrOneObjectInSeveralLines) {
  const auto all = examples("[{\"text\": \"a\"},\n {\"text\": \"b\"}]");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].text, "b");
  EXPECT_EQ(all[1].place(), "record 2");
  EXPECT_EQ(examples("{\n \"text\": \"a\"\n}")[0].text, "a");
  EXPECT_THAT(refusal("[{\"text\": \"a\"}, 1]"),
              StartsWith("a.jsonl: record 2: expected an object"));
  EXPECT_THAT(refusal("[{\"text\": \"a\"}"), StartsWith("a.jsonl: not valid JSON"));
}

TEST(Examples, Texts) {
  const auto all = examples("{\"text\": \"a\\nb\", \"id\": 7}\r\n\n  \t\n{\"text\": \"\\u00e9\"}");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].kind, Example::Kind::text);
  EXPECT_EQ(all[0].text, "a\nb");
  EXPECT_EQ(all[0].line, 1u);
  EXPECT_EQ(all[1].text, "\xC3\xA9");
  EXPECT_EQ(all[1].line, 4u);
  EXPECT_EQ(examples("{\"content\": \"c\", \"text\": 1}", "content")[0].text, "c");
  EXPECT_TRUE(examples(" \n").empty());
}

TEST(Examples, PromptsAndMessages) {
  const auto prompt = examples(R"({"completion": " 2", "prompt": "1+1="})")[0];
  EXPECT_EQ(prompt.kind, Example::Kind::prompt);
  EXPECT_EQ(prompt.text, "1+1=");
  EXPECT_EQ(prompt.completion, " 2");
  const auto chat = examples(
      R"({"text": "not this", "messages": [{"role": "user", "content": "a", "b": 1, "a": 2}]})")[0];
  EXPECT_EQ(chat.kind, Example::Kind::messages);
  EXPECT_EQ(chat.messages.dump(), R"([{"role":"user","content":"a","b":1,"a":2}])");  // in order
}

TEST(Examples, APromptOfMessages) {
  const auto one = examples(
      R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant"}]})")
      [0];
  EXPECT_EQ(one.kind, Example::Kind::messages);
  EXPECT_EQ(one.messages.size(), 2u);
  EXPECT_EQ(one.first_of_completion, 1u);
}

TEST(Examples, ConversationsOfShareGptAreMessages) {
  const auto one = examples(
      R"([{"system": "s", "conversations": [{"from": "human", "value": "a"},
           {"from": "gpt", "value": "b", "weight": 0}, {"from": "tool", "value": "c"}],
           "tools": [1], "text": "not this"}])")[0];
  EXPECT_EQ(one.kind, Example::Kind::messages);
  EXPECT_EQ(one.messages.dump(),
            R"([{"role":"system","content":"s"},{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"b","weight":0},{"role":"tool","content":"c"}])");
  EXPECT_EQ(one.variables.dump(), R"({"tools":[1]})");
}

TEST(Examples, InstructionsOfAlpacaAreMessages) {
  const auto all = examples(
      R"([{"instruction": "a", "input": "", "output": "b", "text": "not this"},
          {"instruction": "c", "input": "d", "output": "e", "system": "s",
           "history": [["f", "g"]]}])");
  EXPECT_EQ(all[0].messages.dump(),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  EXPECT_EQ(all[1].messages.dump(),
            R"([{"role":"system","content":"s"},{"role":"user","content":"f"},)"
            R"({"role":"assistant","content":"g"},{"role":"user","content":"c\n\nd"},)"
            R"({"role":"assistant","content":"e"}])");
}

TEST(Examples, TwoAnswersToAPrompt) {
  const auto one = examples(R"({"prompt": "a", "chosen": "b", "rejected": "c"})")[0];
  EXPECT_EQ(one.kind, Example::Kind::prompt);
  ASSERT_EQ(one.rejected.size(), 1u);
  EXPECT_EQ(one.completion + one.rejected[0].text + one.rejected[0].completion, "bac");
  // Without a prompt it is what both begin with.
  const auto two = examples(
      R"([{"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
           "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}]}])")
      [0];
  EXPECT_EQ(two.first_of_completion, 1u);
  EXPECT_EQ(two.messages[1]["content"], "b");
  EXPECT_EQ(two.rejected[0].messages[1]["content"], "c");
  EXPECT_THAT(refusal(R"({"chosen": "a", "rejected": "b"})"), HasSubstr("chosen"));
}

TEST(Examples, AsOneText) {
  EXPECT_EQ(text_of(examples("{\"text\": \"a\"}")[0]), "a");
  EXPECT_EQ(text_of(examples(R"({"prompt": "a", "completion": "b"})")[0]), "ab");
  EXPECT_EQ(text_of(examples(R"({"messages": [{"role": "u", "content": "a"}, {"role": "t"}]})")[0]),
            "a\n");
}

TEST(Examples, WhatIsWrongIsSaidWithItsLine) {
  const std::string good = "{\"text\": \"a\"}\n";
  for (const auto& [line, part] : std::vector<std::pair<std::string, std::string>>{
           {"[1]", "expected an object"},
           {"7", "expected an object"},
           {"{\"text\": 7}", "text"},
           {"{\"text\": null}", "text"},
           {"{\"Text\": \"a\"}", "set dataset_text_field for another name), got \"Text\""},
           {"{}", "got nothing"},
           {"{\"prompt\": \"a\"}", "got \"prompt\""},
           {"{\"prompt\": \"a\", \"completion\": 3}", "completion"},
           {"{\"prompt\": \"a\", \"completion\": [{\"role\": \"user\"}]}", "completion"},
           {"{\"messages\": []}", "expected a list of messages, but it is empty"},
           {"{\"messages\": \"a\"}", "messages"},
           {"{\"messages\": [{\"content\": \"a\"}]}", "role"},
           {"{\"conversations\": []}", "expected a list of turns, but it is empty"},
           {"{\"conversations\": [{\"from\": \"gpt\"}]}", "value"},
           {"{\"conversations\": [{\"from\": \"x\", \"value\": \"\"}]}", "expected human, gpt"},
           {"{\"instruction\": 1, \"output\": \"a\"}", "instruction"},
           {"{\"instruction\": \"a\", \"output\": \"a\", \"history\": [[\"b\"]]}", "list of"},
           {"{\"text\": \"a\"", "JSON"},
           {"{\"text\": \"a\", \"text\": \"b\"}", "appears twice"},
           {"{\"text\": \"caf\xE9\"}", "UTF-8"},
           {"{\"prompt\": \"a\", \"completion\": \"b\"}", "but line 1 has a text"},
       }) {
    EXPECT_THAT(refusal(good + "\n" + line), StartsWith("a.jsonl: line 3")) << line;
    EXPECT_THAT(refusal(good + "\n" + line), HasSubstr(part)) << line;
  }
}

}  // namespace
}  // namespace focus
