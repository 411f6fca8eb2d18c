#include "data/chat/chat_template.h"

#include <gmock/gmock.h>

#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

const Json kHello = Json::array({{{"role", "user"}, {"content", "Hello"}}});

std::string find_and_render(const ChatFiles& files, const std::string& name = "") {
  return find_chat_template(files, name, "model").render(kHello, {});
}

TEST(ChatTemplate, TheFileStandsBeforeTheConfig) {
  const ChatFiles both = {{"chat_template.jinja", "file"},
                          {"tokenizer_config.json", R"({"chat_template": "config"})"}};
  EXPECT_EQ(find_and_render(both), "file");
  EXPECT_EQ(find_and_render({{"tokenizer_config.json", R"({"chat_template": "config"})"}}),
            "config");
}

TEST(ChatTemplate, NamedOnes) {
  const ChatFiles files = {{"tokenizer_config.json",
                            R"({"chat_template": [{"name": "default", "template": "d"},
                                {"name": "tool_use", "template": "t"}]})"}};
  EXPECT_EQ(find_and_render(files), "d");
  EXPECT_EQ(find_and_render(files, "tool_use"), "t");
  EXPECT_EQ(error_of([&] { find_and_render(files, "rag"); }),
            "model/tokenizer_config.json: no chat template is named 'rag'; "
            "--chat-template takes one of: default, tool_use");
}

TEST(ChatTemplate, AModelWithoutOneSaysWhatToDo) {
  for (const ChatFiles& files :
       {ChatFiles{}, ChatFiles{{"tokenizer_config.json", "{}"}},
        ChatFiles{{"tokenizer_config.json", R"({"chat_template": null})"}}})
    EXPECT_THAT(error_of([&] { find_and_render(files); }),
                testing::AllOf(HasSubstr("model: it has no chat template"),
                               HasSubstr("--chat-template FILE.jinja")));
  const auto error = [](const char* name, const char* text, const char* wanted = "") {
    return error_of([&] { find_and_render({{name, text}}, wanted); });
  };
  EXPECT_THAT(error("tokenizer_config.json", "[]"),
              HasSubstr("model/tokenizer_config.json: expected an object"));
  EXPECT_THAT(error("tokenizer_config.json", R"({"chat_template": 3})"),
              HasSubstr("chat_template: expected a string"));
  EXPECT_THAT(error("chat_template.jinja", "x", "tool_use"), HasSubstr("--chat-template tool_use"));
}

TEST(ChatTemplate, SpecialTokensAsTextsAndObjects) {
  const ChatFiles files = {
      {"tokenizer_config.json",
       R"({"bos_token": {"content": "<b>", "lstrip": false}, "eos_token": "<e>", "pad_token": null,
           "image_token": "<i>", "add_bos_token": true})"},
      {"special_tokens_map.json", R"({"eos_token": "<map>", "unk_token": {"content": "<u>"}})"}};
  const std::map<std::string, std::string> expected = {
      {"bos_token", "<b>"}, {"eos_token", "<map>"}, {"image_token", "<i>"}, {"unk_token", "<u>"}};
  EXPECT_EQ(chat_special_tokens(files, "model"), expected);
  // A config that lists its tokens makes the older file void, as in transformers.
  ChatFiles newer = files;
  newer["tokenizer_config.json"] = R"({"eos_token": "<e>", "added_tokens_decoder": {}})";
  EXPECT_EQ(chat_special_tokens(newer, "model"),
            (std::map<std::string, std::string>{{"eos_token", "<e>"}}));
  EXPECT_TRUE(chat_special_tokens({}, "model").empty());
}

TEST(ChatTemplate, SpecialTokensOfTheClassAndByName) {
  const auto tokens = [](const char* config) {
    return chat_special_tokens({{"tokenizer_config.json", config}}, "model");
  };
  EXPECT_EQ(tokens(R"({"tokenizer_class": "Qwen2TokenizerFast"})")["eos_token"], "<|endoftext|>");
  EXPECT_FALSE(tokens(R"({"tokenizer_class": "Qwen2Tokenizer"})").contains("bos_token"));
  EXPECT_FALSE(
      tokens(R"({"tokenizer_class": "GPT2Tokenizer", "eos_token": null})").contains("eos_token"));
  EXPECT_EQ(tokens(R"({"extra_special_tokens": {"image": "<i>"}})")["image"], "<i>");
}

TEST(ChatTemplate, VariablesOfARecordAndOfWords) {
  const ChatTemplate chat("{{ tools|length }}{{ a }}{{ enable_thinking is false }}{{ lang }}", "t");
  ChatVariables variables;
  variables.take({{"tools", "[1, 2]"}, {"chat_template_kwargs", {{"a", 7}}}}, "line");
  variables.take_word("enable_thinking=false", "w");
  variables.take_word("lang=German", "w");
  EXPECT_EQ(chat.render(kHello, variables), "27TrueGerman");
  EXPECT_THAT(error_of([&] {
                variables.take({{"tools", 3}}, "line");
              }),
              HasSubstr("line: \"tools\""));
  EXPECT_THAT(error_of([&] { variables.take_word("a", "w"); }), HasSubstr("w: expected KEY=VALUE"));
  EXPECT_THAT(error_of([&] { parse_tools("{}", "f"); }), HasSubstr("f: expected a list of tools"));
}

TEST(ChatTemplate, WhatIsNullIsAbsent) {
  const ChatTemplate chat(
      "{% for m in messages %}{{ m.content is defined }}{{ m.thinking }}{% endfor %}", "t");
  EXPECT_EQ(chat.render(Json::array({{{"role", "user"}, {"content", nullptr}},
                                     {{"role", "assistant"}, {"reasoning", "hm"}}}),
                        {}),
            "FalseFalsehm");
}

TEST(ChatTemplate, MessagesAreAListOrLines) {
  const Json list = parse_messages(R"([{"role": "user", "content": "a"}])", "m.json");
  const Json lines = parse_messages(
      "{\"role\": \"user\", \"content\": \"a\"}\r\n\n{\"role\": \"assistant\", \"z\": 1, \"a\": 2}",
      "m.jsonl");
  ASSERT_EQ(list.size(), 1u);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(list[0], lines[0]);
  EXPECT_EQ(lines[1].dump(), R"({"role":"assistant","z":1,"a":2})");  // the order of the file
  for (const auto& [text, part] : {std::pair{"", "m: it holds no messages"},
                                   {" \n", "it holds no messages"},
                                   {"[]", "it holds no messages"},
                                   {"{}", "each message is an object with \"role\""},
                                   {"[1]", "one is 1"},
                                   {"{\"role\": 3}", "one is"},
                                   {"hello", "m: line 1: not valid JSON"},
                                   {"{\"role\": \"a\"}\n{", "m: line 2: not valid JSON"},
                                   {"{\"role\": \"a\", \"role\": \"b\"}", "twice"}})
    EXPECT_THAT(error_of([&] { parse_messages(text, "m"); }), HasSubstr(part)) << text;
}

TEST(ChatTemplate, NoMessages) {
  const ChatTemplate chat("x", "t");
  EXPECT_EQ(error_of([&] { chat.render(Json::array(), {}); }),
            "t: there are no messages to render");
  EXPECT_EQ(error_of([&] { chat.render(Json::array({1}), {}); }),
            "t: a message is number, not an object");
}

}  // namespace
}  // namespace focus
