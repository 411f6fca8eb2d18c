// Text from a prompt: with and without the cache, drawn and greedy, and what is refused.
#include "tests/support/cli.h"

namespace focus {
namespace {

Words generate(const Words& more) {
  return words("generate {base} --prompt {} --max-new-tokens 30", "Once upon a") + more;
}
Words focused(const Words& more) { return generate(Words("--adapter {adapter}") + more); }

TEST(CliGenerate, TextOnStdoutFiguresOnStderrAndInJson) {
  const std::string path = cli().fresh("generate.json");
  const ProcessResult result = cli().must_run(focused({"--json", path}));
  const auto json = read_json(path);
  EXPECT_EQ(result.out, json.at("text").get<std::string>() + "\n");
  expect_parts(result.err,
               {"prompt 11 tokens", "30 new tokens", "attention hard k=1 keep, carried"});
  EXPECT_EQ(json.at("prompt_tokens"), 11);
  EXPECT_EQ(json.at("new_tokens"), 30);
  EXPECT_EQ(json.at("ids").size(), 30u);
  EXPECT_EQ(json.at("stop"), "max-new-tokens");
  EXPECT_GT(json.at("prefill_tokens_per_second"), 0.0);
  EXPECT_GT(json.at("decode_tokens_per_second"), 0.0);
  EXPECT_GT(json.at("keys_read"), 0.0);
  EXPECT_LT(json.at("keys_read"), 1.0);
  EXPECT_GT(json.at("cache_bytes"), 0);
}

TEST(CliGenerate, GreedyTokensAreThoseWithoutACache) {
  for (const auto& [adapter, modes] : std::map<std::string, Words>{
           {"adapter",
            {"dense", "hard:1", "hard:2", "hard:2:gate=drop", "local", "dense --precision bf16",
             "hard:1 --precision bf16"}},
           {"keys",
            {"focus", "summary", "summary:1", "summary:0",
             "summary:1:unselected_groups=drop:block=1:sinks=0", "local"}}})
    for (const std::string& mode : modes) {
      const Words command = generate(words("--adapter {" + adapter + "} --attention " + mode));
      const auto cached = cli().figures(command), whole = cli().figures(command + "--no-cache");
      for (const char* key : {"ids", "attention", "precision"})
        EXPECT_EQ(cached.at(key), whole.at(key)) << mode;
      EXPECT_TRUE(whole.at("keys_read").is_null() && whole.at("cache_bytes").is_null());
      EXPECT_TRUE(adapter != "keys" || cached.at("keys_read") < 1.0) << mode;
      EXPECT_GT(cached.at("cache_bytes"), 0);
    }
  EXPECT_EQ(cli().figures(generate("--adapter {keys}")).at("attention"), "summary m=2 w=4 block=4");
}

TEST(CliGenerate, SpeculationWritesTheTextOfDenseAttention) {
  for (const char* const more : {"", "--precision bf16", "--temperature 1 --seed 3"}) {
    const Words adapter = Words("--adapter {keys}") + words(more);
    const auto dense = cli().figures(generate(adapter + "--attention dense"));
    EXPECT_EQ(dense.at("passes"), 29);
    EXPECT_EQ(dense.at("drafted_tokens"), 0);
    for (const char* const by : {"ngram", "groups", "summary:1"}) {
      const auto figures = cli().figures(generate(adapter + Words{"--speculate", by}));
      EXPECT_EQ(figures.at("ids"), dense.at("ids")) << by << more;
      EXPECT_EQ(figures.at("attention"), dense.at("attention"));
      EXPECT_EQ(figures.at("passes").get<int>() + figures.at("right_tokens").get<int>(), 29);
    }
  }
  expect_parts(cli().must_run(generate("--speculate ngram")).err, {"speculation ngram: "});
  const auto refused = [](const Words& command, const std::string& why) {
    const ProcessResult result = cli().run(command);
    EXPECT_NE(result.status, 0);
    EXPECT_EQ(result.out, "");
    expect_parts(result.err, {why});
  };
  refused(focused("--speculate ngram --attention hard:1"), "drafts are for dense attention");
  refused(generate("--speculate ngram --no-cache"), "drafts are for dense attention");
  refused(generate("--speculate groups"), "speculate summary");
  refused(generate("--speculate dense"), "expected ngram, groups");
}

TEST(CliGenerate, InBf16ItDrawsFromRoundedWeights) {
  const Words bf16 = "--precision bf16", hot = "--temperature 3 --seed 7";
  expect_parts(cli().must_run(focused(bf16)).err, {", carried, bf16"});
  EXPECT_EQ(cli().figures(focused(bf16)).at("precision"), "bf16");
  EXPECT_EQ(cli().figures(focused({})).at("precision"), "float32");
  // Hot draws go another way where a logit moves: the weights are really rounded.
  EXPECT_NE(cli().figures(generate(hot + bf16)).at("ids"), cli().figures(generate(hot)).at("ids"));
}

TEST(CliGenerate, TheCacheIsOfFloat16WhereItIsAskedForOrMatricesAreRounded) {
  for (const auto& [options, dtype] :
       std::map<std::string, std::string>{{"", "f32"},
                                          {"--precision q8", "f16"},
                                          {"--precision bf16", "f16"},
                                          {"--cache-type q8_0", "q8_0"},
                                          {"--precision bf16 --cache-type f32", "f32"}})
    EXPECT_EQ(cli().figures(focused(words(options))).at("cache_type"), dtype) << options;
  EXPECT_TRUE(cli().figures(focused("--no-cache")).at("cache_type").is_null());
  const Words half = "--attention dense --cache-type f16";
  const auto bytes = [&](const Words& more) {
    return cli().figures(focused(more)).at("cache_bytes").get<double>();
  };
  EXPECT_EQ(2 * bytes(half), bytes("--attention dense"));
  expect_parts(cli().must_run(focused(half)).err, {"f16 cache"});
  EXPECT_NE(cli().run(focused("--cache-type int8")).status, 0);
}

TEST(CliGenerate, APromptCacheIsContinuedByTheSameModelAndAttention) {
  const std::string text = "Once upon a time there was a town", file = cli().fresh("a.focuskv");
  const auto command = [&](const Words& more, const std::string& ending) {
    return Words("generate {base} --max-new-tokens 5") + more + Words{"--prompt", text + ending};
  };
  const Words saves = {"--prompt-cache", file};
  for (const char* const with : {"", "--cache-type q8_0", "--adapter {keys} --attention summary:1",
                                 "--adapter {keys} --speculate groups", "--adapter {lora}"}) {
    fs::remove(file);
    const Words more = words(with);
    const ProcessResult first = cli().must_run(command(more + saves, " and"));
    expect_parts(first.err,
                 {"prompt cache: 0 of 37 tokens reused; " + file + " has 37 tokens in "});
    const auto second = cli().figures(command(more + saves, " but not"));
    EXPECT_EQ(second.at("reused_tokens"), 34) << with;
    EXPECT_EQ(second.at("ids"), cli().figures(command(more, " but not")).at("ids")) << with;
    // Another eighth of a prompt was new, so that the file has the second one.
    EXPECT_EQ(cli().figures(command(more + saves, " but")).at("reused_tokens"), 36) << with;
  }
  const std::string whole = read_text(file);
  const Words again = command(saves, " and"), dense = "--attention dense";
  expect_refused(again, {file, "a prompt cache of adapters lora ", "not of adapters none;"});
  cli().must_run(command(Words("--cache-type f16 --prompt-cache") + Words{file + "2"}, ""));
  expect_refused(command(Words("--prompt-cache") + Words{file + "2"}, ""), {"of cache-type f16"});
  cli().must_run(
      command(Words("--adapter {keys} --attention dense --prompt-cache") + Words{file + "3"}, ""));
  cli().must_run(command(Words("--prompt-cache") + Words{file + "3"}, ""));  // the same numbers
  expect_refused(
      command(Words("--adapter {keys} --attention summary:1 --prompt-cache") + Words{file + "3"},
              ""),
      {"adapters none, not of adapters focus "});
  expect_refused(again + "--precision bf16", {"of precision float32, not of precision bf16"});
  expect_parts(cli().run(again + "--no-cache").err, {"--no-cache excludes --prompt-cache"});
  write_text(file, whole.substr(0, whole.size() / 2));
  expect_refused(command(Words("--adapter {lora}") + saves, " and"),
                 {file, "damaged or incomplete; delete it"});
  expect_refused(command(Words{"--prompt-cache", cli().base()}, ""), {"it is not a prompt cache"});
  EXPECT_EQ(read_text(file), whole.substr(0, whole.size() / 2));  // nothing is written over
}

TEST(CliGenerate, DrawsFollowTheSeed) {
  const Words hot = "--temperature 1.5 --top-k 40 --top-p 0.95";
  const auto ids = [&](const Words& more) { return cli().figures(generate(more)).at("ids"); };
  EXPECT_EQ(ids(hot + "--seed 5"), ids(hot + "--seed 5"));
  EXPECT_NE(ids(hot + "--seed 5"), ids(hot + "--seed 6"));
  EXPECT_EQ(ids("--temperature 1.5 --top-k 1"), ids({}));
}

TEST(CliGenerate, TakesWhatARequestTakes) {
  const auto text = [](const Words& more) {
    return cli().figures(generate(more)).at("text").get<std::string>();
  };
  const std::string greedy = text({}), part = greedy.substr(10, 3);
  EXPECT_EQ(text({"--stop", "never there", "--stop", part}), greedy.substr(0, greedy.find(part)));
  EXPECT_EQ(text("--temperature 1.5 --min-p 1"), greedy);
  EXPECT_NE(text("--temperature 1.5 --min-p 0"), greedy);
  EXPECT_EQ(text("--logit-bias 65=100 --logit-bias 66=-100"), std::string(30, 'A'));
  EXPECT_EQ(text("--logit-bias 65=+100"), std::string(30, 'A'));
  expect_refused(generate({"--stop", ""}), {"--stop", "empty"});
  expect_refused(generate("--min-p 2"), {"min_p", "2"});
  for (const char* word : {"65", "=1", "65=", "65=hot", "65=101", "65=nan", "257=1", "-1=1"})
    expect_refused(generate({"--logit-bias", word}), {"--logit-bias", word});
}

TEST(CliGenerate, WithoutAFocusItIsDense) {
  EXPECT_EQ(cli().figures(generate({})).at("attention"), "dense");
  EXPECT_EQ(cli().figures(generate({})).at("keys_read"), 1.0);
}

TEST(CliGenerate, StopsAtTheLastPosition) {
  const std::string path = cli().fresh("generate.json");
  const ProcessResult result = cli().must_run(
      words("generate {base} --prompt {} --max-new-tokens 500 --json {}", "Once upon a", path));
  // 64 positions hold the prompt and all new tokens but the last, which nothing follows.
  EXPECT_EQ(read_json(path).at("new_tokens"), 64 - 11 + 1);
  EXPECT_EQ(read_json(path).at("stop"), "positions");
  expect_parts(result.err, {"no more than 64 positions"});
}

TEST(CliGenerate, ASequenceAdapterGeneratesOnlyWithCarriedPotentials) {
  const Words command = generate("--adapter {sequence}");
  expect_refused(command, {"sequence balance", "hard:1:balance=carried"});
  expect_refused(focused("--attention hard:2:balance=sequence"),
                 {"sequence", "hard:2:balance=carried"});
  EXPECT_EQ(cli().figures(command + "--attention hard:1:balance=carried").at("routing"), "carried");
  cli().must_run(command + "--attention dense");  // nothing is routed
}

TEST(CliGenerate, RefusesPromptsThatCannotBeGoneOnFrom) {
  const std::string empty = cli().fresh("empty.txt"), missing = cli().fresh("missing.txt");
  write_text(empty, "");
  const Words command = "generate {base}";
  expect_refused(command + Words{"--prompt", ""}, {"the prompt is empty"});
  expect_refused(command + Words{"--prompt-file", empty}, {empty, "empty"});
  expect_refused(command + Words{"--prompt-file", missing}, {missing});
  expect_refused(command + Words{"--prompt", std::string(65, 'a')}, {"65 tokens", "64 positions"});
  for (const Words& wrong :
       {Words(""), words("--prompt a --prompt-file {}", empty),
        Words("--prompt a --max-new-tokens 0"), Words("--prompt a --hard-k 1")})
    EXPECT_EQ(cli().run(command + wrong).status, 2) << testing::PrintToString(wrong);
}

TEST(CliGenerate, RefusesSettingsThatDoNotFit) {
  const std::string missing = cli().fresh("missing.h5"), json = cli().fresh("generate.json");
  expect_refused(generate({"--adapter", missing, "--json", json}), {missing, "no such file"});
  EXPECT_FALSE(fs::exists(json));
  expect_refused(generate("--attention hard"), {cli().base(), "--adapter"});
  expect_refused(focused("--attention hard:4"), {"hard:4", "3 groups"});
  expect_refused(focused("--attention soft"), {"soft", "every key"});
  expect_refused(focused("--attention hard:-1"), {"hard:-1"});
  expect_refused(generate("--temperature -1"), {"temperature", "-1"});
  expect_refused(generate("--top-p 0"), {"top_p", "0"});
  expect_refused(generate("--top-k -2"), {"top_k", "-2"});
  for (const char* word :
       {"--top-k 99999999999999999999", "--seed 18446744073709551616", "--seed -1"}) {
    const ProcessResult result = cli().run(generate(word));
    EXPECT_NE(result.status, 0) << word;
    expect_parts(result.err, {"expected a whole number"});
  }
}

// Chat: the prompt that a model's own template makes, what continues it, and what is refused.

const std::string kTemplate =
    "{% for m in messages %}{{ '[' + m.role + '] ' + m.content|trim + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}";

std::string chat_model(const std::string& chat_template) {
  return model_folder("gpt2", {{"chat_template.jinja", chat_template}});
}

Words chat(const std::string& model, const Words& more) {
  return words("generate {} --chat --max-new-tokens 5", model) + more;
}

std::string shown_prompt(const std::string& model, const Words& more) {
  return cli().must_run(chat(model, more + "--show-prompt")).out;
}

TEST(CliGenerateChat, TheConversationGoesThroughTheTemplate) {
  const std::string model = chat_model(kTemplate), store = cli().fresh("model.h5");
  const std::string user = "[user] Hi\n[assistant]";
  EXPECT_EQ(shown_prompt(model, {"--prompt", " Hi "}), user);
  EXPECT_EQ(shown_prompt(model, {"--user", "Hi", "--system", "Be brief."}),
            "[system] Be brief.\n" + user);
  cli().must_run({"import", model, "--out", store});
  EXPECT_EQ(shown_prompt(store, "--prompt Hi"), user);  // a store keeps the template
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
  const std::string model = chat_model(kTemplate), prompt = "[user] Hi\n[assistant]";
  const auto json = cli().figures(chat(model, "--prompt Hi"));
  EXPECT_EQ(json.at("prompt"), prompt);
  EXPECT_EQ(json.at("prompt_tokens"), prompt.size());
  EXPECT_LE(json.at("new_tokens"), 5);
  // The same ids without --chat, where nothing is put before the prompt.
  set_json(model + "/config.json", "bos_token_id", nullptr);
  const auto plain =
      cli().figures(words("generate {} --prompt {} --max-new-tokens 5", model, prompt));
  EXPECT_EQ(plain.at("ids"), json.at("ids"));
  EXPECT_TRUE(plain.at("prompt").is_null());
}

TEST(CliGenerateChat, TheTemplateIsFoundAndChosen) {
  const auto configured = [](const nlohmann::json& config) {
    return model_folder("gpt2", {{"tokenizer_config.json", config.dump()}});
  };
  const std::string named = configured({{"chat_template",
                                         {{{"name", "default"}, {"template", "default"}},
                                          {{"name", "tool_use"}, {"template", "tools"}}}}});
  EXPECT_EQ(shown_prompt(named, "--prompt x"), "default");
  EXPECT_EQ(shown_prompt(named, "--prompt x --chat-template tool_use"), "tools");
  const std::string file = cli().fresh("other.jinja");
  write_text(file, "{{ bos_token }}{{ messages[0].content }}");
  EXPECT_EQ(shown_prompt(named, {"--prompt", "x", "--chat-template", file}), "x");
  const std::string tokens = configured({{"chat_template", "{{ bos_token }}{{ eos_token }}"},
                                         {"bos_token", {{"content", "b"}}},
                                         {"eos_token", "e"}});
  EXPECT_EQ(shown_prompt(tokens, "--prompt x"), "be");
  const std::string tools = cli().fresh("tools.json");
  write_text(tools, R"([{"name": "f", "id": 12345678901234567890}])");
  EXPECT_EQ(
      shown_prompt(chat_model("{{ tools|tojson }} {{ enable_thinking }} {{ x | none_such if 0 }}"),
                   {"--prompt", "x", "--tools", tools, "--template", "enable_thinking=false"}),
      R"([{"name": "f", "id": 12345678901234567890}] False )");
  expect_refused(chat(named, "--prompt x --template thinking"), {"--template", "KEY=VALUE"});
  expect_refused(chat(named, "--prompt x --chat-template rag"), {"'rag'", "default, tool_use"});
  expect_refused(chat(named, "--prompt x --chat-template missing.jinja"), {"missing.jinja"});
}

TEST(CliGenerateChat, AnAdaptersFolderMayHaveATemplate) {
  const std::string adapter = cli().fresh("adapter"), base = cli().base();
  fs::create_directories(adapter);
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"})
    fs::copy(fs::path(cli().lora()).parent_path() / name, fs::path(adapter) / name);
  const auto shown = [&] {
    return cli().must_run(chat(base, {"--prompt", "x", "--adapter", adapter, "--show-prompt"}));
  };
  write_text(adapter + "/chat_template.jinja", "Adapter: {{ messages[0].content }}");
  write_text(adapter + "/tokenizer_config.json", R"({"eos_token": "<e>"})");
  EXPECT_EQ(shown().out, "Adapter: x");
  const std::string merged = cli().fresh("merged.h5");
  cli().must_run({"merge", base, "--adapter", adapter, "--out", merged});
  EXPECT_EQ(shown_prompt(merged, "--prompt y"), "Adapter: y");
  // A model that has one, and another tokenizer, are named.
  const auto other =
      cli().must_run(chat(merged, {"--prompt", "x", "--adapter", adapter, "--show-prompt"}));
  EXPECT_EQ(other.err, "");
  write_text(adapter + "/chat_template.jinja", "Other");
  expect_parts(
      cli().must_run(chat(merged, {"--prompt", "x", "--adapter", adapter, "--show-prompt"})).err,
      {adapter + ": its chat_template is used, not that of"});
}

TEST(CliGenerateChat, WhatIsRefused) {
  const Words user = "--prompt x";
  const std::string none = model_folder("gpt2");
  expect_refused(chat(none, user), {none, "no chat template", "--chat-template"});
  expect_refused(chat(chat_model("a\n{% include 'x' %}"), user),
                 {"chat_template.jinja: line 2", "'include' is not supported"});
  const std::string raises =
      chat_model("{{ raise_exception('only ' ~ messages|length ~ ' turns') }}");
  expect_refused(chat(raises, user), {"refuses these messages: only 1 turns"});
  const std::string bad = cli().fresh("bad.jsonl");
  write_text(bad, "{\"role\": \"user\"}\nnot JSON\n");
  expect_refused(chat(raises, {"--messages", bad}), {bad, "line 2"});
  write_text(bad, "{\"content\": \"x\"}\n");
  expect_refused(chat(raises, {"--messages", bad}), {bad, "\"role\""});
  expect_refused(chat(chat_model("{# nothing #}"), user), {"prompt"});
}

TEST(CliGenerateChat, OptionsThatDoNotGoTogether) {
  const std::string model = chat_model(kTemplate);
  for (const Words wrong :
       {"--prompt x --system y", "--prompt x --show-prompt", "--chat", "--chat --system y",
        "--chat --messages x --prompt y", "--chat --messages x --system y"}) {
    const ProcessResult result = cli().run(Words{"generate", model} + wrong);
    EXPECT_EQ(result.status, 2) << testing::PrintToString(wrong) << result.err;
    expect_parts(result.err, {"--"});
  }
}

}  // namespace
}  // namespace focus
