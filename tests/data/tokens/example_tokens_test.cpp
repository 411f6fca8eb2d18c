#include <gmock/gmock.h>

#include "data/files/durable_file.h"
#include "data/tokens/tokenize.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr std::int32_t kEnd = 3;  // as a byte it is no letter

const Tokenizer& bytes() {
  static const auto tokenizer = load_tokenizer("bytes");
  return *tokenizer;
}

/// "role:content;" for each message, and where a turn is to begin "assistant:".
std::string plain_chat(const ChatPart& part) {
  std::string text;
  for (const auto& message : part.messages)
    text += message.at("role").get<std::string>() + ":" + message.at("content").get<std::string>() +
            ";";
  return text + (part.add_generation_prompt ? "assistant:" : "");
}

ExampleFormat format_of(RenderChat chat = &plain_chat) {
  return {.ends = {.prefix = {1}, .suffix = {2}}, .end = kEnd, .chat = std::move(chat)};
}

ExampleTokens tokens_of(const std::string& line, const ExampleFormat& format = format_of()) {
  ExampleTokens tokens;
  for_each_example(line, "a.jsonl", format.settings.dataset_text_field, [&](Example&& example) {
    tokens = focus::tokens_of(example, bytes(), format, "a.jsonl");
  });
  EXPECT_EQ(tokens.ids.size(), tokens.counts.size());
  return tokens;
}

/// The tokens that the loss is of, as text.
std::string learned(const ExampleTokens& tokens) {
  std::string text;
  for (std::size_t i = 0; i < tokens.ids.size(); ++i)
    if (tokens.counts[i] != 0) text += static_cast<char>(tokens.ids[i]);
  return text;
}
std::string all(const ExampleTokens& tokens) { return {tokens.ids.begin(), tokens.ids.end()}; }

TEST(ExampleTokens, ATextIsBetweenItsEndsAndLearnedWhole) {
  const ExampleTokens tokens = tokens_of(R"({"text": "abc"})");
  EXPECT_EQ(all(tokens), "\1abc\2");
  EXPECT_EQ(learned(tokens), "\1abc\2");
}

TEST(ExampleTokens, OfAPromptTheCompletionAndTheEndAreLearned) {
  ExampleFormat format = format_of();
  const std::string line = R"({"prompt": "Q:", "completion": " A"})";
  EXPECT_EQ(all(tokens_of(line, format)), "\1Q: A\3");
  EXPECT_EQ(learned(tokens_of(line, format)), " A\3");
  format.settings.completion_only_loss = false;
  EXPECT_EQ(learned(tokens_of(line, format)), "\1Q: A\3");
  format.settings.completion_only_loss = true;
  format.end = std::nullopt;
  EXPECT_EQ(learned(tokens_of(line, format)), " A");
  // One that is there is not put a second time.
  format.end = 'A';
  EXPECT_EQ(all(tokens_of(line, format)), "\1Q: A");
  EXPECT_EQ(learned(tokens_of(R"({"prompt": "Q", "completion": ""})")), "\3");
}

const std::string kChat =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},)"
    R"( {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})";

TEST(ExampleTokens, OfMessagesTheAssistantsTurnsAreLearned) {
  ExampleFormat format = format_of();
  EXPECT_EQ(all(tokens_of(kChat, format)), "user:a;assistant:b;user:c;assistant:d;");
  EXPECT_EQ(learned(tokens_of(kChat, format)), "b;d;");
  format.settings.assistant_only_loss = false;
  EXPECT_EQ(learned(tokens_of(kChat, format)), "user:a;assistant:b;user:c;assistant:d;");
  EXPECT_EQ(learned(tokens_of(R"({"messages": [{"role": "user", "content": "a"}]})")), "");
  EXPECT_FALSE(tokens_of(R"({"messages": [{"role": "user", "content": "a"}]})").trains());
}

TEST(ExampleTokens, OfAPromptOfMessagesTheCompletionsTurnsAreLearned) {
  EXPECT_EQ(
      learned(tokens_of(
          R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},)"
          R"( {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})")),
      "d;");
}

TEST(ExampleTokens, TemplatesThatWriteATurnOtherwiseLaterAreRefused) {
  // Only the last turn keeps its text, as where reasoning is taken out of earlier ones.
  const auto forgets = [](const ChatPart& part) {
    std::string text;
    for (std::size_t i = 0; i < part.messages.size(); ++i)
      text += part.messages[i].at("role").get<std::string>() +
              (i + 1 < part.messages.size() ? ";" : ":x;");
    return text + (part.add_generation_prompt ? "assistant" : "");
  };
  ExampleFormat format = format_of(forgets);
  EXPECT_THAT(error_of([&] { tokens_of(kChat, format); }),
              testing::AllOf(StartsWith("a.jsonl: line 1: the chat template renders message 1"),
                             HasSubstr("assistant_only_loss=false")));
  format.settings.assistant_only_loss = false;
  EXPECT_TRUE(tokens_of(kChat, format).trains());
}

TEST(ExampleTokens, ATemplateMayEndTheTextOnceOrOpenAThought) {
  // As Phi-3: the end of the text follows the last turn alone.
  const auto ends_once = [](const ChatPart& part) {
    return plain_chat(part) + (part.add_generation_prompt ? "" : "\3");
  };
  EXPECT_EQ(learned(tokens_of(kChat, format_of(ends_once))), "b;d;");
  // It is the turn's end where that has none of its own.
  const auto ends_only = [](const ChatPart& part) {
    std::string text;
    for (const auto& message : part.messages)
      text += message.at("role").get<std::string>()[0] + message.at("content").get<std::string>();
    return text + (part.add_generation_prompt ? "a" : "\3");
  };
  EXPECT_EQ(all(tokens_of(kChat, format_of(ends_only))), "uaabucad\3");
  EXPECT_EQ(learned(tokens_of(kChat, format_of(ends_only))), "bd\3");
  // As DeepSeek's distilled models: no past turn has what the prompt opens.
  const auto thinks = [](const ChatPart& part) {
    return plain_chat(part) + (part.add_generation_prompt ? "<think>" : "");
  };
  EXPECT_EQ(learned(tokens_of(kChat, format_of(thinks))), "b;d;");
  // One that refuses a prompt behind an answer.
  const auto refuses = [](const ChatPart& part) {
    if (part.add_generation_prompt && part.messages.back().at("role") == "assistant")
      throw std::runtime_error("no");
    return plain_chat(part);
  };
  EXPECT_EQ(learned(tokens_of(kChat, format_of(refuses))), "b;d;");
}

TEST(ExampleTokens, WhatTheTemplateMarksIsTheAssistants) {
  const auto marks = [](const ChatPart& part) {
    std::string text;
    for (const auto& message : part.messages) {
      text += message.at("role").get<std::string>().substr(0, 1);
      const std::size_t begin = text.size();
      text += message.at("content").get<std::string>();
      if (part.generated != nullptr && message.at("role") == "assistant")
        part.generated->emplace_back(begin, text.size());
    }
    return text + (part.add_generation_prompt ? "something else" : "");
  };
  EXPECT_EQ(all(tokens_of(kChat, format_of(marks))), "uaabucad");
  EXPECT_EQ(learned(tokens_of(kChat, format_of(marks))), "bd");
}

TEST(ExampleTokens, WhatADataSetMarksAsNotToBeLearnedIsNot) {
  for (const char* mark : {R"("weight": 0)", R"("train": false)", R"("training": false)",
                           R"("loss": false)", R"("weight": 0.0)"}) {
    std::string line = kChat;
    line.insert(line.find(R"("content": "b")"), std::string(mark) + ", ");
    ExampleFormat format = format_of();
    EXPECT_EQ(learned(tokens_of(line, format)), "d;") << mark;
    format.settings.assistant_only_loss = false;
    EXPECT_EQ(learned(tokens_of(line, format)), "user:a;assistant:user:c;assistant:d;") << mark;
  }
  std::string half = kChat;
  half.insert(half.find(R"("content": "b")"), R"("weight": 0.5, )");
  EXPECT_THAT(error_of([&] { tokens_of(half); }),
              StartsWith("a.jsonl: line 1: \"weight\" of a message is 0.5"));
  // A prompt of messages, though all turns count.
  ExampleFormat format = format_of();
  format.settings.assistant_only_loss = false;
  const std::string line = R"({"prompt": [{"role": "user", "content": "a"}],)"
                           R"( "completion": [{"role": "assistant", "content": "d"}]})";
  EXPECT_EQ(learned(tokens_of(line, format)), "d;");
}

TEST(ExampleTokens, TheTemplateGetsWhatALineSaysBesideItsMessages) {
  nlohmann::ordered_json seen;
  const auto format = format_of([&](const ChatPart& part) {
    seen = part.variables;
    return plain_chat(part);
  });
  std::string line = kChat;
  line.insert(1, R"("tools": [{"name": "f"}], "documents": null, "id": 7,)"
                 R"( "chat_template_kwargs": {"a": 12345678901234567890123}, )");
  tokens_of(line, format);
  EXPECT_EQ(seen["tools"].dump(), R"([{"name":"f"}])");
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_TRUE(seen["chat_template_kwargs"]["a"].is_binary());  // its digits
}

TEST(ExampleTokens, WhatCannotBeAnsweredIsRefused) {
  EXPECT_THAT(error_of([] { tokens_of(kChat, format_of(nullptr)); }), HasSubstr("chat template"));
}

TEST(ExampleTokens, AConversationMayBeginWithTheAssistant) {
  const std::string line =
      R"({"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"},)"
      R"( {"role": "assistant", "content": "c"}]})";
  EXPECT_EQ(learned(tokens_of(line)), "a;c;");
  // Where the template writes no message alone, or more before the first, the content says it.
  const auto needs_messages = [](const ChatPart& part) {
    if (part.messages.empty()) throw std::runtime_error("no message");
    return plain_chat(part);
  };
  const auto says_more = [](const ChatPart& part) {
    return (part.messages.empty() ? "" : "system:hello;") + plain_chat(part);
  };
  for (const RenderChat& chat : {RenderChat(needs_messages), RenderChat(says_more)})
    EXPECT_EQ(learned(tokens_of(line, format_of(chat))), "a;c;");
  const std::string empty = R"({"messages": [{"role": "assistant", "content": " "}]})";
  EXPECT_THAT(error_of([&] { tokens_of(empty, format_of(says_more)); }),
              HasSubstr("the first message is the assistant's and has no text"));
  // Marks say it.
  const auto marks = [](const ChatPart& part) {
    const std::string text = plain_chat({.messages = part.messages});
    if (part.generated != nullptr) *part.generated = {{10, 12}, {29, 31}};
    return text;
  };
  EXPECT_EQ(learned(tokens_of(line, format_of(marks))), "a;c;");
}

TEST(ExampleTokens, TheFirstTokenAloneTrainsNothing) {
  EXPECT_FALSE((ExampleTokens{.ids = {1, 2}, .counts = {1, 0}}.trains()));
  EXPECT_TRUE((ExampleTokens{.ids = {1, 2}, .counts = {0, 1}}.trains()));
  EXPECT_FALSE(ExampleTokens{}.trains());
}

using namespace std::string_view_literals;

TEST(ExampleTokens, PreferencesAreTwoDocumentsOfEachRecord) {
  const TempFolder folder;
  write_file_durably(folder / "pairs.jsonl",
                     R"({"prompt": "ab", "chosen": "c", "rejected": "de"})"sv);
  write_file_durably(folder / "plain.jsonl", R"({"prompt": "ab", "completion": "c"})"sv);
  write_file_durably(folder / "plain.txt", "ab"sv);
  const auto tokenizer = load_tokenizer("bytes");
  TokenizeOptions options{.cache_dir = folder / "cache"};
  const auto tokens = [&](const char* name) {
    const std::filesystem::path path = folder / name;
    return tokenize_cached(std::span(&path, 1), *tokenizer, options);
  };
  EXPECT_THAT(error_of([&] { tokens("pairs.jsonl"); }), HasSubstr("are for objective dpo"));
  tokens("plain.jsonl");  // in the cache now
  options.preferences = true;
  const TokenFile pairs = tokens("pairs.jsonl");
  ASSERT_EQ(pairs.num_documents(), 2);
  EXPECT_EQ(pairs.size(), 3 + 4);
  EXPECT_TRUE(!pairs.counts(1) && pairs.counts(2) && !pairs.counts(4) && pairs.counts(5));
  for (const char* name : {"plain.jsonl", "plain.txt"})
    EXPECT_THAT(error_of([&] { tokens(name); }), HasSubstr("objective dpo needs")) << name;
}

}  // namespace
}  // namespace focus
