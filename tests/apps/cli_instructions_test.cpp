#include "tests/support/cli.h"

// Training and evaluating on JSONL as its users do.
namespace focus {
namespace {

std::string jsonl(const std::string& name, const std::vector<nlohmann::ordered_json>& lines) {
  const std::string path = cli().fresh(name);
  std::string text;
  for (const auto& line : lines) text += line.dump() + "\n";
  write_text(path, text);
  return path;
}

std::string prompts(const std::string& name = "prompts.jsonl") {
  std::vector<nlohmann::ordered_json> lines;
  for (int i = 0; i < 40; ++i)
    lines.push_back({{"prompt", fmt::format("What is {} plus {}? ", i, i)},
                     {"completion", std::to_string(2 * i)}});
  return jsonl(name, lines);
}

std::string chats() {
  std::vector<nlohmann::ordered_json> lines;
  for (int i = 0; i < 20; ++i)
    lines.push_back({{"messages",
                      {{{"role", "user"}, {"content", fmt::format("What is {}?", i)}},
                       {{"role", "assistant"}, {"content", "A number."}},
                       {{"role", "user"}, {"content", "Sure?"}},
                       {{"role", "assistant"}, {"content", "Yes."}}}}});
  return jsonl("chats.jsonl", lines);
}

std::string chat_template() {
  const std::string path = cli().fresh("chat.jinja");
  write_text(path,
             "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"
             "{% if add_generation_prompt %}assistant: {% endif %}");
  return path;
}

Words lora(const std::string& train, const Words& more) {
  return Words{"train",
               "method=lora",
               "base=" + cli().base(),
               "data.train=" + train,
               "data.valid=" + train,
               "data.context=64",
               "data.batch=2",
               "steps=4",
               "optim.warmup_steps=1",
               "eval_every=0",
               "checkpoint_every=2"} +
         more;
}

double perplexity(const Words& arguments) {
  return cli().figures(arguments)["rows"][0]["perplexity"].get<double>();
}

TEST(CliInstructions, ALoraLearnsAnswersAndEvalScoresThemAlike) {
  const std::string file = prompts(), out = cli().fresh("run");
  cli().must_run(lora(file, {"out=" + out, "eval_windows=1000"}));
  double last = 0;
  for (const std::string& line : lines_of(read_text(out + "/metrics.jsonl")))
    if (const auto record = nlohmann::json::parse(line); record.contains("valid_perplexity"))
      last = record["valid_perplexity"].get<double>();
  EXPECT_NEAR(perplexity({"eval", cli().base(), "--adapter", out, "--text", file, "--context", "64",
                          "--attention", "dense"}),
              last, 1e-3 * last);
  // The prompts' tokens are others.
  EXPECT_GT(
      std::abs(perplexity({"eval", cli().base(), "--adapter", out, "--text", file, "--context",
                           "64", "--attention", "dense", "--completion-only-loss", "false"}) -
               last),
      0.01 * last);
}

TEST(CliInstructions, AStoppedRunGoesOnWithTheSameBits) {
  const std::string file = prompts(), whole = cli().fresh("whole"), parts = cli().fresh("parts");
  cli().must_run(lora(file, {"out=" + whole}));
  cli().must_run(lora(file, {"out=" + parts, "checkpoint_keep=9"}));
  fs::remove(parts + "/lora.h5");
  for (const auto& entry : fs::directory_iterator(parts + "/checkpoints"))
    if (contains(entry.path().string(), "4")) fs::remove(entry.path());
  cli().must_run(lora(file, {"out=" + parts, "checkpoint_keep=9", "--resume"}));
  EXPECT_EQ(read_text(whole + "/adapter_model.safetensors"),
            read_text(parts + "/adapter_model.safetensors"));
}

TEST(CliInstructions, ConversationsGoThroughTheChatTemplate) {
  const std::string file = chats(), out = cli().fresh("run");
  const std::string path = "data.chat_template_path=" + chat_template();
  cli().must_run(lora(file, {"out=" + out, path}));
  expect_refused(lora(file, {"out=" + cli().fresh("none")}),
                 {"no chat template", "data.chat_template_path"});
}

TEST(CliInstructions, TextsOfJsonlAreDocuments) {
  std::vector<nlohmann::ordered_json> lines;
  for (int i = 0; i < 40; ++i)
    lines.push_back({{"content", fmt::format("Once upon a time {}.", i)}});
  const std::string file = jsonl("texts.jsonl", lines);
  for (const char* packing : {"wrapped", "documents", "none"})
    cli().must_run(lora(file, {"out=" + cli().fresh("run"), std::string("data.packing=") + packing,
                               "data.dataset_text_field=content"}));
  EXPECT_GT(perplexity({"eval", cli().base(), "--text", file, "--dataset-text-field", "content",
                        "--attention", "dense"}),
            1);
}

TEST(CliInstructions, FitTakesThem) {
  cli().must_run({"fit", cli().base(), "--text", prompts(), "--num-groups", "4", "--tokens", "256",
                  "--context", "64", "--out", cli().fresh("keys.h5")});
}

TEST(CliInstructions, WhatIsWrongIsSaidBeforeAnythingIsWritten) {
  const std::string out = cli().fresh("run");
  const auto refused = [&](const std::string& bytes, const Words& parts) {
    const std::string path = cli().fresh("bad.jsonl");
    write_text(path, bytes);
    expect_refused(lora(path, {"out=" + out}), Words{path} + parts);
    expect_refused({"eval", cli().base(), "--text", path}, Words{path} + parts);
    EXPECT_FALSE(fs::exists(out));
  };
  refused("{\"prompt\": \"a\", \"completion\": \"b\"}\nOnce\n", {"line 2"});
  refused("{\"instruction\": \"a\", \"output\": \"b\"}\n", {"line 1", "instruction"});
  refused("{\"text\": \"a\"}\n{\"messages\": [{\"role\": \"user\"}]}\n", {"line 2", "line 1"});
  refused(std::string(100, '\0'), {"UTF-16"});
  expect_refused(lora(prompts(), {"out=" + out, "data.packing=wrapped"}),
                 {"data.packing wrapped", "documents"});
  expect_refused(lora(prompts(), {"out=" + out, "data.packing=packed"}),
                 {"data.packing", "wrapped"});
  expect_refused(lora(prompts(), {"out=" + out, "data.context=8"}), {"8"});
  expect_refused({"eval", cli().base(), "--text", prompts(), "--detokenize", "wikitext"},
                 {"detokenize"});
}

}  // namespace
}  // namespace focus
