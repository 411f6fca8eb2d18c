#include "tests/support/cli.h"

// Chat: the prompt that a model's own template makes, what continues it, and what is refused.
namespace focus {
namespace {

const std::string kTemplate =
    "{% for m in messages %}{{ '[' + m.role + '] ' + m.content|trim + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}";

/// A model of the golden ones with a tokenizer of printable ASCII and, where given, side files.
std::string chat_model(const std::map<std::string, std::string>& files) {
  const std::string folder = cli().fresh("model");
  fs::copy(std::string(FOCUS_SOURCE_DIR) + "/tests/golden/arch/gpt2", folder);
  fs::copy_file(cli().ascii_tokenizer(), folder + "/tokenizer.json");
  for (const auto& [name, text] : files) write_text(folder + "/" + name, text);
  return folder;
}

std::string template_config(const nlohmann::json& chat_template) {
  return nlohmann::json{{"chat_template", chat_template}}.dump();
}

Words chat(const std::string& model, const Words& more) {
  return Words{"generate", model, "--chat", "--max-new-tokens", "5"} + more;
}

std::string shown_prompt(const std::string& model, const Words& more) {
  return cli().must_run(chat(model, more + Words{"--show-prompt"})).out;
}

TEST(CliGenerateChat, TheConversationGoesThroughTheTemplate) {
  const std::string model = chat_model({{"chat_template.jinja", kTemplate}});
  const std::string user = "[user] Hi\n[assistant]";
  EXPECT_EQ(shown_prompt(model, {"--prompt", " Hi "}), user);
  EXPECT_EQ(shown_prompt(model, {"--prompt", "Hi", "--system", "Be brief."}),
            "[system] Be brief.\n" + user);
  const std::string prompt = cli().fresh("prompt.txt"), list = cli().fresh("messages.json"),
                    lines = cli().fresh("messages.jsonl");
  write_text(prompt, "Hi\n");
  EXPECT_EQ(shown_prompt(model, {"--prompt-file", prompt}), user);
  write_text(list, R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                       {"role": "user", "content": "Hi"}])");
  write_text(lines, R"({"role": "user", "content": "a"}
{"role": "assistant", "content": "b"}

{"role": "user", "content": "Hi"}
)");
  for (const std::string& messages : {list, lines})
    EXPECT_EQ(shown_prompt(model, {"--messages", messages}), "[user] a\n[assistant] b\n" + user);
}

TEST(CliGenerateChat, TheTokensAreTheTemplatesAlone) {
  // The config names a BOS, which goes before a prompt where it is asked for, but not before a
  // template's: that writes its own.
  const std::string model = chat_model({{"chat_template.jinja", kTemplate}});
  const auto json = cli().figures(chat(model, {"--prompt", "Hi"}));
  EXPECT_EQ(json.at("prompt"), "[user] Hi\n[assistant]");
  EXPECT_EQ(json.at("prompt_tokens"), json.at("prompt").get<std::string>().size());
  EXPECT_LE(json.at("new_tokens"), 5);
  // The same ids without --chat, where nothing is put before the prompt.
  auto config = nlohmann::json::parse(read_text(model + "/config.json"));
  config["bos_token_id"] = nullptr;
  write_text(model + "/config.json", config.dump());
  const auto plain = cli().figures(
      {"generate", model, "--prompt", "[user] Hi\n[assistant]", "--max-new-tokens", "5"});
  EXPECT_EQ(plain.at("ids"), json.at("ids"));
  EXPECT_TRUE(plain.at("prompt").is_null());
}

TEST(CliGenerateChat, TheTemplateIsFoundAndChosen) {
  const std::string named =
      chat_model({{"tokenizer_config.json",
                   template_config({{{"name", "default"}, {"template", "default"}},
                                    {{"name", "tool_use"}, {"template", "tools"}}})}});
  EXPECT_EQ(shown_prompt(named, {"--prompt", "x"}), "default");
  EXPECT_EQ(shown_prompt(named, {"--prompt", "x", "--chat-template", "tool_use"}), "tools");
  const std::string file = cli().fresh("other.jinja");
  write_text(file, "{{ bos_token }}{{ messages[0].content }}");
  EXPECT_EQ(shown_prompt(named, {"--prompt", "x", "--chat-template", file}), "x");
  auto config = nlohmann::json::parse(template_config("{{ bos_token }}{{ eos_token }}"));
  config["bos_token"] = {{"content", "b"}};
  config["eos_token"] = "e";
  const std::string tokens = chat_model({{"tokenizer_config.json", config.dump()}});
  EXPECT_EQ(shown_prompt(tokens, {"--prompt", "x"}), "be");
  expect_refused(chat(named, {"--prompt", "x", "--chat-template", "rag"}),
                 {"'rag'", "default, tool_use"});
  expect_refused(chat(named, {"--prompt", "x", "--chat-template", "missing.jinja"}),
                 {"missing.jinja"});
}

TEST(CliGenerateChat, AStoreKeepsTheTemplate) {
  const std::string model = chat_model({{"chat_template.jinja", kTemplate}});
  const std::string store = cli().fresh("model.h5");
  cli().must_run({"import", model, "--out", store});
  EXPECT_EQ(shown_prompt(store, {"--prompt", "Hi"}), "[user] Hi\n[assistant]");
}

TEST(CliGenerateChat, WhatIsRefused) {
  const std::string none = chat_model({});
  expect_refused(chat(none, {"--prompt", "x"}), {none, "no chat template", "--chat-template"});
  const std::string model = chat_model({{"chat_template.jinja", "a\n{% include 'x' %}"}});
  expect_refused(chat(model, {"--prompt", "x"}),
                 {"chat_template.jinja: line 2", "'include' is not supported"});
  const std::string raises = chat_model(
      {{"chat_template.jinja", "{{ raise_exception('only ' ~ messages|length ~ ' turns') }}"}});
  expect_refused(chat(raises, {"--prompt", "x"}), {"refuses these messages: only 1 turns"});
  const std::string bad = cli().fresh("bad.jsonl");
  write_text(bad, "{\"role\": \"user\"}\nnot JSON\n");
  expect_refused(chat(raises, {"--messages", bad}), {bad, "line 2"});
  write_text(bad, "{\"content\": \"x\"}\n");
  expect_refused(chat(raises, {"--messages", bad}), {bad, "\"role\""});
  const std::string empty = chat_model({{"chat_template.jinja", "{# nothing #}"}});
  expect_refused(chat(empty, {"--prompt", "x"}), {"prompt"});
}

TEST(CliGenerateChat, OptionsThatDoNotGoTogether) {
  const std::string model = chat_model({{"chat_template.jinja", kTemplate}});
  for (const Words& wrong :
       {Words{"--prompt", "x", "--system", "y"}, Words{"--prompt", "x", "--show-prompt"},
        Words{"--chat"}, Words{"--chat", "--system", "y"},
        Words{"--chat", "--messages", "x", "--prompt", "y"},
        Words{"--chat", "--messages", "x", "--system", "y"}}) {
    const ProcessResult result = cli().run(Words{"generate", model} + wrong);
    EXPECT_EQ(result.status, 2) << testing::PrintToString(wrong) << result.err;
    EXPECT_TRUE(contains(result.err, "--")) << result.err;
  }
}

}  // namespace
}  // namespace focus
