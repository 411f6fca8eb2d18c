#include "data/text/examples.h"

#include <string_view>

#include "data/files/utf8.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokens/tokenize.h"
#include "tests/fuzz/harness.h"

/// JSONL to train on: what is read must be fit to be tokenized, and the loss be of tokens that are
/// there. The chat template is one that writes what messages hold.
void focus::fuzz::try_input(std::string_view input) {
  static const auto tokenizer = load_tokenizer("bytes");
  ExampleFormat format{.end = 10};
  format.chat = [](const ChatPart& part) {
    std::string rendered;
    for (const auto& message : part.messages)
      rendered += message.at("role").get<std::string>() + ":" +
                  (message.contains("content") && message["content"].is_string()
                       ? message["content"].get<std::string>()
                       : "") +
                  "\n";
    return rendered + (part.add_generation_prompt ? "assistant:" : "");
  };
  std::size_t last = 0;
  const auto load = [&] {
    for_each_example(input, "a.jsonl", "text", [&](Example&& example) {
      if (example.line <= last) report("lines that do not rise");
      last = example.line;
      for (const std::string* part : {&example.text, &example.completion})
        if (!is_valid_utf8(*part)) report("a text that is not UTF-8");
      const ExampleTokens tokens = tokens_of(example, *tokenizer, format, "a.jsonl");
      if (tokens.ids.size() != tokens.counts.size()) report("tokens that nothing is said of");
    });
  };
  run_loader(input.size(), load, {"a.jsonl: "});
}
