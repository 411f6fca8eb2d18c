#include "apps/chat.h"

#include <filesystem>

#include "data/chat/chat_template.h"
#include "data/files/read_file.h"
#include "data/text/text.h"

namespace focus::app {
namespace {

using Json = nlohmann::ordered_json;

Json conversation(const ChatOptions& options, const std::string& prompt) {
  Json messages = Json::array();
  if (!options.messages.empty())
    messages = parse_messages(read_prompt_file(options.messages), options.messages);
  else
    messages.push_back(
        {{"role", "user"}, {"content", options.user.empty() ? prompt : options.user}});
  if (!options.system.empty())
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", options.system}});
  return messages;
}

ChatTemplate template_of(const ChatOptions& options, const LoadedModel& model) {
  const std::filesystem::path path = options.chat_template;
  if (path.extension() == ".jinja" || is_regular_file(path))
    return ChatTemplate(read_file(path), options.chat_template);
  return find_chat_template(model.side_files(), options.chat_template, model.where);
}

}  // namespace

void ChatOptions::add_to(CLI::App& app, CLI::Option_group& prompt) {
  CLI::Option* const asked =
      app.add_flag("--chat", chat,
                   "answer as the assistant in a conversation: --prompt is the user's message, and "
                   "the model's chat template renders the prompt");
  prompt.add_option("--user", user, "the user's message")->needs(asked);
  CLI::Option* const file =
      prompt
          .add_option(
              "--messages", messages,
              "file of messages {\"role\": ..., \"content\": ...}: JSON lines or one JSON list")
          ->needs(asked);
  app.add_option("--system", system, "system message, before the user's message")
      ->needs(asked)
      ->excludes(file);
  app.add_option("--chat-template", chat_template,
                 "a .jinja file, or the name of one of the model's templates if it has several")
      ->needs(asked);
  app.add_flag("--show-prompt", show_prompt, "print the rendered prompt and do not generate")
      ->needs(asked);
}

std::string chat_prompt(const ChatOptions& options, const std::string& prompt,
                        const LoadedModel& model) {
  ChatVariables variables;
  variables.special_tokens = chat_special_tokens(model.side_files(), model.where);
  return template_of(options, model).render(conversation(options, prompt), variables);
}

}  // namespace focus::app
