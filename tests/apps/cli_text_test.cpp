// What precedes a text, what ends one, and statements that differ.
#include "tests/support/cli.h"

namespace focus {
namespace {

using Json = nlohmann::json;

/// A golden llama, whose config.json says that 0 is BOS, with a tokenizer of its 96 ids.
std::string folder_of_texts(const Json& tokenizer_config = Json::object()) {
  return model_folder("llama_gqa", {{"tokenizer_config.json", tokenizer_config.dump()}});
}

Json prompt_tokens(const std::string& folder, const std::string& text, const Words& more = {}) {
  const Words command = words("generate {} --prompt {} --max-new-tokens 1", folder, text);
  return cli().figures(command + more).at("prompt_tokens");
}

Json ids(const std::string& folder, const std::string& text, const Words& more = {}) {
  const std::string out = cli().fresh("l.safetensors");
  return cli().figures(words("logits {} --text {} --out {}", folder, text, out) + more).at("ids");
}

const Json kAdds = {{"bos_token", "~"}, {"eos_token", "|"}, {"add_bos_token", true}};  // 95, 93

TEST(CliTextStart, TheTokenizersFilesDecide) {
  const std::string none = folder_of_texts();
  EXPECT_EQ(prompt_tokens(none, "Hello"), 5);
  EXPECT_EQ(prompt_tokens(none, "Hello", {"--bos", "always"}), 6);
  EXPECT_EQ(ids(none, "ab", {"--bos", "always"}), Json({0, 66, 67}));
  const std::string adds = folder_of_texts(kAdds);
  EXPECT_EQ(ids(adds, "ab"), Json({95, 66, 67}));
  EXPECT_EQ(ids(adds, "~ab"), Json({95, 66, 67}));  // no second one
  EXPECT_EQ(ids(adds, "ab", {"--bos", "never"}), Json({66, 67}));
  EXPECT_EQ(ids(adds, "ab", {"--bos", "always"}), Json({0, 66, 67}));
  EXPECT_EQ(prompt_tokens(adds, "~Hello"), 6);
}

/// That add_bos_token goes before the template of tokenizer.json is the golden tokenizers' to show.
TEST(CliTextStart, AddBosTokenAgainstTheTemplateIsTold) {
  const std::string folder = folder_of_texts({{"bos_token", "~"}, {"add_bos_token", false}});
  set_json(folder + "/tokenizer.json", "post_processor",
           {{"type", "TemplateProcessing"},
            {"single",
             {{{"SpecialToken", {{"id", "~"}, {"type_id", 0}}}},
              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
            {"special_tokens", {{"~", {{"id", "~"}, {"ids", {95}}, {"tokens", {"~"}}}}}}});
  EXPECT_EQ(ids(folder, "ab"), Json({66, 67}));
  expect_parts(cli().must_run(words("generate {} --prompt a", folder)).err,
               {"notice: ", "add_bos_token"});
}

TEST(CliTextStart, EvaluationPutsItOnceOrBeforeEachWindow) {
  const std::string folder = folder_of_texts(kAdds);
  const Words all = words("{} --text {valid} --context 16", folder),
              eval = all + "--stride 8 --max-tokens 100";
  for (const char* bos : {"auto", "always", "never", "window"})
    EXPECT_EQ(cli().rows(eval + Words{"--bos", bos}).at(0).at("tokens_scored"), 99) << bos;
  for (const char* other : {"--bos window", "--bos always"})
    EXPECT_NE(cli().perplexity(eval), cli().perplexity(eval + other));
  expect_refused(Words("eval") + all + "--stride 16 --bos window", {"stride of 16"});
}

TEST(CliTextStart, TrainingTakesDataBos) {
  const std::string folder = folder_of_texts(kAdds);
  const auto trained = [&](const char* bos) {
    const std::string out = cli().fresh("run");
    cli().must_run(cli().config(
        words("method=lora lora.r=2 base={} steps=1 data.context=16 data.bos={} out={}", folder,
              bos, out)));
    return metrics_of(out);
  };
  EXPECT_NE(trained("auto"), trained("never"));
  EXPECT_NE(trained("auto"), trained("window"));
}

TEST(CliTextEnd, EveryIdOfTheListEndsAndExportKeepsThem) {
  const std::string folder = folder_of_texts();
  fs::remove(folder + "/generation_config.json");
  set_json(folder + "/config.json", "eos_token_id", nullptr);
  const Words command = words("generate {} --prompt Hello --max-new-tokens 6", folder);
  const Json endless = cli().figures(command).at("ids");
  ASSERT_EQ(endless.size(), 6u);
  const auto ends_at = [&](std::size_t index) {
    const Json figures = cli().figures(command);
    const auto first = std::find(endless.begin(), endless.end(), endless[index]);
    EXPECT_EQ(figures.at("ids").size(), static_cast<std::size_t>(first - endless.begin()));
    EXPECT_EQ(figures.at("stop"), "end of text");
  };
  const Json unused = endless[0] == 3 ? 4 : 3;
  set_json(folder + "/config.json", "eos_token_id", {unused, endless[5]});
  ends_at(5);
  const std::string store = cli().fresh("m.h5"), out = cli().fresh("out");
  cli().must_run({"import", folder, "--out", store});
  cli().must_run({"export", store, "--out", out});
  for (const char* name : {"config.json", "generation_config.json"})
    EXPECT_EQ(read_json(out + "/" + name).at("eos_token_id"), Json({unused, endless[5]}));
  write_text(folder + "/generation_config.json",
             Json({{"eos_token_id", {endless[0], endless[5]}}}).dump());
  ends_at(0);
}

TEST(CliTextEnd, GenerationConfigGivesDefaultsAndIsTold) {
  const std::string folder = folder_of_texts();
  const Words command = words("generate {} --prompt Hello --max-new-tokens 24", folder);
  const Json greedy = cli().figures(command).at("ids");
  write_text(folder + "/generation_config.json",
             Json({{"do_sample", true}, {"temperature", 2.5}}).dump());
  expect_parts(cli().must_run(command).err, {"generation_config.json: temperature 2.5, top_k 50"});
  EXPECT_NE(cli().figures(command).at("ids"), greedy);
  EXPECT_EQ(cli().figures(command + Words{"--temperature", "0"}).at("ids"), greedy);
  write_text(folder + "/generation_config.json",
             Json({{"suppress_tokens", {greedy[0]}}, {"num_beams", 2}}).dump());
  const Json suppressed = cli().figures(command).at("ids");
  EXPECT_EQ(std::ranges::count(suppressed, greedy[0]), 0);
  expect_parts(cli().must_run(command).err,
               {"generation_config.json: suppress_tokens (1)", "not applied here: num_beams 2"});
  write_text(folder + "/generation_config.json", Json({{"repetition_penalty", 5.0}}).dump());
  const Json penalised = cli().figures(command).at("ids");
  EXPECT_NE(penalised, greedy);
  EXPECT_EQ(cli().figures(command + Words{"--repetition-penalty", "1"}).at("ids"), greedy);
}

TEST(CliStatements, AnotherHeadIsNotTied) {
  const std::string folder = folder_of_texts();
  const auto logits = [&] {
    const std::string out = cli().fresh("l.safetensors");
    const ProcessResult run = cli().must_run(words("logits {} --ids 5,9,77 --out {}", folder, out));
    return std::pair(SafetensorsFile(out).read("logits").clone(), run.err);
  };
  const auto [own, silent] = logits();
  EXPECT_EQ(silent, "");
  set_json(folder + "/config.json", "tie_word_embeddings", true);
  const auto [still_own, told] = logits();
  EXPECT_TRUE(same_bits(still_own, own));
  expect_parts(told, {"lm_head.weight"});
  EXPECT_EQ(std::ranges::count(told, '\n'), 1) << told;
  const std::string out = cli().fresh("out");
  cli().must_run({"export", folder, "--out", out});
  EXPECT_EQ(read_json(out + "/config.json").at("tie_word_embeddings"), false);
}

TEST(CliStatements, AnIdBeyondTheRowsIsAnErrorWhereItIsUsed) {
  const std::string folder = folder_of_texts();
  Json tokenizer = read_json(folder + "/tokenizer.json");
  tokenizer["added_tokens"].push_back({{"id", 97},
                                       {"content", "[PAD]"},
                                       {"single_word", false},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"normalized", false},
                                       {"special", true}});
  write_text(folder + "/tokenizer.json", tokenizer.dump());
  EXPECT_EQ(prompt_tokens(folder, "Hello"), 5);
  const std::string text = cli().fresh("t.txt");
  write_text(text, "some words and [PAD] among them, and more of them");
  // The notice that sizes differ is left out: one line.
  const auto refused = [&](const Words& command, const std::vector<std::string>& parts) {
    expect_refused(command + "--log-level error", parts);
  };
  refused(words("generate {} --prompt a[PAD]", folder), {"97", "[PAD]", "96 ids"});
  refused(words("eval {} --text {}", folder, text), {text, "97", "[PAD]"});
  refused(words("logits {} --text a[PAD] --out {}", folder, cli().fresh("l")), {"97"});
  expect_parts(cli().run(words("generate {} --prompt a", folder)).err,
               {"notice: " + folder + ": the tokenizer has 98 ids"});
  cli().must_run({"import", folder, "--out", cli().fresh("m.h5")});
}

// focus tokenizer: a BPE of one's own, what the other commands do with it, and what is refused.

std::string trained_tokenizer() {
  static const std::string folder = [] {
    const std::string out = cli().fresh("tokenizer");
    cli().must_run(words("tokenizer train --text {train} --vocab-size 300 --out {}", out));
    return out;
  }();
  return folder;
}

TEST(CliTokenizer, TrainsEncodesAndDecodes) {
  EXPECT_TRUE(fs::exists(trained_tokenizer() + "/tokenizer.json"));
  EXPECT_TRUE(fs::exists(trained_tokenizer() + "/tokenizer_config.json"));
  const auto encoded =
      cli().must_run(words("tokenizer encode {} --text {valid}", trained_tokenizer()));
  const std::string ids = cli().fresh("ids.txt");
  write_text(ids, encoded.out);
  EXPECT_LT(std::ranges::count(encoded.out, ' '), 600);  // of 700 bytes
  const auto decoded = cli().must_run({"tokenizer", "decode", trained_tokenizer(), "--ids", ids});
  EXPECT_EQ(decoded.out, read_text(cli().valid_text()));
}

TEST(CliTokenizer, TheSameBytesEveryTimeAndOneFileWhereOneIsNamed) {
  const std::string file = cli().fresh("own.json");
  cli().must_run(words("tokenizer train --text {train} --vocab-size 300 --out {}", file));
  EXPECT_EQ(read_text(file), read_text(trained_tokenizer() + "/tokenizer.json"));
}

TEST(CliTokenizer, AConfigTakesIt) {
  const std::string out = cli().fresh("run");
  cli().must_run(cli().scratch({"out=" + out, "tokenizer=" + trained_tokenizer(), "steps=2"}));
  const auto info = cli().figures({"info", out + "/model.h5"});
  EXPECT_EQ(info.at("vocab_size"), 300);
  EXPECT_EQ(info.at("tokenizer"), "tokenizer.json");
}

TEST(CliTokenizer, AModelsTokenizerIsLookedAtToo) {
  const std::string out = cli().fresh("run"), model = out + "/model.h5";
  cli().must_run(cli().scratch({"out=" + out, "tokenizer=" + trained_tokenizer(), "steps=2"}));
  const std::string gguf = cli().fresh("model.gguf");
  cli().must_run({"export", model, "--gguf", gguf});
  const std::string ids =
      cli().must_run(words("tokenizer encode {} --text {valid}", trained_tokenizer())).out;
  EXPECT_EQ(cli().must_run(words("tokenizer encode {} --text {valid}", model)).out, ids);
  EXPECT_EQ(cli().must_run(words("tokenizer encode {} --text {valid}", gguf)).out, ids);
  cli().must_run(words("logits {} --tokenizer {} --text Once --out {}", model, gguf,
                       cli().fresh("logits.safetensors")));
  const std::string bytes = cli().base();
  cli().must_run(words("tokenizer encode {} --text {valid}", bytes));
}

TEST(CliTokenizer, RefusesInOneLineAndWritesNothing) {
  const std::string out = cli().fresh("none"), blank = cli().fresh("blank.txt");
  write_text(blank, " \n<|endoftext|>\n");
  const Words train = words("tokenizer train --out {} --text", out);
  expect_refused(train + "{train} --vocab-size 100", {"100", "257"});
  expect_refused(train + Words{out + ".txt"}, {out + ".txt", "no such text file"});
  const auto nothing = cli().run(train + Words{blank});  // after its progress
  EXPECT_EQ(nothing.status, 1);
  expect_parts(lines_of(nothing.err).back(), {"nothing to train on"});
  EXPECT_FALSE(fs::exists(out));
  const std::string before = read_text(trained_tokenizer() + "/tokenizer.json");
  expect_refused(words("tokenizer train --text {train} --out {}", trained_tokenizer()),
                 {"exists already", "--overwrite"});
  EXPECT_EQ(read_text(trained_tokenizer() + "/tokenizer.json"), before);
  const std::string ids = cli().fresh("ids.txt");
  const Words decode = words("tokenizer decode {} --ids {}", trained_tokenizer(), ids);
  write_text(ids, "1 2 x3");
  expect_refused(decode, {"whole numbers", "\"x3\""});
  write_text(ids, "1 300");
  expect_refused(decode, {"300", "vocabulary"});
}

// Training and evaluating on JSONL as its users do.

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
  return words(
             "train method=lora base={base} data.train={} data.valid={} data.context=64 "
             "data.batch=2 steps=4 optim.warmup_steps=1 eval_every=0 checkpoint_every=2",
             train, train) +
         more;
}

TEST(CliInstructions, ALoraLearnsAnswersAndEvalScoresThemAlike) {
  const std::string file = prompts(), out = cli().fresh("run");
  cli().must_run(lora(file, {"out=" + out, "eval_windows=1000"}));
  double last = 0;
  for (const auto& record : metrics_of(out))
    if (record.contains("valid_perplexity")) last = record["valid_perplexity"];
  const Words eval =
      words("{base} --adapter {} --text {} --context 64 --attention dense", out, file);
  EXPECT_NEAR(cli().perplexity(eval), last, 1e-3 * last);
  // The prompts' tokens are others.
  EXPECT_GT(std::abs(cli().perplexity(eval + "--completion-only-loss false") - last), 0.01 * last);
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
  EXPECT_GT(cli().perplexity(
                words("{base} --text {} --dataset-text-field content --attention dense", file)),
            1);
}

TEST(CliInstructions, AFolderHasRecordsUnderAnyNameAndCountsTheRest) {
  const std::string folder = cli().fresh("texts");
  fs::create_directories(folder);
  write_text(folder + "/a.JSON", R"([{"text": "Once upon a time"}, {"text": "there was a dog."}])");
  write_text(folder + "/b.txt", "{\"text\": \"cat\"}\n{\"text\": \"dog\"}\n");
  write_text(folder + "/info.json", R"({"version":
1})");
  write_text(folder + "/readme.md", "x");
  const auto result = cli().must_run(words("eval {base} --text {} --attention dense", folder));
  expect_parts(result.out, {"4 texts"});
  expect_parts(result.err, {"2 of its 4 entries are skipped, info.json among them"});
}

TEST(CliInstructions, FitTakesThem) {
  cli().must_run(words("fit {base} --text {} --num-groups 4 --tokens 256 --context 64 --out {}",
                       prompts(), cli().fresh("keys.h5")));
}

TEST(CliInstructions, WhatIsWrongIsSaidBeforeAnythingIsWritten) {
  const std::string out = cli().fresh("run");
  using Parts = std::vector<std::string>;
  for (const auto& [bytes, parts] : std::vector<std::pair<std::string, Parts>>{
           {"{\"prompt\": \"a\", \"completion\": \"b\"}\nOnce\n", {"line 2"}},
           {"{\"instruction\": 1, \"output\": \"b\"}\n", {"line 1", "instruction"}},
           {"{\"text\": \"a\"}\n{\"messages\": [{\"role\": \"user\"}]}\n", {"line 2", "line 1"}},
           {std::string(100, '\0'), {"UTF-16"}}}) {
    const std::string path = cli().fresh("bad.jsonl");
    write_text(path, bytes);
    for (const Words& command :
         {lora(path, {"out=" + out}), words("eval {base} --text {}", path)}) {
      expect_refused(command, parts);
      expect_refused(command, {path});
    }
  }
  const Words command = lora(prompts(), {"out=" + out});
  expect_refused(command + "data.packing=wrapped", {"data.packing wrapped", "documents"});
  expect_refused(command + "data.packing=packed", {"data.packing", "wrapped"});
  expect_refused(command + "data.context=8", {"8"});
  expect_refused(words("eval {base} --text {} --detokenize wikitext", prompts()), {"detokenize"});
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace focus
