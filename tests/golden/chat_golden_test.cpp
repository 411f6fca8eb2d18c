// Chat templates as transformers renders them, and small templates as Jinja does.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "data/chat/chat_template.h"
#include "data/files/input_file.h"
#include "tests/support/golden_folders.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> read_rows(const std::string& name) {
  std::istringstream lines(read_file(golden_folder() / "chat" / name));
  std::vector<Json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(Json::parse(line));
  return rows;
}

/// What the files hold by its name: templates, conversations, options.
struct Chats {
  std::map<std::string, ChatTemplate> templates;
  std::map<std::string, Json> chats, options;
  ChatVariables variables;
};

ChatVariables with_options(ChatVariables variables, const Json& options) {
  for (const auto& [key, value] : options.items()) {
    if (key == "add_generation_prompt")
      variables.add_generation_prompt = value.get<bool>();
    else if (key == "tools")
      variables.tools = value;
    else if (key == "documents")
      variables.documents = value;
    else
      variables.others[key] = value;
  }
  return variables;
}

/// Takes a line that is no case. False where it is one.
bool take_definition(const Json& row, Chats& all) {
  if (row.contains("special_tokens")) {
    for (const auto& [name, text] : row["special_tokens"].items())
      all.variables.special_tokens[name] = text.get<std::string>();
    all.variables.now.emplace();
    std::istringstream(row["now"].get<std::string>()) >>
        std::get_time(&*all.variables.now, "%Y-%m-%d %H:%M:%S");
    return true;
  }
  if (!row.contains("name")) return false;
  const auto name = row["name"].get<std::string>();
  if (row.contains("template"))
    all.templates.emplace(name, ChatTemplate(row["template"].get<std::string>(), name));
  if (row.contains("chat")) all.chats[name] = row["chat"];
  if (row.contains("options")) all.options[name] = row["options"];
  return true;
}

void expect_case(const Json& row, const Chats& all) {
  SCOPED_TRACE(row["family"].dump() + " " + row["messages"].dump() + " " + row["with"].dump());
  const ChatTemplate& chat = all.templates.at(row["family"].get<std::string>());
  const Json& messages = all.chats.at(row["messages"].get<std::string>());
  const ChatVariables variables =
      with_options(all.variables, all.options.at(row["with"].get<std::string>()));
  try {
    const std::string text = chat.render(messages, variables);
    EXPECT_EQ(text, row.value("expected", "an error: " + row.value("error", "")));
  } catch (const std::runtime_error& error) {
    EXPECT_TRUE(row.contains("error")) << error.what() << "\nexpected " << row["expected"];
    if (!row.contains("error")) return;
    EXPECT_NE(std::string(error.what()).find(row["error"].get<std::string>()), std::string::npos)
        << error.what();
  }
}

TEST(GoldenChat, EveryConversation) {
  Chats all;
  int cases = 0;
  for (const Json& row : read_rows("chats.jsonl"))
    if (!take_definition(row, all)) {
      expect_case(row, all);
      ++cases;
    }
  EXPECT_GE(all.templates.size(), 12u);
  EXPECT_GT(cases, 500);
}

TEST(GoldenChat, EveryExpression) {
  const std::vector<Json> rows = read_rows("expressions.jsonl");
  ASSERT_GT(rows.size(), 1000u);
  const Json& variables = rows[0].at("variables");
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto source = rows[i].at("template").get<std::string>();
    const Json& expected = rows[i].at("expected");
    std::string text;
    try {
      text = jinja::Template(source, "case").render(variables);
    } catch (const std::runtime_error& error) {
      EXPECT_TRUE(expected.is_null()) << source << "\n" << error.what() << "\n" << expected;
      continue;
    }
    if (expected.is_null())
      ADD_FAILURE() << source << "\ngives " << text << ", not an error";
    else
      EXPECT_EQ(text, expected.get<std::string>()) << source;
  }
}

}  // namespace
}  // namespace focus
