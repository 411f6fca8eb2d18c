#include "data/chat/chat_template.h"
#include "data/files/input_file.h"
#include "data/text/text.h"
#include "focus/models/model_files.h"

namespace focus {
namespace {

/// The day that templates see: a run that is resumed tomorrow has the same tokens. It is
/// what templates of Llama 3.2 write that are not told one.
std::tm fixed_day() {
  std::tm day{};
  day.tm_year = 2024 - 1900;
  day.tm_mon = 6;
  day.tm_mday = 26;
  day.tm_wday = 5;
  day.tm_yday = 207;
  return day;
}

ChatTemplate template_of(const SideFiles& files, const std::string& path,
                         const std::string& where) {
  if (!path.empty()) return ChatTemplate(read_file(path), path);
  return find_chat_template(files, "", where);
}

}  // namespace

ExampleFormat example_format(const LoadedModel& model, const ExampleSettings& settings) {
  const std::string& path = settings.chat_template_path;
  Checksum identity;
  if (!path.empty()) identity.update(read_file(path));
  ChatVariables common;
  common.now = fixed_day();
  if (!settings.tools.empty())
    common.tools = parse_tools(read_text_file(settings.tools), settings.tools);
  for (const std::string& word : settings.template_values) common.take_word(word, "template");
  identity.update(fmt::format("{} {}\n", common.tools.dump(), common.others.dump()));
  for (const auto& [name, bytes] : model.chat_files())
    if (name != "tokenizer.model" && name != "vocab.json" && name != "merges.txt")
      identity.update(fmt::format("{} {}\n", name, bytes));
  // Read when the first messages come: models that have none can train on anything else.
  const auto chat = std::make_shared<std::unique_ptr<ChatTemplate>>();
  return {.settings = settings,
          .ends = model.text_ends(),
          .end = model.document_end(),
          .chat =
              [=, files = model.chat_files(), where = model.chat_where()](const ChatPart& part) {
                if (!*chat) *chat = std::make_unique<ChatTemplate>(template_of(files, path, where));
                ChatVariables variables = common;
                variables.special_tokens = chat_special_tokens(files, where);
                variables.add_generation_prompt = part.add_generation_prompt;
                variables.take(part.variables, "a line of messages");
                return (*chat)->render(part.messages, variables, part.generated);
              },
          .chat_identity = identity.hex()};
}

}  // namespace focus
