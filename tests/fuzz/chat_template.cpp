#include "data/chat/chat_template.h"

#include "tests/fuzz/harness.h"

/// A chat template and, after a NUL byte, messages; after another, tokenizer_config.json.
void focus::fuzz::try_input(std::string_view input) {
  const auto parts = split_input<3>(input);
  const std::string &source = parts[0], &messages = parts[1], &config = parts[2];
  // Small, so that a rendering takes milliseconds and stays within the memory that is watched.
  const jinja::Limits limits{
      .source = std::size_t{1} << 16, .steps = 50000, .bytes = 500000, .output = 100000};
  const auto run = [&] {
    const ChatTemplate chat(source, "template", limits);
    ChatVariables variables;
    variables.now.emplace();
    variables.special_tokens =
        chat_special_tokens({{"tokenizer_config.json", config.empty() ? "{}" : config}}, "model");
    const auto list = parse_messages(
        messages.empty() ? R"([{"role": "user", "content": "Hi"}])" : messages, "messages");
    const std::string text = chat.render(list, variables);
    if (text.size() > limits.output) report("more is written than the limit");
    if (chat.render(list, variables) != text) report("another text the second time");
  };
  // Each node of the tree needs two bytes of the template.
  run_loader(8 * input.size(), run, {"template:", "messages:", "model/"});
}
